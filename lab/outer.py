"""What a guest inherits from the outer machine: mirrors, name servers, certificates, pip, uv and proxy settings.

Nothing here is a default of ours but Debian's own mirror: behind a company's proxy (TLS intercepted, own indexes) a
guest must come out the same way as its host.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from lab.errors import HostError
from lab.host import run

DEBIAN_MIRROR = "http://deb.debian.org/debian"
SECURITY_MIRROR = "http://deb.debian.org/debian-security"
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
"""pip settings that mean the same in a guest. find-links and constraint name files that are only outside."""
APT_INHERITED = re.compile(
    r"Acquire::(https?::(.*::)?(Proxy|Verify-Peer|Verify-Host|CaInfo)|Check-Valid-Until|Check-Date) "
)
PEM = re.compile(r"-----BEGIN CERTIFICATE-----\s(.+?)-----END CERTIFICATE-----", re.DOTALL)


def apt_uris(text: str) -> list[str]:
    """URIs of an apt sources file, one-line or deb822, as they come; comments and disabled entries left out."""
    uris: list[str] = []
    for line in text.splitlines():
        word = line.strip()
        if match := re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)", word):
            uris.append(match[1])
        elif word.lower().startswith("uris:"):
            uris.extend(word.split()[1:])
    return uris


def mirrors(uris: Iterable[str]) -> tuple[str, str]:
    """(Debian mirror, security mirror) out of apt URIs; Debian's own where the outer machine names none (Ubuntu)."""
    known = [uri.rstrip("/") for uri in uris if uri.startswith(("http://", "https://"))]
    main = [uri for uri in known if urlsplit(uri).path.endswith("/debian")]
    security = [uri for uri in known if urlsplit(uri).path.endswith("/debian-security")]
    return (main or [DEBIAN_MIRROR])[0], (security or [SECURITY_MIRROR])[0]


def apt_options(dump: str) -> list[str]:
    """Lines of `apt-config dump` that a guest needs as well: proxies, TLS and clock checks."""
    return [line for line in dump.splitlines() if APT_INHERITED.match(line)]


def pip_settings(files: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """pip's [global] settings that make sense in a guest.

    Later files win over earlier ones and PIP_* variables over files, as in pip itself.
    """
    found: dict[str, str] = {}
    for text in files:
        parser = configparser.RawConfigParser()
        parser.read_string(text)
        if parser.has_section("global"):
            found.update({_pip_key(key): value for key, value in parser.items("global")})
    for name, value in environment.items():
        if name.startswith("PIP_"):
            found[_pip_key(name[4:])] = value
    settings = {key: _reachable(found[key]) for key in PIP_KEYS if key in found}
    return {key: value for key, value in settings.items() if value}


def _pip_key(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("default-")


def _reachable(value: str) -> str:
    """The words of `value` without file: URLs, which do not exist in a guest."""
    return " ".join(word for word in value.split() if not word.startswith("file:"))


def pip_conf(settings: Mapping[str, str]) -> str:
    """/etc/pip.conf of a guest. The bundle there holds the outer machine's certificates."""
    return "\n".join(["[global]", f"cert = {BUNDLE}", *(f"{key} = {value}" for key, value in settings.items()), ""])


def uv_toml(outer: Mapping[str, object], pip: Mapping[str, str], environment: Mapping[str, str], cache: str) -> str:
    """/etc/uv/uv.toml of a guest, read by every uv there without any environment (also in a service).

    `outer` is the outer machine's uv.toml; uv's own settings win over pip's. JSON strings and lists are TOML as well.
    """

    def first(key: str, variable: str, pip_key: str) -> object:
        return environment.get(variable, "").split() or outer.get(key) or pip.get(pip_key, "").split()

    default = environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL")
    wanted = {
        "cache-dir": cache,
        "link-mode": "copy",  # the cache is a mount of its own, so nothing can be linked out of it
        "index-url": default or outer.get("index-url") or pip.get("index-url"),
        "extra-index-url": first("extra-index-url", "UV_EXTRA_INDEX_URL", "extra-index-url"),
        "allow-insecure-host": first("allow-insecure-host", "UV_INSECURE_HOST", "trusted-host"),
    }
    lines = ["system-certs = true", *(f"{key} = {json.dumps(value)}" for key, value in wanted.items() if value)]
    for index in _tables(outer.get("index")):
        lines += ["[[index]]", *(f"{key} = {json.dumps(value)}" for key, value in index.items())]
    return "\n".join([*lines, ""])


def _tables(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def certificates(bundles: Iterable[str]) -> dict[str, str]:
    """Certificates of PEM texts: body without line breaks -> PEM, each once."""
    return {"".join(match[1].split()): match[0] + "\n" for text in bundles for match in PEM.finditer(text)}


def extra_certificates(outer: Iterable[str], guest_bundle: str) -> list[str]:
    """PEMs that the outer machine trusts and a plain Debian does not, in a stable order."""
    known = certificates([guest_bundle])
    return [pem for body, pem in sorted(certificates(outer).items()) if body not in known]


def name_servers(resolv_conf: str, upstream: str) -> str:
    """The resolv.conf for guests. `upstream` is systemd-resolved's list, used where the outer one is its local stub."""
    for text in (resolv_conf, upstream):
        servers = [line.split()[1] for line in text.splitlines() if line.startswith("nameserver ")]
        if servers and not any(server.startswith("127.") or server == "::1" for server in servers):
            return text
    raise HostError(
        "/etc/resolv.conf: every name server is on the loopback of this machine, which a guest cannot reach; "
        "name one that is reachable from other machines (nameserver ADDRESS)"
    )


def read_apt() -> tuple[tuple[str, str], list[str]]:
    """((main mirror, security mirror), apt options) of this machine."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    uris = [uri for path in files for uri in apt_uris(_text(path))]
    return mirrors(uris), apt_options(run(["apt-config", "dump"]).stdout)


def read_pip() -> dict[str, str]:
    """pip's settings of this machine (system, user, PIP_CONFIG_FILE, PIP_* variables)."""
    home = Path.home()
    system = (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))
    files = [*system, home / ".pip/pip.conf", home / ".config/pip/pip.conf"]
    if named := os.environ.get("PIP_CONFIG_FILE"):
        files.append(Path(named))
    return pip_settings([_text(path) for path in files], os.environ)


def read_uv(cache: str) -> str:
    """uv.toml for a guest from this machine's settings; the user's file wins over the system's."""
    merged: dict[str, object] = {}
    for path in (Path("/etc/uv/uv.toml"), Path.home() / ".config/uv/uv.toml"):
        merged.update(tomllib.loads(_text(path)))
    return uv_toml(merged, read_pip(), os.environ, cache)


def read_certificates() -> list[str]:
    """PEM texts of everything this machine is told to trust."""
    named = [Path(os.environ[name]) for name in CERTIFICATE_VARIABLES if os.environ.get(name)]
    local = sorted(Path("/usr/local/share/ca-certificates").glob("**/*.crt"))
    return [_text(path) for path in dict.fromkeys([BUNDLE, *local, *named])]


def read_proxies() -> dict[str, str]:
    """Proxy variables set here."""
    return {name: os.environ[name] for name in PROXY_VARIABLES if os.environ.get(name)}


def read_resolv_conf() -> str:
    """resolv.conf for a guest, as things are now."""
    return name_servers(_text(Path("/etc/resolv.conf")), _text(Path("/run/systemd/resolve/resolv.conf")))


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""
