"""The toggle of the kernels: what may be asked for, and what proves that every process has it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pd import gates, inventory, kernels, observe
from pd.observe import Rank

from tests.unit.specs import spec

GEN = "0f3c5a9be210"
BOTH = {"PD_KERNELS": "guards,sparse_decode"}
IN: dict[str, Any] = {"guards": {"hooks": {"a": True, "b": True}}, "sparse_decode": {"hooks": {"c": True}}}
NAMED: dict[str, Any] = {"guards": {"hooks": {}}, "sparse_decode": {"hooks": {}}}
PYTHON = "/opt/sglang-pd/releases/0123456789/engine/bin/python"


def rank(pid: int, title: str, told: Mapping[str, Any] | None) -> Rank:
    return Rank(pid, title, GEN, BOTH, told)


MAIN = rank(1, f"{PYTHON} -m sglang.launch_server --config", NAMED)
TP0, TP1 = rank(2, "sglang::scheduler_TP0", IN), rank(3, "sglang::scheduler_TP1", IN)
DETOKENIZER = rank(4, "sglang::detokenizer", NAMED)
TRACKER = rank(5, f"{PYTHON} -c from multiprocessing.resource_tracker import main;main(7)", None)
COMPILER = rank(6, "/opt/sglang-pd/releases/0123456789/engine/bin/ptxas -v", None)
ALL = (MAIN, TP0, TP1, DETOKENIZER, TRACKER, COMPILER)


@pytest.mark.parametrize(
    ("ranks", "told", "why"),
    [
        pytest.param(ALL, BOTH, "", id="every process has every kernel; helpers need none"),
        pytest.param(ALL, {}, "", id="none wanted"),
        pytest.param([replace(r, kernels=None) for r in ALL], {"PD_KERNELS": ""}, "", id="an empty list"),
        pytest.param([MAIN, TP0, replace(TP1, kernels=None)], BOTH, "process 3 (sglang::scheduler_TP1) reports no kernels", id="one rank silent"),
        pytest.param([replace(MAIN, kernels=None), TP0], BOTH, "reports no kernels: the plugin pd_kernels was not loaded there", id="main silent"),
        pytest.param([MAIN, TP0, replace(DETOKENIZER, kernels={})], BOTH, "(sglang::detokenizer) lacks guards", id="an empty report"),
        pytest.param([MAIN, replace(TP0, kernels={"guards": IN["guards"]})], BOTH, "lacks sparse_decode", id="one of two"),
        pytest.param([MAIN, replace(TP0, kernels=NAMED)], BOTH, "TP0) has not put in guards", id="a scheduler without a hook"),
        pytest.param([MAIN, replace(TP0, kernels=IN | {"guards": {"hooks": {"a": True, "b": False}}})], BOTH, "not put in guards", id="a hook off"),
        pytest.param([MAIN, replace(TP0, kernels=IN | {"guards": {"hooks": {"a": 1}}})], BOTH, "not put in guards", id="a hook that is not True"),
        pytest.param([MAIN, replace(TP0, kernels=IN | {"guards": "yes"})], BOTH, "lacks guards", id="a report of another shape"),
        pytest.param([MAIN, DETOKENIZER], BOTH, "no scheduler can be seen, so guards, sparse_decode are not proven", id="no scheduler"),
        pytest.param([TRACKER], BOTH, "no scheduler can be seen", id="only helpers"),
    ],
)
def test_every_process_is_proven(ranks: list[Rank], told: dict[str, str], why: str) -> None:
    found = kernels.against(ranks, told)
    assert why in found and bool(why) == bool(found)


@pytest.mark.parametrize("lacking", range(4))
def test_a_gate_is_never_ready_while_one_process_lacks_a_kernel(lacking: int) -> None:
    """Rung 3, with everything else as it should be."""
    fresh = gates.Http(200, {"loads": [{"timestamp": 99.0}]})
    token = gates.Http(200, {"meta_info": {"completion_tokens": 1}})
    ready = gates.working(token, ALL, GEN, BOTH, loads=fresh, now=100.0)
    assert (ready.state, ready.why) == ("READY", f"generated 1 token(s), 6 processes carry {GEN} with guards, sparse_decode")
    ranks = [replace(r, kernels=None) if i == lacking else r for i, r in enumerate(ALL)]
    verdict = gates.working(token, ranks, GEN, BOTH, loads=fresh, now=100.0)
    assert (verdict.state, verdict.rung) == ("DEAD", "working") and "reports no kernels" in verdict.why


KERNELS_IN = {"node0": {"runtime_packages": ["kernels"], "runtime_nvcc_lock": "nvcc.lock"}}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "misspelt": ({"engine_kernels": ["gaurds"]}, KERNELS_IN, "gaurds: there is no such kernel", "guards"),
    "nothing near": ({"engine_kernels": ["x"]}, KERNELS_IN, "x: there is no such kernel", "one of guards, index_bf16, sparse_decode"),
    "twice": ({"engine_kernels": ["guards", "guards"]}, KERNELS_IN, "guards twice", "guards once"),
    "no list": ({"engine_kernels": "guards"}, KERNELS_IN, "guards", "a list of names, such as [guards], or []"),
    "a release without them": ({"engine_kernels": ["guards"]}, {"node0": {"runtime_packages": []}}, "made without the package kernels", "nodes.yml"),
    "on a CPU": ({"engine_kernels": ["sparse_decode"], "engine_device": "cpu"}, KERNELS_IN, "sparse_decode on cpu", "without it"),
    "guards of a pipeline": (
        {"engine_kernels": ["guards"], "engine_args": {"pp-size": 2}, "engine_gpus": [0, 1, 2, 3, 4, 5, 6, 7]},
        KERNELS_IN,
        "guards with pp-size 2",
        "or pp-size 1",
    ),
    "a knob": ({"engine_kernels": ["guards"], "engine_env": {"PD_INFLIGHT_TIMEOUT": "1m"}}, KERNELS_IN, "'1m' (guards would", "whole seconds"),
    "another": (
        {"engine_kernels": ["sparse_decode"], "engine_env": {"SGLANG_SM120_MMA_TARGET_CTAS": "banana"}},
        KERNELS_IN,
        "'banana' (sparse_decode would refuse to start)",
        "0 for the device's own",
    ),
    "one side only": ({"engine_kernels": ["index_bf16"]}, KERNELS_IN, "index_bf16 here and not in prefill0", "of both roles, or of none"),
}


@pytest.mark.parametrize(("changes", "nodes", "found", "fix"), REFUSED.values(), ids=REFUSED.keys())
def test_what_the_engine_would_refuse_is_refused_before_a_stop(changes: dict[str, Any], nodes: dict[str, Any], found: str, fix: str) -> None:
    asked = replace(spec(decode0=changes), nodes=nodes)
    problems = list(kernels.problems(asked))
    assert len(problems) == 1 and found in problems[0].found and fix in problems[0].fix
    assert "decode" in problems[0].where
    assert set(problems) <= set(inventory.check(asked)), "and the inventory's check names it"


@pytest.mark.parametrize("changes", [{}, {"engine_kernels": []}, {"engine_kernels": None}, {"engine_kernels": ["sparse_decode", "guards"]}])
def test_what_is_fit(changes: dict[str, Any]) -> None:
    assert list(kernels.problems(replace(spec(decode0=changes), nodes=KERNELS_IN))) == []


def test_a_knob_of_a_kernel_that_is_not_wanted_is_not_judged() -> None:
    asked = spec(decode0={"engine_env": {"SGLANG_SM120_MMA_TARGET_CTAS": "banana"}})
    assert list(kernels.problems(asked)) == []


@pytest.mark.parametrize("name", ["PD_KERNELS", "PD_KERNELS_REPORT"])
def test_the_toggle_has_one_place(name: str) -> None:
    problems = inventory.check(spec(decode0={"engine_env": {name: "guards"}}))
    assert [(p.key, p.fix) for p in problems if p.key.endswith(name)] == [(f"engine_env.{name}", "engine_kernels")]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plugin's own registry: it is plain Python until a kernel is put in."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "kernels"))
    return importlib.import_module("pd_kernels.registry")


def test_the_names_are_those_of_the_plugin(registry: Any) -> None:
    assert sorted(registry.KERNELS) == sorted(kernels.NAMES)
    assert sorted(name for name, kernel in registry.KERNELS.items() if kernel.architectures) == sorted(kernels.GPU_KERNELS)
    for name, kernel in registry.KERNELS.items():
        assert sorted(kernel.knobs) == sorted(kernels.KNOBS.get(name, {}))


@pytest.mark.parametrize(("kernel", "knob"), [("guards", "PD_INFLIGHT_TIMEOUT"), ("sparse_decode", "SGLANG_SM120_MMA_MAX_ROWS")])
def test_before_a_stop_and_in_the_engine_a_knob_is_judged_alike(kernel: str, knob: str, registry: Any) -> None:
    allowed, _ = kernels.KNOBS[kernel][knob]
    parse = registry.KERNELS[kernel].knobs[knob]

    @given(st.text(max_size=6) | st.integers(-10, 90000).map(str) | st.floats().map(str))
    @example("")
    @example("٣")
    @example("²")
    @example("86400")
    @example("86401")
    def alike(text: str) -> None:
        try:
            parse(text)
        except ValueError:
            assert not allowed(text)
        else:
            assert allowed(text)

    alike()


OWN = {"start": "77", "kernels": {"guards": {}}}


@pytest.mark.parametrize(
    ("report", "seen"),
    [
        ('{"start": "77", "kernels": {"guards": {}}}', {"guards": {}}),
        ('{"start": "76", "kernels": {"guards": {}}}', None),
        ('{"kernels": {"guards": {}}}', None),
        ('{"start": "77", "kernels": []}', None),
        ("[]", None),
        ('{"start": "77", "ker', None),
        (None, None),
    ],
    ids=["its own", "an earlier process with its pid", "no start time", "another shape", "no mapping", "cut off", "none"],
)
def test_a_report_belongs_to_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str | None, seen: object) -> None:
    (tmp_path / "proc" / "42").mkdir(parents=True)
    fields = " ".join(["S", *map(str, range(18)), "77", "0"])
    (tmp_path / "proc" / "42" / "stat").write_text(f"42 (a (b) c) {fields}")
    monkeypatch.setattr(observe, "PROC", tmp_path / "proc")
    if report is not None:
        (tmp_path / "42.json").write_text(report)
    assert observe.kernels_of(42, str(tmp_path)) == seen
    assert observe.kernels_of(42, None) is None


@pytest.mark.parametrize(("lock", "count"), [("nvcc.lock", 0), ("", 2), (None, 2)])
def test_a_kernel_that_the_release_did_not_compile_is_refused(lock: str | None, count: int) -> None:
    """Both engines ask for it, and each is named."""
    asked = spec(prefill0={"engine_kernels": ["index_bf16"]}, decode0={"engine_kernels": ["index_bf16"]})
    nodes = {"node0": {"runtime_packages": ["kernels"], "runtime_nvcc_lock": lock}}
    problems = list(kernels.problems(replace(asked, nodes=nodes)))
    assert len(problems) == count
    assert all("without a compiler for it (runtime_nvcc_lock is empty)" in one.found for one in problems)
