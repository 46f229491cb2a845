"""The compiled kernels, called with torch tensors.

The library is built ahead of time (`python -m pd_kernels.index_bf16.build`) and loaded through its C ABI; nothing is
compiled here. The same code loads the CPU twin that the tests build.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from pd_kernels.index_bf16.shapes import DIM, HEADS, PAGE, ROPE_DIM

ABI = 1
LIBRARY = Path(__file__).with_name("index_bf16.so")


def _fields(pointers: str, longs: str, ints: str, floats: str = "") -> list[tuple[str, type]]:
    kinds = ((pointers, ctypes.c_void_p), (longs, ctypes.c_int64), (ints, ctypes.c_int32), (floats, ctypes.c_float))
    return [(name, kind) for names, kind in kinds for name in names.split()]


class _Store(ctypes.Structure):
    """PdIndexStore of index_bf16.h."""

    _fields_ = _fields(
        "kv plan weight freqs out_loc pages",
        "page_count",
        "count freqs_rows out_rows ratio kv_fp32 weight_fp32 decode",
        "eps",
    )


class _Logits(ctypes.Structure):
    """PdIndexLogits of index_bf16.h."""

    _fields_ = _fields("q weights pages lengths table logits", "page_count table_stride", "rows table_width columns chunks")


def _check(name: str, tensor: torch.Tensor, shape: tuple[int | None, ...], *dtypes: torch.dtype) -> int:
    """The address of a contiguous tensor of that shape (None: any size). ValueError says what was found."""
    fits = len(shape) == tensor.dim() and all(want in (None, have) for want, have in zip(shape, tensor.shape, strict=True))
    if not fits or tensor.dtype not in dtypes or not tensor.is_contiguous():
        wanted = f"{' or '.join(map(str, dtypes))} {tuple('any' if size is None else size for size in shape)}, contiguous"
        raise ValueError(f"{name}: {tensor.dtype} {tuple(tensor.shape)}, strides {tensor.stride()}; needs {wanted}")
    return int(tensor.data_ptr())


class IndexKernels:
    """The kernels of one library. Raises RuntimeError when it is missing, or is not the one this file was written for."""

    def __init__(self, path: Path = LIBRARY) -> None:
        if not path.exists():
            raise RuntimeError(f"{path}: not built; run `python -m pd_kernels.index_bf16.build` where nvcc is, or install a wheel that has it")
        self._library = ctypes.CDLL(str(path))
        self._library.pd_index_sizes.restype = ctypes.c_uint64
        self._library.pd_index_error.restype = ctypes.c_char_p
        sizes = self._library.pd_index_sizes()
        found = (self._library.pd_index_abi(), sizes >> 32, sizes & 0xFFFFFFFF)
        wanted = (ABI, ctypes.sizeof(_Store), ctypes.sizeof(_Logits))
        if found != wanted:
            raise RuntimeError(f"{path}: ABI and struct sizes {found}, this package needs {wanted}; build it again")

    def store(
        self,
        kv: torch.Tensor,
        plan: torch.Tensor,
        *,
        norm_weight: torch.Tensor,
        norm_eps: float,
        freqs: torch.Tensor,
        out_loc: torch.Tensor,
        pages: torch.Tensor,
        ratio: int,
        decode: bool,
    ) -> None:
        """Write the keys of a plan: `kv` [n, 128] bf16 or fp32, `plan` [n, 16] bytes, `freqs` [positions, 64] fp32,
        `out_loc` [m] int64, `pages` [pages, 64, 128] bf16. Entries without a key or with a slot outside are left out."""
        floats = (torch.bfloat16, torch.float32)
        args = _Store(
            kv=_check("kv", kv, (None, DIM), *floats),
            plan=_check("plan", plan, (kv.shape[0], 16), torch.uint8),
            weight=_check("norm_weight", norm_weight, (DIM,), *floats),
            freqs=_check("freqs", freqs, (None, ROPE_DIM), torch.float32),
            out_loc=_check("out_loc", out_loc, (None,), torch.int64),
            pages=_check("pages", pages, (None, PAGE, DIM), torch.bfloat16),
            page_count=pages.shape[0],
            count=kv.shape[0],
            freqs_rows=freqs.shape[0],
            out_rows=out_loc.shape[0],
            ratio=ratio,
            kv_fp32=kv.dtype == torch.float32,
            weight_fp32=norm_weight.dtype == torch.float32,
            decode=decode,
            eps=norm_eps,
        )
        self._call("pd_index_store", args, kv.device)

    def logits(
        self,
        q: torch.Tensor,
        weights: torch.Tensor,
        pages: torch.Tensor,
        lengths: torch.Tensor,
        table: torch.Tensor,
        *,
        columns: int,
        chunks: int,
    ) -> torch.Tensor:
        """[rows, columns] fp32: `sum_h weights relu(q . key)`, -inf where a row has no key.

        `q` [rows, 64, 128] e4m3, `weights` [rows, 64] fp32, `pages` [pages, 64, 128] bf16, `lengths` [rows] int32,
        `table` [rows, any] int32 (rows may be strided). At most 65,535 rows (the grid's second dimension).
        """
        rows = q.shape[0]
        if rows > 65535 or chunks < 1 or table.dim() != 2 or table.shape[0] != rows or table.dtype != torch.int32 or table.stride(1) != 1:
            found = f"{rows} rows, {chunks} chunks, table {table.dtype} {tuple(table.shape)}, strides {table.stride()}"
            raise ValueError(f"logits: {found}; needs at most 65535 rows, a chunk, an int32 table with a row for each of q")
        out = torch.empty((rows, columns), dtype=torch.float32, device=q.device)
        args = _Logits(
            q=_check("q", q, (None, HEADS, DIM), torch.float8_e4m3fn),
            weights=_check("weights", weights, (rows, HEADS), torch.float32),
            pages=_check("pages", pages, (None, PAGE, DIM), torch.bfloat16),
            lengths=_check("lengths", lengths, (rows,), torch.int32),
            table=table.data_ptr(),
            logits=out.data_ptr(),
            page_count=pages.shape[0],
            table_stride=table.stride(0),
            rows=rows,
            table_width=table.shape[1],
            columns=columns,
            chunks=chunks,
        )
        self._call("pd_index_logits", args, q.device)
        return out

    def _call(self, name: str, args: ctypes.Structure, device: torch.device) -> None:
        cuda = device.type == "cuda"
        stream = torch.cuda.current_stream(device).cuda_stream if cuda else 0
        index = device.index or 0
        code = getattr(self._library, name)(ctypes.byref(args), ctypes.c_int(index), ctypes.c_void_p(stream))
        if code:
            raise RuntimeError(f"{name} on {device}: error {code}, {self._library.pd_index_error(code).decode()}")
