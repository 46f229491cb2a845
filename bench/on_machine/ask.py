"""A client that asks through the router every 100 ms, each request on a connection and a thread of its own: python3 ask.py PORT.

One JSON line an answer: when it was sent and when it ended (wall clock, seconds), and what was wrong with it, if anything was.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from typing import Any

PERIOD, TIMEOUT = 0.1, 30.0
BODY = json.dumps({"model": "any", "messages": [{"role": "user", "content": "1 + 1 ="}], "max_tokens": 1, "temperature": 0})
SAYING = threading.Lock()


def ask(port: int) -> str:
    """What was wrong, or nothing: an answer is right when it has a token and no error for its end."""
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        asked.request("POST", "/v1/chat/completions", BODY, {"Content-Type": "application/json"})
        answer = asked.getresponse()
        body: Any = json.loads(answer.read())
        if answer.status != 200:
            return f"HTTP {answer.status}"
        if int(body["usage"]["completion_tokens"]) < 1 or body["choices"][0]["finish_reason"] == "error":
            return "200 without a token"
    except (OSError, ValueError, KeyError, TypeError, IndexError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        asked.close()
    return ""


def one(port: int) -> None:
    """Ask once, say how it went."""
    sent = time.time()
    wrong = ask(port)
    with SAYING:
        sys.stdout.write(json.dumps({"sent": round(sent, 3), "ended": round(time.time(), 3), "wrong": wrong}) + "\n")
        sys.stdout.flush()


due = time.monotonic()
while True:
    threading.Thread(target=one, args=(int(sys.argv[1]),), daemon=True).start()
    due += PERIOD
    time.sleep(max(0.0, due - time.monotonic()))
