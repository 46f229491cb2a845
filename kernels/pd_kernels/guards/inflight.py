"""How long a request has been in a queue where it waits for the peer, and what happens to one that was there too long."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)
REASON = "pd_kernels guards, PD_INFLIGHT_TIMEOUT"


def overdue(seen: Mapping[Key, float], here: Iterable[Key], now: float, limit: float) -> tuple[dict[Key, float], list[Key]]:
    """Who is in the queue since when, and who of them for `limit` seconds or more. Pure.

    `seen` is what the last look returned; who has left is forgotten, so one that comes back starts anew.
    """
    since = {one: seen.get(one, now) for one in here}
    return since, [one for one, start in since.items() if now - start >= limit]


@dataclass
class Queue:
    """One queue of a scheduler, looked at once a pass of its loop. `limit` in seconds."""

    name: str
    limit: float
    _since: dict[tuple[Any, Any], float] = field(default_factory=dict)
    _ended: set[tuple[Any, Any]] = field(default_factory=set)

    def look(self, entries: Iterable[tuple[Any, Any]], now: float) -> list[Any]:
        """`entries` are (request, its sender or receiver); returns the requests that were ended now.

        Each is ended once: it may stay for some passes until every rank agrees, or until retracted requests have their turn.
        """
        ends = {(request.rid, request.bootstrap_room): (request, end) for request, end in entries}
        if not ends:
            self._since, self._ended = {}, set()
            return []
        self._since, late = overdue(self._since, ends, now, self.limit)
        self._ended &= ends.keys()
        ended = [key for key in late if key not in self._ended]
        for key in ended:
            self._ended.add(key)
            fail(ends[key][1], f"no answer from its peer for {self.limit:g} s in the {self.name} queue ({REASON})")
        return [ends[key][0] for key in ended]


def fail(end: Any, reason: str) -> None:
    """Let SGLang's own next poll of a sender or receiver find it failed: the client gets the error, KV and buffers are freed.

    A failed room stays failed: SGLang 0.5.23's update_status lets nothing follow `Failed` (tested on the wheel), and the abort
    is remembered in the sender or receiver itself. A receiver also tells its prefill, and keeps its pages until that has let go.
    """
    end.abort()
    # abort() says "AbortReq", which it was not; the fake sender of a warm-up has no room, and a record of it would stay for ever
    if end.bootstrap_room in end.kv_mgr.request_status:
        end.kv_mgr.record_failure(end.bootstrap_room, reason)
