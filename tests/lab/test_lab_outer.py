"""What a guest inherits, decided from texts."""

from __future__ import annotations

import tomllib

import pytest

from lab import outer
from lab.errors import HostError

DEB822 = """Types: deb
# URIs: http://commented.example/debian
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates

Types: deb
URIs: http://mirror.example/debian-security
"""
ONE_LINE = """# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] https://other.example/ubuntu jammy main
deb http://line.example/debian bookworm main
"""


def pem(body: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


def test_mirrors_come_from_both_formats() -> None:
    assert outer.mirrors(outer.apt_uris(DEB822)) == (
        "http://mirror.example/debian",
        "http://mirror.example/debian-security",
    )
    assert outer.mirrors(outer.apt_uris(ONE_LINE)) == ("http://line.example/debian", outer.SECURITY_MIRROR)


def test_an_ubuntu_machine_gets_debians_own_mirror() -> None:
    uris = outer.apt_uris("deb http://archive.example/ubuntu noble main\ndeb file:/srv/debian x main\n")
    assert outer.mirrors(uris) == (outer.DEBIAN_MIRROR, outer.SECURITY_MIRROR)


def test_only_apt_options_about_the_way_out_are_inherited() -> None:
    proxy, clock = 'Acquire::http::Proxy "http://p:3128";', 'Acquire::Check-Date "false";'
    dump = f'APT::Architecture "arm64";\n{proxy}\nAcquire::http::Proxy::host "DIRECT";\n{clock}\nDir::Etc "etc/apt";\n'
    assert outer.apt_options(dump) == [proxy, clock]


def test_pip_variables_win_over_files_and_files_that_are_only_outside_are_dropped() -> None:
    first = "[global]\nindex-url = https://first.example/simple\ntrusted-host = a\n[install]\nindex-url = x\n"
    second = "[global]\nextra-index-url = file:///srv/simple https://more.example/simple\nfind-links = /srv/wheels\n"
    settings = outer.pip_settings([first, second], {"PIP_INDEX_URL": "https://env.example/simple", "PIP_CERT": "/c"})
    assert settings == {
        "index-url": "https://env.example/simple",
        "extra-index-url": "https://more.example/simple",
        "trusted-host": "a",
    }
    assert "cert = /etc/ssl/certs/ca-certificates.crt\nindex-url = https://env" in outer.pip_conf(settings)


def test_uv_takes_its_own_settings_before_pips() -> None:
    pip = {"index-url": "https://pip.example/simple", "trusted-host": "pip.example"}
    table = {"name": "own", "url": "https://own.example/simple", "default": True}
    text = outer.uv_toml({"index": [table]}, pip, {"UV_INDEX_URL": "https://env.example/simple"}, "/cache")
    assert tomllib.loads(text) == {
        "system-certs": True,
        "cache-dir": "/cache",
        "link-mode": "copy",
        "index-url": "https://env.example/simple",
        "allow-insecure-host": ["pip.example"],
        "index": [table],
    }


def test_only_certificates_that_debian_does_not_know_are_copied() -> None:
    known = pem("QUJD\nREVG")
    extra = outer.extra_certificates([f"# a comment\n{pem('QUJDREVG')}{pem('T1dO')}", pem("T1dO")], known)
    assert extra == [pem("T1dO")]


def test_a_local_stub_resolver_is_replaced_by_its_upstream() -> None:
    stub, upstream = "nameserver 127.0.0.53\n", "nameserver 192.0.2.53\n"
    assert outer.name_servers(upstream, "") == upstream
    assert outer.name_servers(stub, upstream) == upstream
    with pytest.raises(HostError, match=r"/etc/resolv\.conf: every name server is on the loopback"):
        outer.name_servers(stub, "")
