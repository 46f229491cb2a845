"""Clients of the router while something happens to the pair: started on the machine, counted at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.support.pairs import ROUTER, Pair

CLIENTS = f"""
import json, pathlib, sys, threading, urllib.request
count, tokens = int(sys.argv[1]), int(sys.argv[2])
ended = []
def client(number):
    text = "repeat: " + " ".join(f"w{{number}}x{{n}}" for n in range(tokens))
    asked = {{"model": "any", "messages": [{{"role": "user", "content": text}}], "max_tokens": tokens, "stream": True, "ignore_eos": True}}
    request = urllib.request.Request("{ROUTER}/v1/chat/completions", json.dumps(asked).encode(), {{"Content-Type": "application/json"}})
    try:
        body = urllib.request.urlopen(request, timeout=120).read()
        ended.append("answered" if body.rstrip().endswith(b"[DONE]") else "cut")
    except Exception as error:
        ended.append(type(error).__name__)
threads = [threading.Thread(target=client, args=(number,)) for number in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
pathlib.Path("/run/clients.json").write_text(json.dumps({{one: ended.count(one) for one in set(ended)}}))
"""
WAIT_FOR = """
import json, sys, time, urllib.request
while True:
    load = json.load(urllib.request.urlopen("http://127.0.0.1:30001/v1/loads?include=all", timeout=5))["loads"][0]
    if load["num_running_reqs"] >= int(sys.argv[1]):
        break
    time.sleep(0.05)
"""


def start(pair: Pair, count: int, tokens: int) -> None:
    """That many streams begin, and all of them run in decode before this returns."""
    pair.machine.exec("cat > /run/clients.py", stdin=CLIENTS)
    pair.machine.exec(["systemd-run", "-q", "--unit", "clients", "python3", "/run/clients.py", str(count), str(tokens)])
    pair.machine.exec(["python3", "-c", WAIT_FOR, str(count)], timeout=30)


def ended(pair: Pair) -> Mapping[str, int]:
    """How the streams ended, by kind: `answered` to the last [DONE], or something else."""
    pair.machine.exec("while systemctl is-active -q clients; do sleep 0.1; done", timeout=60)
    found: dict[str, int] = json.loads(pair.machine.exec("cat /run/clients.json").stdout)
    return found
