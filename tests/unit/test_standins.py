"""The lab's stand-ins, as far as they can be judged without SGLang; tests/e2e has the faults on the real engine."""

import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STANDINS = Path(__file__).resolve().parents[2] / "lab" / "standins"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STANDINS))
    monkeypatch.setenv("SGLANG_USE_CPU_ENGINE", "1")
    monkeypatch.delenv("PD_LAB_FAULT", raising=False)


def load(name: str) -> Any:
    return importlib.import_module(name)


def module(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> types.ModuleType:
    """A module of this name, for as long as the test runs."""
    made = types.ModuleType(name)
    vars(made).update(attributes)
    monkeypatch.setitem(sys.modules, name, made)
    return made


class Loader:
    """In the place of SGLang's DefaultModelLoader."""

    def load_model(self) -> str:
        return "a model"


def test_a_kernel_can_be_imported_and_not_called() -> None:
    kernels = load("sgl_kernel")
    assert len(kernels.NAMES) == 8
    for name in kernels.NAMES:
        with pytest.raises(NotImplementedError, match=name):
            getattr(kernels, name)(1, a=2)
    assert not hasattr(kernels, "merge_state_v2")


def test_a_gpu_engine_refuses_to_start_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE")
    with pytest.raises(SystemExit, match="build the release without it"):
        load("pdstack_lab_standins").register()


def test_an_unknown_fault_stops_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PD_LAB_FAULT", "bootstrap-thread-dise")
    with pytest.raises(SystemExit, match=r"bootstrap-thread-dise.*bootstrap-thread-dies"):
        load("pdstack_lab_standins").register()


@pytest.mark.parametrize("environ", [{}, {"PD_LAB_FAULTS": "never-ready"}])
def test_without_the_variable_there_is_no_fault(environ: dict[str, str]) -> None:
    assert load("pdstack_lab_standins.faults").chosen(environ) is None


def test_an_empty_fault_is_not_no_fault() -> None:
    with pytest.raises(SystemExit, match="unset it"):
        load("pdstack_lab_standins.faults").chosen({"PD_LAB_FAULT": ""})


def test_a_fault_happens_where_the_real_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loader, "load_model", Loader.load_model)
    module(monkeypatch, "sglang.srt.model_loader.loader", DefaultModelLoader=Loader)
    load("pdstack_lab_standins.faults").chosen({"PD_LAB_FAULT": "die-while-loading"}).install()
    with pytest.raises(RuntimeError, match="PD_LAB_FAULT=die-while-loading"):
        Loader().load_model()


def doubled(original: Callable[[int], int]) -> Callable[[int], int]:
    return lambda value: 2 * original(value)


def test_wrap_replaces_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    target = module(monkeypatch, "somebody_elses", next=lambda value: value + 1)
    load("pdstack_lab_standins.patching").wrap("somebody_elses", "next", doubled)
    assert vars(target)["next"](1) == 4


@pytest.mark.parametrize(("name", "path"), [("nobodys", "next"), ("somebody_elses", "gone"), ("somebody_elses", "A.b")])
def test_wrap_stops_the_server_when_its_target_has_moved(monkeypatch: pytest.MonkeyPatch, name: str, path: str) -> None:
    module(monkeypatch, "somebody_elses", next=lambda value: value)
    with pytest.raises(SystemExit, match=rf"{name}:{path} is gone.*lab/standins"):
        load("pdstack_lab_standins.patching").wrap(name, path, doubled)


def test_only_a_scheduler_is_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sglang.srt.managers.scheduler", raising=False)
    load("pdstack_lab_standins").register()
    module(monkeypatch, "sglang.srt.managers.scheduler")
    with pytest.raises(SystemExit, match="is gone"):  # it looks for NIXL, which is not here
        load("pdstack_lab_standins").register()
