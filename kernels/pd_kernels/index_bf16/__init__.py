"""K2: the indexer's keys in bf16, beside SGLang's e4m3 pool. CUDA C++, built ahead of time; off unless `PD_KERNELS` names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pd_kernels.kernel import Hook


def hooks() -> list[Hook]:
    """Where the op goes into SGLang 0.5.23. Raises RuntimeError when the library is not built; see shadow.py."""
    from pd_kernels.index_bf16 import op, shadow  # noqa: PLC0415  torch is a scheduler's

    return shadow.hooks(op.IndexKernels())
