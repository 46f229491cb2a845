"""HTTP on the node. Proxy variables are ignored: a loopback probe through a proxy gets a stranger's answer (field report 059)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .gates import Http

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS = 1.0


def client(timeout: float, key: str | None = None) -> httpx.Client:
    """A client with a short connect timeout apart from the answer's (field report 028), and the api key where one is set."""
    import httpx  # noqa: PLC0415  a bare host runs these modules under a python without it

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = httpx.Timeout(timeout, connect=CONNECT_SECONDS)
    # every url is plain http; reading the CA bundle for none of them took 57 ms of a core, several times in each look
    return httpx.Client(timeout=limits, trust_env=False, headers=headers, verify=False)


def ask(url: str, body: Mapping[str, Any] | None = None, timeout: float = 5.0, key: str | None = None) -> Http:
    """GET, or POST when there is a body. Never raises for what the other side does: the error is the observation."""
    import httpx  # noqa: PLC0415  as above

    try:
        with client(timeout, key) as http:
            got = http.get(url) if body is None else http.post(url, json=dict(body))
    except httpx.ConnectTimeout:
        return Http(0, error=f"no connection to {url} in {CONNECT_SECONDS:.0f} s")
    except httpx.TimeoutException:
        return Http(0, error=f"connected to {url}, no answer in {timeout:.0f} s")
    except httpx.ConnectError:
        return Http(0, error=f"{url} refused the connection")
    except httpx.HTTPError as error:
        return Http(0, error=f"{url}: {type(error).__name__}: {error}")
    return Http(got.status_code, _body(got.text))


def _body(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
