"""What this process computes on, asked without making a CUDA context: that would take memory of a GPU which is another rank's."""

from __future__ import annotations

from collections.abc import Mapping

from .kernel import Refused


def architectures(environ: Mapping[str, str]) -> tuple[str, ...]:
    """`sm_120` and so on, one for each GPU that this process may use; `cpu` for a CPU engine (sglang-facts 10).

    Raises Refused when the driver cannot be asked.
    """
    if environ.get("SGLANG_USE_CPU_ENGINE") == "1":
        return ("cpu",)
    import pynvml  # noqa: PLC0415  a GPU host's package

    try:
        pynvml.nvmlInit()
        handles = [_handle(pynvml, name) for name in visible(environ, pynvml.nvmlDeviceGetCount())]
        return tuple("sm_{}{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle)) for handle in handles)
    except pynvml.NVMLError as error:
        raise Refused(f"the GPU driver cannot be asked which GPUs these are: {error}") from error


def visible(environ: Mapping[str, str], count: int) -> list[str]:
    """The indices or UUIDs of CUDA_VISIBLE_DEVICES, else the indices of all `count` GPUs. Pure."""
    told = environ.get("CUDA_VISIBLE_DEVICES")
    return [str(index) for index in range(count)] if told is None else [name.strip() for name in told.split(",") if name.strip()]


def _handle(nvml: object, name: str) -> object:
    get = "nvmlDeviceGetHandleByIndex" if name.isdigit() else "nvmlDeviceGetHandleByUUID"
    handle: object = getattr(nvml, get)(int(name) if name.isdigit() else name)
    return handle
