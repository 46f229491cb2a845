"""The toggle, and that it fails closed: on SGLang's own hook registry, with kernels made for the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from sglang.srt.plugins.hook_registry import HookRegistry

from pd_kernels import devices, plugin, registry, report
from pd_kernels.kernel import Context, Hook, Kernel, Refused


def made(target: str = "somebody.double", **fields: Any) -> Kernel:
    """A kernel `test` that adds one to what somebody.double returns."""

    def hooks(context: Context) -> list[Hook]:
        def add_one(original: Any, number: int) -> int:
            context.count("double")
            return int(original(number)) + 1

        return [Hook(target, "around", add_one)]

    return Kernel("test", hooks, **fields)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: types.ModuleType) -> Any:
    """Register with this kernel and this environment, and apply, as SGLang's load_plugins does."""

    def act(kernel: Kernel | None, **environ: str) -> types.ModuleType:
        monkeypatch.setattr(registry, "KERNELS", {**registry.KERNELS, **({kernel.name: kernel} if kernel else {})})
        for name, value in ({"PD_KERNELS": "test", "PD_KERNELS_REPORT": str(tmp_path), "SGLANG_USE_CPU_ENGINE": "1"} | environ).items():
            monkeypatch.setenv(name, value)
        plugin.register()
        HookRegistry.apply_hooks()
        return target

    return act


def own_report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{os.getpid()}.json").read_text())
    return found


def test_a_wanted_kernel_is_put_in_counted_and_reported(ask: Any, tmp_path: Path) -> None:
    somebody = ask(made())
    assert [somebody.double(n) for n in (1, 2)] == [3, 5]
    told = own_report(tmp_path)
    assert told["pid"] == os.getpid() and told["start"] == report.start_time(os.getpid())
    assert told["kernels"]["test"]["hooks"] == {"somebody.double": True}
    assert told["kernels"]["test"]["calls"] == {"double": 1}, "the first call is on disk at once, the next ones every few seconds"
    state = somebody.Controller().get_internal_state(None).internal_state
    assert state["pd_kernels"]["kernels"]["test"]["calls"] == {"double": 2} and state["startup_time"] == 1.0


@pytest.mark.parametrize("text", ["", "  "])
def test_without_a_name_nothing_is_touched(ask: Any, tmp_path: Path, text: str) -> None:
    somebody = ask(made(), PD_KERNELS=text)
    assert somebody.double(1) == 2
    assert not HookRegistry._hooks and list(tmp_path.iterdir()) == []


def test_no_scheduler_imports_no_hook_and_still_says_what_it_wants(ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, plugin.SCHEDULER)
    somebody = ask(made(knobs={"PD_TEST_KNOB": int}), PD_TEST_KNOB="7")
    assert somebody.double(1) == 2
    assert own_report(tmp_path)["kernels"] == {"test": {"knobs": {"PD_TEST_KNOB": 7}, "hooks": {}, "calls": {}}}


def test_a_copied_name_is_replaced_too(ask: Any, monkeypatch: pytest.MonkeyPatch, target: types.ModuleType) -> None:
    """`from somebody import double` made before the plugin was loaded (sglang-facts 7.1)."""
    other = types.ModuleType("other")
    vars(other)["double"] = vars(target)["double"]
    monkeypatch.setitem(sys.modules, "other", other)
    ask(made())
    assert other.double(1) == 3


def test_the_next_plugins_hooks_are_applied_as_ever(ask: Any) -> None:
    """Ours looks after SGLang has applied all hooks once, and then gets out of the way."""
    ask(made())
    apply = vars(HookRegistry)["apply_hooks"]
    assert isinstance(apply, classmethod), "SGLang's own again"


def banana(text: str) -> int:
    if not text.isdigit():
        raise ValueError("it must be a whole number")
    return int(text)


REFUSED = {
    "unknown": (None, {"PD_KERNELS": "sparse_decoed"}, "there is no kernel 'sparse_decoed'. There are: guards, index_bf16, sparse_decode"),
    "unknown beside a known one": (made(), {"PD_KERNELS": "test,bogus"}, "there is no kernel 'bogus'"),
    "an empty name": (made(), {"PD_KERNELS": "test,"}, "there is no kernel ''"),
    "twice": (made(), {"PD_KERNELS": "test,test"}, "test is there twice"),
    "malformed knob": (made(knobs={"PD_TEST_KNOB": banana}), {"PD_TEST_KNOB": "banana"}, "PD_TEST_KNOB='banana' (a knob of test): it must be"),
    "an empty knob": (made(knobs={"PD_TEST_KNOB": banana}), {"PD_TEST_KNOB": ""}, "PD_TEST_KNOB=''"),
    "wrong architecture": (made(architectures=frozenset({"sm_120"})), {}, "test is for sm_120, this engine computes on cpu"),
    "a renamed target": (made(target="somebody.triple"), {}, "test needs somebody.triple, which this SGLang does not have"),
    "a missing module": (made(target="nobody.double"), {}, "test needs nobody.double, which this SGLang does not have"),
    "a target that is a class": (made(target="somebody.Controller"), {}, "test needs somebody.Controller, which is no function"),
    "a target that is a number": (made(target="somebody.NUMBER"), {}, "test needs somebody.NUMBER, which is no function"),
    "a helper that is gone": (made(needs=("somebody.helper",)), {}, "test needs somebody.helper, which this SGLang does not have"),
}


@pytest.mark.parametrize(("kernel", "environ", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_wrong_ends_the_process_with_one_line(ask: Any, tmp_path: Path, kernel: Kernel | None, environ: dict[str, str], why: str) -> None:
    with pytest.raises(SystemExit) as ended:
        ask(kernel, **environ)
    assert str(ended.value).startswith("pd_kernels: ") and why in str(ended.value) and "\n" not in str(ended.value)
    assert list(tmp_path.iterdir()) == [], "and nothing says that it is in"


def test_an_error_of_our_own_is_fatal_too(ask: Any) -> None:
    def broken(_context: Context) -> list[Hook]:
        raise ImportError("No module named 'triton'")

    with pytest.raises(SystemExit, match=r"PD_KERNELS=test could not be put in: ImportError: No module named 'triton'"):
        ask(Kernel("test", broken))


def test_a_hook_that_sglang_fails_to_apply_is_fatal(ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SGLang's apply_hooks logs an exception and goes on with its own code (sglang-facts 7.2.2)."""

    def fails(_cls: type, target: str, _hooks: object) -> None:
        raise RuntimeError(target)

    monkeypatch.setattr(HookRegistry, "_apply_target", classmethod(fails))
    with pytest.raises(SystemExit, match=r"SGLang did not put a hook on somebody\.double in"):
        ask(made())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("told", "count", "seen"),
    [(None, 2, ["0", "1"]), ("4,5", 8, ["4", "5"]), ("GPU-3f, GPU-40", 8, ["GPU-3f", "GPU-40"]), ("", 8, [])],
)
def test_the_gpus_of_this_process(told: str | None, count: int, seen: list[str]) -> None:
    assert devices.visible({} if told is None else {"CUDA_VISIBLE_DEVICES": told}, count) == seen


@pytest.mark.parametrize(("here", "fits"), [(["sm_120"] * 4, True), (["sm_120", "sm_90"], False), ([], False), (["cpu"], False)])
def test_every_gpu_must_fit(here: list[str], fits: bool) -> None:
    kernel = made(architectures=frozenset({"sm_120"}))
    if fits:
        registry.fits(kernel, here)
    else:
        with pytest.raises(Refused):
            registry.fits(kernel, here)


def test_reports_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / f"{gone}.json").write_text("{}")
    (tmp_path / "1.json").write_text("{}")
    report.Report(tmp_path).publish()
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(["1.json", f"{os.getpid()}.json"])


def test_the_entry_point_in_a_process_of_its_own() -> None:
    """As SGLang loads it: found by its name, and a bogus kernel ends the process although SGLang catches what plugins raise."""
    code = "from sglang.srt.plugins import load_plugins; load_plugins(); print('serving')"
    environ = {**os.environ, "PD_KERNELS": "bogus", "SGLANG_USE_CPU_ENGINE": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 1 and done.stdout == "", done.stdout + done.stderr
    assert "pd_kernels: PD_KERNELS=bogus: there is no kernel 'bogus'. There are: guards, index_bf16, sparse_decode" in done.stderr.splitlines()
