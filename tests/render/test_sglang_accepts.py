"""What the example inventory renders is what SGLang and its router take; and they would say if it were not."""

from pathlib import Path
from typing import Any

import pytest

from tests.render import rendered
from tests.render.sglang_accepts import engine_python, router_accepts, router_python, verdicts

PREFILL: dict[str, Any] = {
    "model-path": "/models/DeepSeek-V4-Flash-NVFP4",
    "device": "cuda",
    "tp-size": 4,
    "disaggregation-mode": "prefill",
    "disaggregation-transfer-backend": "nixl",
    "moe-runner-backend": "flashinfer_cutlass",
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such flag": ({"enable-metrix": True}, "--enable-metrix"),
    "no such choice": ({"moe-runner-backend": "flashinfer_cutlas"}, "--moe-runner-backend"),
    "no number": ({"tp-size": "four"}, "--tp-size"),
    "not for this role": ({"disaggregation-transfer-backend": "fake"}, "Prefill server does not support 'fake'"),
    "not for this model": ({"quantization": "modelopt_fp4"}, "modelopt_fp4"),
    "half a page": ({"chunked-prefill-size": 1000}, "page_size"),
    "without effect": ({"page-size": 64}, "page-size: 64 was asked for, SGLang makes it 256"),
}
ROUTER: dict[str, Any] = {"pd-disaggregation": True, "prefill": [["http://a:1", 8998]], "decode": ["http://b:2"]}


@pytest.fixture(scope="module")
def answers() -> dict[str, str | None]:
    """SGLang's answers to everything that this file asks, from one start of it."""
    asked: dict[str, dict[str, Any]] = {
        f"refused: {name}": {**PREFILL, **change} for name, (change, _) in REFUSED.items()
    }
    asked |= {
        member.name: dict(member.config) for member in rendered.inventory("example.yml") if member.role != "router"
    }
    return verdicts(asked, engine_python())


@pytest.mark.parametrize("instance", ["prefill0", "decode0"])
def test_sglang_accepts_the_engines_of_the_example(answers: dict[str, str | None], instance: str) -> None:
    assert answers[instance] is None


@pytest.mark.parametrize("name", REFUSED)
def test_sglang_says_what_is_wrong(answers: dict[str, str | None], name: str) -> None:
    assert REFUSED[name][1] in (answers[f"refused: {name}"] or "accepted")


@pytest.mark.parametrize("file", ["example.yml", "lab.yml"])
def test_the_router_accepts_its_config(file: str) -> None:
    (config,) = [member.config for member in rendered.inventory(file) if member.role == "router"]
    router_accepts(config, router_python())


@pytest.mark.parametrize("change", [{"polizy": "round_robin"}, {"policy": "robin"}, {"prefill": [["http://a:1", "x"]]}])
def test_the_router_says_what_is_wrong(change: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"polizy|robin|bootstrap port"):
        router_accepts({**ROUTER, **change}, router_python())


def test_the_interpreter_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PD_ENGINE_PYTHON", "/opt/e/bin/python")
    assert engine_python() == Path("/opt/e/bin/python")
