"""The GPU script without a GPU: the whole walk in Triton's interpreter, what it does with wrong results, and its tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from gpu import bench as script
from gpu import checks, contenders, problems, table, timing

from pd_kernels.sparse_decode import reference, shapes
from pd_kernels.sparse_decode.op import sparse_decode


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    to = tmp_path_factory.mktemp("dry") / "dry.json"
    assert script.main(["--to", str(to), "--dry-run"]) == 0
    found: dict[str, Any] = json.loads(to.read_text(encoding="utf-8"))
    return found


def test_a_dry_run_walks_everything_and_times_nothing(dry: dict[str, Any]) -> None:
    assert {row["op"] for row in dry["correctness"]} == {"sparse_decode", "index_logits_bf16", "index_k_store_bf16"}
    assert all(row["ok"] for row in dry["correctness"])
    assert {row["contender"] for row in dry["times"] if row["op"] == "sparse_decode"} == {f"target {target}" for target in contenders.DRY_TARGETS}
    assert all(row["us"] is None for row in dry["times"])
    assert set(dry["missing"]) == {contenders.TRITON, contenders.FLASHINFER, contenders.DIRECT}
    assert dry["stopped"] is None
    assert dry["versions"]["triton"]


def test_no_table_is_made_of_a_dry_run(dry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="dry run"):
        table.page(dry)


def test_a_run_that_is_out_of_time_says_where_and_keeps_what_it_has() -> None:
    now = iter(range(0, 1000, 5))
    bench = script.Bench(dry=True, budget=12, clock=lambda: next(now))
    script.run(bench)
    assert bench.found["stopped"] == "out of time before: check target 512, 2 rows, 3 heads, 16+0"
    assert len(bench.found["correctness"]) == 1


TINY = problems.problem(2, 3, problems.TINY[1], context=64)


def exact(change: Callable[[torch.Tensor], torch.Tensor]) -> contenders.Contender:
    def prepare(given: problems.Problem) -> Callable[[], Any]:
        arguments = contenders.positional(given)
        right = reference.sparse_decode(*arguments[:5], *arguments[6:])
        return lambda: (change(right.out)[:, None].to(torch.bfloat16), right.lse[..., None])

    return contenders.Contender("a stand-in", prepare)


def test_a_result_outside_the_bound_is_wrong() -> None:
    assert checks.sparse_decode(exact(lambda out: out), TINY, checks.exact(TINY))["ok"]
    off = checks.sparse_decode(exact(lambda out: out * 1.1), TINY, checks.exact(TINY))
    assert not off["ok"]
    assert off["worst_over_bound"] > 1


def test_a_kernel_that_does_not_repeat_is_wrong() -> None:
    rounds = iter((1.0, 1.0 + 2**-7))
    told = checks.sparse_decode(contenders.Contender("x", lambda given: lambda: _scaled(given, next(rounds))), TINY, checks.exact(TINY))
    assert not told["repeats"]
    assert not told["ok"]


def _scaled(given: problems.Problem, by: float) -> Any:
    out, lse = exact(lambda out: out).prepare(given)()
    return out * by, lse


def test_a_baseline_that_raises_is_missing_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_given: problems.Problem) -> Callable[[], Any]:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(script, "contenders", lambda _bench: iter([contenders.Contender("other", broken)]))
    monkeypatch.setattr(checks, "index", lambda *_: iter(()))
    bench = script.Bench(dry=True, budget=100)
    script.check(bench, None)
    assert bench.found["missing"] == {"other": "RuntimeError: no kernel image"}


def test_smaller_pages_hold_the_same_keys() -> None:
    whole = TINY.arguments["k_cache"]
    small = problems.in_pages_of(whole, contenders.DIRECT_PAGE)
    slots = torch.arange(whole.shape[0] * whole.shape[1])
    assert small.stride(0) == 37440
    assert torch.equal(reference.keys_of(small, slots), reference.keys_of(whole, slots))
    direct = contenders.positional(contenders.direct(TINY))
    theirs = sparse_decode(*contenders.positional(TINY), target_ctas=4)[0]
    assert torch.equal(sparse_decode(*direct, target_ctas=4)[0], theirs)


@pytest.mark.parametrize("lists", [*problems.LISTS, *problems.TINY])
def test_problems_are_in_the_layouts_of_sglang(lists: problems.Lists) -> None:
    given = problems.problem(2, 3, lists, context=1024)
    assert given.arguments["k_cache"].stride(0) == shapes.page_bytes(256) == 149760
    assert given.key_bytes == 2 * lists.live * 584
    window, pool = given.arguments["indices"], given.arguments["k_cache"]
    assert 0 <= int(window.min()) <= int(window.max()) < pool.shape[0] * 256
    assert reference.keys_of(pool, window.flatten().long()).isfinite().all()
    if lists.extra:
        chosen = given.arguments["extra_indices_in_kvcache"][:, 0, : lists.extra_live]
        assert all(len(set(row)) == lists.extra_live for row in chosen.tolist())


@dataclass(frozen=True)
class Missing:
    """Which baselines there are on a device."""

    capability: tuple[int, int] | None
    runs: tuple[str, ...]


@pytest.mark.parametrize("case", [Missing(None, ()), Missing((9, 0), (contenders.TRITON,)), Missing((12, 0), (contenders.TRITON,))])
def test_a_baseline_that_cannot_run_says_why(case: Missing) -> None:
    found = list(contenders.baselines(case.capability))
    assert tuple(one.name for one in found if isinstance(one, contenders.Contender)) == case.runs
    assert all(one[1] for one in found if isinstance(one, tuple))


def test_percentiles() -> None:
    assert timing.of([float(value) for value in range(1, 102)]) == timing.Times(51.0, 11.0, 91.0, 101)


MEASURED = {
    "dry_run": False,
    "command": "python -m gpu.bench --to x.json",
    "device": {"name": "A GPU", "capability": "sm_90", "sms": 132, "driver": "1.2"},
    "versions": {"torch": "2.14.1", "flashinfer-python": None},
    "missing": {"flashinfer": "not here"},
    "copy_bytes_per_second": 2e12,
    "empty_us": {"median": 2.0, "p10": 1.9, "p90": 2.2, "replays": 50},
    "correctness": [{"op": "sparse_decode", "case": "c", "worst_over_bound": 0.5, "ok": True}],
    "times": [
        {"op": "sparse_decode", "contender": name, "rows": rows, "heads": 8, "lists": "128+0", "key_bytes": rows * 128 * 584, "us": us}
        for rows, name, us in (
            (64, "target 512", {"median": 20.0, "p10": 19.0, "p90": 22.0}),
            (64, "other", {"median": 30.0, "p10": 29.5, "p90": 31.0}),
            (80, "target 512", {"median": 25.0, "p10": 24.0, "p90": 26.0}),
        )
    ]
    + [{"op": "index_logits_bf16", "rows": 64, "keys": 8192, "key_bytes": 134217728, "us": {"median": 70, "p10": 69, "p90": 71}}],
    "stopped": "out of time before: x",
}


def test_the_tables_have_every_figure_with_its_command_and_device() -> None:
    page = table.page(MEASURED)
    assert "`python -m gpu.bench --to x.json` on A GPU (sm_90, 132 SMs, driver 1.2)" in page
    assert "| 64 | 2.4 | 20.0 (19.0-22.0) | 30.0 (29.5-31.0) |" in page
    assert "| 80 | 3.0 | 25.0 (24.0-26.0) | - |" in page
    assert "| 64 | 8192 | 67.1 | 70.0 (69.0-71.0) |" in page
    assert "not sm_120" in page
    assert "Not run: flashinfer: not here." in page
    assert "out of time" in page
