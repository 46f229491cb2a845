"""The guards: the clock of a queue, what is done to a request that is late, and threads that must not end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang.srt.disaggregation.base.conn import KVPoll
from sglang.srt.disaggregation.common.conn import CommonKVManager, CommonKVReceiver, CommonKVSender, KVTransferError

from pd_kernels.guards import NEEDS, inflight, threads
from pd_kernels.guards.hooks import DECODE, PREFILL, THREADS, decides
from pd_kernels.plugin import resolved


@given(st.lists(st.tuples(st.floats(0, 50), st.sets(st.integers(0, 5))), max_size=12), st.floats(1, 60))
def test_late_is_who_was_in_every_look_for_the_limit(looks: list[tuple[float, set[int]]], limit: float) -> None:
    """Against the definition: the longest run of looks, up to this one, in which the request was there."""
    now, seen = 0.0, dict[int, float]()
    history: list[tuple[float, set[int]]] = []
    for step, here in looks:
        now += step
        history.append((now, here))
        seen, late = inflight.overdue(seen, here, now, limit)
        assert set(seen) == here
        for one in here:
            start = next((when for when, present in _run(history, one)), now)
            assert (one in late) == (now - start >= limit)


def _run(history: list[tuple[float, set[int]]], one: int) -> Iterable[tuple[float, set[int]]]:
    """The looks since it was absent last."""
    run: list[tuple[float, set[int]]] = []
    for when, present in history:
        run = [*run, (when, present)] if one in present else []
    return run


class Manager:
    """What a CommonKVManager keeps of rooms, with SGLang's own code on it."""

    deferred_bootstrap = None
    defer_decode_allocation = False
    bootstrap_timeout = waiting_timeout = 300
    reports_transfer_latency = False
    enable_deferred_decode_kv_release = False
    update_status = CommonKVManager.update_status
    record_failure = CommonKVManager.record_failure
    check_status = CommonKVManager.check_status

    def __init__(self) -> None:
        self.request_status: dict[int, int] = {}
        self.failure_records: dict[int, str] = {}
        self.failure_lock = threading.Lock()
        self._deferred_ack_targets: dict[int, object] = {}
        self._deferred_ack_poisoned_rooms: set[int] = set()
        self._staging_outstanding: dict[int, int] = {}


ROOM = 7


def sender(status: int) -> tuple[Any, Manager]:
    """A sender of SGLang's own in this state, without its sockets."""
    manager = Manager()
    manager.request_status[ROOM] = status
    made = object.__new__(CommonKVSender)
    vars(made).update(kv_mgr=manager, bootstrap_room=ROOM, conclude_state=None, init_time=None, _owns_bootstrap_room=True)
    made.trace_ctx = types.SimpleNamespace(abort=lambda **_: None, trace_req_finish=lambda: None)
    return made, manager


def receiver(status: int) -> tuple[Any, Manager]:
    manager = Manager()
    manager.request_status[ROOM] = status
    made = object.__new__(CommonKVReceiver)
    vars(made).update(kv_mgr=manager, bootstrap_room=ROOM, conclude_state=None, init_time=None, abort_notified=False, bootstrap_infos=None)
    return made, manager


def request(rid: str = "a", room: int = ROOM) -> Any:
    return types.SimpleNamespace(rid=rid, bootstrap_room=room)


@pytest.mark.parametrize("make", [sender, receiver])
@pytest.mark.parametrize("status", [KVPoll.Bootstrapping, KVPoll.WaitingForInput, KVPoll.Transferring])
def test_a_late_request_fails_at_sglangs_own_next_poll(make: Any, status: int) -> None:
    end, manager = make(status)
    queue = inflight.Queue("prefill bootstrap", 10.0)
    asked = request()
    assert queue.look([(asked, end)], 100.0) == [] and queue.look([(asked, end)], 109.9) == []
    assert end.poll() == status, "untouched until then"
    assert queue.look([(asked, end)], 110.0) == [asked]
    assert end.poll() == KVPoll.Failed
    with pytest.raises(KVTransferError, match=r"no answer from its peer for 10 s in the prefill bootstrap queue \(pd_kernels guards"):
        _with_reason(end, manager).failure_exception()


def _with_reason(end: Any, manager: Manager) -> Any:
    end.clear = lambda: None
    assert manager.failure_records
    return end


def test_it_is_ended_once_and_counted_once() -> None:
    """It may stay in the queue for some passes, as while retracted requests come first."""
    end, _ = sender(KVPoll.Bootstrapping)
    queue, asked = inflight.Queue("decode prealloc", 10.0), request()
    assert [len(queue.look([(asked, end)], now)) for now in (0.0, 11.0, 12.0, 30.0)] == [0, 1, 0, 0]
    assert queue.look([], 31.0) == []
    other, _ = sender(KVPoll.Bootstrapping)
    assert [len(queue.look([(asked, other)], now)) for now in (40.0, 49.0, 50.0)] == [0, 0, 1], "a room that comes again starts anew"


def test_only_the_late_one_is_ended() -> None:
    old, new = sender(KVPoll.Transferring), sender(KVPoll.Transferring)
    queue = inflight.Queue("prefill in-flight", 10.0)
    first, second = request("a", 1), request("b", 2)
    queue.look([(first, old[0])], 0.0)
    queue.look([(first, old[0]), (second, new[0])], 5.0)
    assert queue.look([(first, old[0]), (second, new[0])], 10.0) == [first]
    assert new[0].poll() == KVPoll.Transferring


def test_a_warm_ups_fake_leaves_no_record() -> None:
    """It has no room with the manager, so nobody would ever take the record out again."""
    manager = Manager()
    fake = types.SimpleNamespace(kv_mgr=manager, bootstrap_room=0, abort=lambda: None)
    inflight.fail(fake, "why")
    assert manager.failure_records == {}


TERMINAL = [
    (KVPoll.Failed, KVPoll.WaitingForInput, KVPoll.Failed),
    (KVPoll.Failed, KVPoll.Transferring, KVPoll.Failed),
    (KVPoll.Failed, KVPoll.Success, KVPoll.Failed),
    (KVPoll.Success, KVPoll.Transferring, KVPoll.Success),
    (KVPoll.Success, KVPoll.WaitingForInput, KVPoll.Success),
    (KVPoll.Transferring, KVPoll.WaitingForInput, KVPoll.Transferring),
    (None, KVPoll.Success, None),
    (None, KVPoll.Transferring, None),
    (None, KVPoll.Failed, None),
]


@pytest.mark.parametrize(("was", "comes", "stays"), TERMINAL)
def test_a_terminal_status_is_sticky_in_this_sglang(was: int | None, comes: int, stays: int | None) -> None:
    """0.5.23 keeps it by itself, so the guards do not; a wheel that loses it turns this red."""
    manager = Manager()
    if was is not None:
        manager.request_status[ROOM] = was
    manager.update_status(ROOM, comes)
    assert manager.request_status.get(ROOM) == stays


def test_an_aborted_room_is_not_revived_by_a_late_success() -> None:
    end, manager = sender(KVPoll.Transferring)
    inflight.fail(end, "why")
    manager.update_status(ROOM, KVPoll.Success)
    assert end.poll() == KVPoll.Failed


def test_every_place_is_there_in_this_sglang() -> None:
    for name in (PREFILL, DECODE, *THREADS, *NEEDS):
        assert callable(resolved(name, "guards"))


@pytest.mark.parametrize(("tp", "cp", "one"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_one_rank_of_a_group_decides(tp: int, cp: int, one: bool) -> None:
    assert decides(types.SimpleNamespace(attn_tp_rank=tp, attn_cp_rank=cp)) is one


def test_the_end_of_a_watched_thread_is_told() -> None:
    told, go = [], threading.Event()
    heard = threading.Event()

    def starts(name: str) -> str:
        threading.Thread(target=go.wait, name=name).start()
        return "started"

    def end(why: str) -> None:
        told.append(why)
        heard.set()

    assert threads.watched(end)(starts, "bootstrap") == "started"
    assert not heard.wait(0.05)
    go.set()
    assert heard.wait(5) and "the thread bootstrap has ended" in told[0]


PARENT = """
import signal, subprocess, sys
heard = []
signal.signal(signal.SIGQUIT, lambda *_: heard.append("SIGQUIT"))
child = [sys.executable, "-c", "from pd_kernels.guards.threads import end_engine; end_engine('gone')"]
done = subprocess.run(child, stderr=subprocess.PIPE, text=True)
print(done.returncode, heard, done.stderr.strip())
"""


def test_the_engine_is_ended_as_sglang_ends_it() -> None:
    """SIGQUIT to the parent, one line for the journal, and an end of its own whatever its other threads do."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, env=environ, check=False)
    assert done.stdout == "1 ['SIGQUIT'] pd_kernels: guards: gone. The engine ends itself.\n", done.stderr
