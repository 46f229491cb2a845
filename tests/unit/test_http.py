"""HTTP on the node, against real sockets: every way not to answer has a message of its own."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from pd import http
from pd.gates import Http

Handle = Callable[[BaseHTTPRequestHandler, Any], tuple[int, bytes]]


@contextmanager
def server(handle: Handle) -> Iterator[str]:
    """A little HTTP server; its url. `handle` gets the request and its JSON body, and gives status and body."""

    def answer(self: BaseHTTPRequestHandler) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        status, body = handle(self, json.loads(self.rfile.read(length)) if length else None)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    quiet = {"log_message": lambda *_: None}
    handler = type("Handler", (BaseHTTPRequestHandler,), {"do_GET": answer, "do_POST": answer, **quiet})
    httpd = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


@pytest.mark.parametrize(("sent", "body"), [(b'{"a": [1]}', {"a": [1]}), (b"plain", "plain"), (b"", "")])
def test_an_answer(sent: bytes, body: Any) -> None:
    with server(lambda _request, _asked: (200, sent)) as url:
        assert http.ask(url) == Http(200, body)


def test_a_body_is_posted_with_the_key() -> None:
    seen: list[Any] = []

    def handle(request: BaseHTTPRequestHandler, asked: Any) -> tuple[int, bytes]:
        seen.append((request.command, request.headers.get("Authorization"), asked))
        return 503, b"busy"

    with server(handle) as url:
        assert http.ask(f"{url}/generate", {"text": "x"}, key="s3cret") == Http(503, "busy")
        http.ask(url)
    assert seen == [("POST", "Bearer s3cret", {"text": "x"}), ("GET", None, None)]


def test_report_059_a_proxy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with server(lambda _request, _asked: (200, b"1")) as url:
        assert http.ask(url).status == 200


def test_report_028_a_slow_answer_is_not_a_refusal() -> None:
    """Connecting has a short limit of its own; an answer may take as long as it was given."""

    def slow(_request: BaseHTTPRequestHandler, _asked: Any) -> tuple[int, bytes]:
        time.sleep(0.15)
        return 200, b"1"

    with server(slow) as url:
        assert http.ask(url, timeout=2.0).status == 200
        told = http.ask(url, timeout=0.05)
    assert told == Http(0, error=f"connected to {url}, no answer in 0 s")


def test_a_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert http.ask(f"http://127.0.0.1:{port}").error == f"http://127.0.0.1:{port} refused the connection"


def test_a_connection_that_is_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def cut() -> None:
            listening.accept()[0].close()

        thread = threading.Thread(target=cut)
        thread.start()
        told = http.ask(url)
        thread.join()
    assert told.status == 0
    assert told.error.startswith(f"{url}: ")


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listen queue that is full swallows the connection, as a filter that drops packets does."""
    monkeypatch.setattr(http, "CONNECT_SECONDS", 0.1)
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        started = time.monotonic()
        assert http.ask(url, timeout=20.0).error == f"no connection to {url} in 0 s"
        assert time.monotonic() - started < 5.0
