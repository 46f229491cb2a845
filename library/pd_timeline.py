#!/usr/bin/python
"""What one run of a co-restart did and when, read on the node; its action plugin draws it on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_timeline
short_description: Draw what a co-restart did and when, beside the earlier runs of its kind
description:
  - Reads the ledger of the node, what the engines' journals say of their starts, and the load after the run.
  - The picture C(timeline.html) in O(folder) on the controller and the lines that are printed are drawn from that, and from nothing else.
  - It never fails a run. What keeps it from drawing is said in a warning.
options:
  run:
    description: The id of the run.
    type: str
    required: true
  folder:
    description: Where to leave the picture, on the controller; made if need be.
    type: path
    required: true
  forecast:
    description: The outage that the plan expected, in seconds.
    type: float
  load:
    description: The load that the plan read, as RV(ignore:load) of M(pd_plan).
    type: dict
attributes:
  check_mode:
    support: full
    description: Draws nothing, for nothing was done.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Draw what happened
  pd_timeline:
    run: "{{ pd_todo.run }}"
    folder: "{{ pd_todo.folder }}"
    forecast: "{{ pd_todo.expected_outage }}"
"""

RETURN = r"""
entries:
  description: The ledger's entries of this run and of the last runs with the same steps.
  returned: always
  type: list
  elements: dict
phases:
  description: When each started process first spoke of a phase of its start.
  returned: always
  type: list
  elements: dict
  sample: [{"instance": "decode0", "invocation": "0f3c", "ts": "2026-11-30T19:38:01.250+00:00", "phase": "warm-up done"}]
after:
  description: The load after the run, with when it was read; empty where it could not be.
  returned: always
  type: dict
path:
  description: The picture on the controller.
  returned: outside check mode, when something was done and could be drawn
  type: str
"""

import json  # noqa: E402  the documentation comes first
import subprocess  # noqa: E402  the documentation comes first
import time  # noqa: E402  the documentation comes first
from collections.abc import Iterator  # noqa: E402  the documentation comes first
from contextlib import suppress  # noqa: E402  the documentation comes first
from datetime import UTC, datetime  # noqa: E402  the documentation comes first
from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import ledger, node, ops, phases, stamped, timeline, timeline_run, truth  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {
    "run": {"type": "str", "required": True},
    "folder": {"type": "path", "required": True},
    "forecast": {"type": "float"},
    "load": {"type": "dict"},
}
JOURNAL = ("journalctl", "--no-pager", "--output=json", "--output-fields=MESSAGE")
LINES, SECONDS = 20000, 5.0
"""A start's journal is read until the engine says that it is ready; these bound one that never says so."""


def spoken(instance: str, invocation: str) -> Iterator[dict[str, str]]:
    """When one start first spoke of each phase. A journal that cannot be read gives none."""
    deadline = time.monotonic() + SECONDS
    argv = [*JOURNAL, f"_SYSTEMD_INVOCATION_ID={invocation}"]
    seen = {phases.phase([])}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace") as journal:
        for number, line in enumerate(journal.stdout or ()):
            told = json.loads(line)
            found = phases.phase([str(told.get("MESSAGE"))])
            if found not in seen:
                seen.add(found)
                at = datetime.fromtimestamp(int(told["__REALTIME_TIMESTAMP"]) / 1e6, UTC)
                yield {"instance": instance, "invocation": invocation, "ts": at.isoformat(timespec="milliseconds"), "phase": found}
            if found == timeline_run.SAID_READY or number > LINES or time.monotonic() > deadline:
                break
        journal.kill()


def load_after() -> dict[str, Any]:
    """The load now, stamped as a ledger entry is; nothing where nobody can be asked."""
    current = node.current_id()
    with suppress(OSError, RuntimeError, ValueError, node.NoGenerationError):
        if current is not None:
            return {**stamped.now(), "load": truth.load_now(current)}
    return {}


def main() -> None:
    """Observe, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        ops.ensure()
        chosen = timeline.relevant(ledger.read(), module.params["run"])
        starts = [e for e in chosen if e["event"] == "start" and e.get("run") == module.params["run"] and e.get("invocation")]
        said = [one for start in starts for one in spoken(start["instance"], start["invocation"])]
    except (OSError, RuntimeError, ValueError, LookupError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, entries=chosen, phases=said, after=load_after())


if __name__ == "__main__":
    main()
