"""What the tests of the engine double share: its session's engines, requests to them, and a look at their processes."""

import concurrent.futures
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.doubles import Double

LOCAL = {"bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
"""What makes an engine serve a request without its peer."""
KEY = "s3cret-api-key"
ADMIN = {"Authorization": "Bearer s3cret-admin"}
FAST_HEALTH = {"health_poll_s": 0.05, "health_timeout_s": 0.3}


@dataclass
class Doubles:
    """The session's engines: a healthy pair, and one held in each state."""

    prefill: Double
    decode: Double
    loading: Double
    warming: Double
    wide: Double


def chat(content: str, **more: Any) -> dict[str, Any]:
    return {"model": "double", "messages": [{"role": "user", "content": content}], **more}


def events(response: httpx.Response) -> list[Any]:
    """The data of a server-sent stream, `[DONE]` as a string."""
    datas = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]


def both(engines: Doubles, room: int, body: dict[str, Any]) -> tuple[httpx.Response, httpx.Response]:
    """What the router does: one request to both engines, with the prefill's bootstrap address and one room."""
    body = {
        **body,
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": engines.prefill.bootstrap_port,
        "bootstrap_room": room,
    }
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        legs = [
            pool.submit(e.client.post, "/v1/chat/completions", json=body) for e in (engines.prefill, engines.decode)
        ]
        return legs[0].result(), legs[1].result()


def idle(engine: Double) -> bool:
    return bool(engine.loads()["num_used_tokens"] == 0)


def children(engine: Double) -> dict[str, int]:
    """Process title -> pid of the engine's children."""
    pids = Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split()
    return {Path(f"/proc/{p}/cmdline").read_text().rstrip("\0").split("\0")[0]: int(p) for p in pids}


def alive(pid: int) -> bool:
    """Neither gone nor a zombie that its new parent has not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
