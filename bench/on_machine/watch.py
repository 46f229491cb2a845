"""When does an engine itself generate? Asked every 20 ms on the machine: python3 watch.py UNIT=PORT...; one JSON line for each change.

Only a process that does not serve is asked to generate: once it has, a connection to its port says that it is still there, so that
an idle engine is left idle. `own`: seconds from the start of the main process, as systemd has it, to its first token.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from typing import Any

PERIOD = 0.02
LOCAL = json.dumps(
    {"text": "1 + 1 =", "sampling_params": {"max_new_tokens": 1, "temperature": 0}, "bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
)
"""SGLang's own warm-up address: an engine serves it without its peer (sglang-facts 2.3)."""


def generates(port: int) -> bool:
    """Whether one token came back."""
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        asked.request("POST", "/generate", LOCAL, {"Content-Type": "application/json"})
        answer = asked.getresponse()
        body: Any = json.loads(answer.read())
        return answer.status == 200 and int(body["meta_info"]["completion_tokens"]) >= 1
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return False
    finally:
        asked.close()


def is_there(port: int) -> bool:
    """Whether something listens."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def started(unit: str) -> float:
    """When the main process of a unit started, on the monotonic clock, in seconds."""
    shown = subprocess.run(["systemctl", "show", "-P", "ExecMainStartTimestampMonotonic", unit], capture_output=True, text=True, check=True)
    return int(shown.stdout) / 1e6


def watch(unit: str, port: int) -> None:
    """For ever."""
    serves = False
    while True:
        now = is_there(port) if serves else generates(port)
        at, monotonic = time.time(), time.monotonic()
        if now != serves:
            serves = now
            own = round(monotonic - started(unit), 3) if now else None
            sys.stdout.write(json.dumps({"unit": unit, "serves": now, "at": round(at, 3), "own": own}) + "\n")
            sys.stdout.flush()
        time.sleep(PERIOD)


for name in sys.argv[1:]:
    threading.Thread(target=watch, args=(name.partition("=")[0], int(name.partition("=")[2]))).start()
