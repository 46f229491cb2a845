"""What the tests of the plugin share: SGLang's own hook registry, a module of somebody else's to put hooks into, a scheduler's process."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from sglang.srt.plugins.hook_registry import HookRegistry

from pd_kernels import plugin


@dataclass
class State:
    """In the place of SGLang's GetInternalStateReqOutput."""

    internal_state: dict[str, Any] = field(default_factory=dict)


class Controller:
    """In the place of SchedulerInternalStateController."""

    def get_internal_state(self, _request: object) -> State:
        return State({"startup_time": 1.0})


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module `somebody` with a function, a class, and the internal state; and a process that looks like a scheduler's."""

    def double(number: int) -> int:
        return 2 * number

    module = types.ModuleType("somebody")
    state = type("Controller", (Controller,), {"get_internal_state": Controller.get_internal_state})
    vars(module).update(double=double, NUMBER=1, Controller=state)
    monkeypatch.setitem(sys.modules, "somebody", module)
    monkeypatch.setitem(sys.modules, plugin.SCHEDULER, types.ModuleType(plugin.SCHEDULER))
    monkeypatch.setattr(plugin, "STATE", "somebody.Controller.get_internal_state")
    apply = vars(HookRegistry)["apply_hooks"]
    HookRegistry.reset()
    yield module
    HookRegistry.reset()
    HookRegistry.apply_hooks = apply
