"""What the truth table rests on is read in an order that matters: load first, requests through the router, then the rest."""

from __future__ import annotations

from typing import Any

import pytest
from pd import climb, http, node, observe, serving, truth
from pd.gates import Http
from pd.gates_serving import Serving
from pd.node import Placed

from tests.unit.test_gates import GEN, UNIT
from tests.unit.test_gates_serving import GOOD
from tests.unit.test_truth_table import WEDGED


def placed(name: str, role: str, **env: str) -> Placed:
    return Placed(name, role, f"{name}.service", f"http://{name}", 8998, f"http://{name}:29000", env, {}, GEN)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that is asked of the set, in order."""
    asked: list[str] = []
    members = (placed("prefill0", "prefill", A="1"), placed("decode0", "decode", B="2", HF_TOKEN="x"), placed("router0", "router"))

    def ask(url: str, *_args: Any, **_named: Any) -> Http:
        asked.append(url.removeprefix("http://").partition("?")[0])
        return Http(200, {"loads": [{"num_running_reqs": 1 if "prefill0" in url else 2}]})

    def ranks(_pids: tuple[int, ...], names: set[str]) -> tuple[Any, ...]:
        asked.append(f"ranks {','.join(sorted(names))}")
        return ()

    monkeypatch.setattr(http, "ask", ask)
    monkeypatch.setattr(node, "everyone", lambda _generation: members)
    monkeypatch.setattr(node, "api_key", lambda _generation, _name: None)
    monkeypatch.setattr(observe, "unit", lambda _name: UNIT)
    monkeypatch.setattr(observe, "cgroup_pids", lambda _group: ())
    monkeypatch.setattr(observe, "ranks", ranks)
    monkeypatch.setattr(climb, "listening_answers", lambda _member: (Http(200), None))
    return asked


def served(monkeypatch: pytest.MonkeyPatch, asked: list[str], seen: Serving) -> truth.Everything:
    def look(*_args: Any) -> Serving:
        asked.append("through the router")
        return seen

    monkeypatch.setattr(serving, "look", look)
    return truth.look(GEN, 5.0)


def test_load_is_read_before_anything_is_asked_of_the_set(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    found = served(monkeypatch, asked, GOOD)
    assert sorted(asked[:2]) == ["decode0/v1/loads", "prefill0/v1/loads"]
    assert asked[2] == "through the router"
    assert [seen.load for seen in found.instances] == [{"running": 1}, {"running": 2}, {}]


def test_where_real_tokens_moved_no_synthetic_probe_is_made(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    found = served(monkeypatch, asked, GOOD)
    assert not [url for url in asked if url.endswith("/generate")]
    assert [seen.local for seen in found.instances] == [None, None, None]


def test_where_none_moved_each_engine_is_asked_by_itself(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    """So that the guilty hop is known: engines that generate alone leave the wire and the router."""
    served(monkeypatch, asked, WEDGED)
    assert sorted(url for url in asked if url.endswith("/generate")) == ["decode0/generate", "prefill0/generate"]


def test_every_process_is_read_for_every_name_but_secrets(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    """Also for the other role's: absence is proven too."""
    served(monkeypatch, asked, GOOD)
    assert [one for one in asked if one.startswith("ranks")] == ["ranks A,B"] * 3
