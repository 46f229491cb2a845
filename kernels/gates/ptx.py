"""Runs the PTX of a compiled kernel on the CPU, all threads of a CTA in step: what Triton made of the source, without a GPU.

Knows the instructions that these kernels use and raises NotImplementedError for any other. Fragments of mma, ldmatrix and stmatrix are those
of the PTX ISA's figures. Accesses outside a buffer raise IndexError; a branch that threads of a CTA would take differently raises too.
Shared memory starts as NaN, and two warps that touch the same byte without a barrier between them, one of them writing, are a race that raises.
Not covered: what ptxas makes of the PTX, and the device's own order of global accesses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from ptx_ops import KINDS, PLAIN, SPECIAL, TYPES, Lanes, multiplied, wide

PREFIX = re.compile(r"@(%|!%)(p\d+)\s+")
SPACE = 1 << 32  # addresses from one buffer to the next


def operands(text: str) -> list[Any]:
    """Operands of an instruction: names and numbers as text, vectors as lists, memory as ("[]", base, offset)."""
    found: list[Any] = []
    for part in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", text):
        if part[0] == "{":
            found.append([piece.strip() for piece in part[1:-1].split(",")])
        elif part[0] == "[":
            base, _, offset = part[1:-1].replace(" ", "").partition("+")
            found.append(("[]", base, int(offset or 0)))
        else:
            found.append(part)
    return found


class Kernel:
    """One entry of a PTX module, and the buffers it is launched on."""

    def __init__(self, text: str, shared: int, threads: int = 128) -> None:
        body = text[text.index("\n{") :]
        lines = [line.split("//")[0].strip() for line in body.splitlines()]
        statements = [part.strip() for line in lines for part in re.sub(r"^(\$\w+:)", r"\1;", line).split(";")]
        self.code: list[tuple[tuple[str, str] | None, list[str], list[Any]]] = []
        self.labels: dict[str, int] = {}
        for one in statements:
            if one.startswith("$") and one.endswith(":"):
                self.labels[one[:-1]] = len(self.code)
            elif re.match(r"[@a-z]", one):
                guard = PREFIX.match(one)
                name, _, rest = one[guard.end() if guard else 0 :].replace("\t", " ").partition(" ")
                self.code.append(((guard[1], guard[2]) if guard else None, name.split("."), operands(rest)))
        self.threads, self.shared = threads, np.full(shared, 0xFF, np.uint8)
        self.buffers: list[Lanes] = []

    def address(self, tensor: torch.Tensor) -> int:
        """Gives a tensor's whole memory to the kernel; the address of its first element."""
        raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        self.buffers.append(raw.numpy())
        return len(self.buffers) * SPACE + tensor.storage_offset() * tensor.element_size()

    def launch(self, grid: tuple[int, int, int], arguments: Sequence[int | float | torch.Tensor]) -> None:
        """Every CTA, one after the other. A tensor is the address of its first element, an int 32 bits, a float fp32."""
        self.arguments = [self.address(one) if isinstance(one, torch.Tensor) else one for one in arguments]
        for z in range(grid[2]):
            for y in range(grid[1]):
                for x in range(grid[0]):
                    self.cta = {"%ctaid.x": x, "%ctaid.y": y, "%ctaid.z": z, "global_smem": 0}
                    self.run()

    def run(self) -> None:
        self.barrier()
        self.registers: dict[str, Lanes] = {"%tid.x": np.arange(self.threads, dtype=np.uint32)}
        at = 0
        while at < len(self.code):
            guard, name, args = self.code[at]
            self.active = np.ones(self.threads, bool)
            if guard:
                self.active = self.registers["%" + guard[1]] ^ (guard[0] == "!%")
            at += 1
            if name[0] == "ret" and self.active.all():
                return
            if name[0] == "bra":
                if self.active.any() != self.active.all():
                    raise RuntimeError("threads of a CTA part ways")
                at = self.labels[args[0]] if self.active.all() else at
            elif self.active.any():
                with np.errstate(all="ignore"):
                    self.step(name, args)

    def read(self, operand: Any, kind: str) -> Lanes:
        """Values of an operand as a PTX type: a register, a vector of parts, a number or a name."""
        dtype = np.dtype(TYPES[kind])
        if isinstance(operand, list):
            parts = [self.read(part, f"b{8 * dtype.itemsize // len(operand)}") for part in operand]
            return np.ascontiguousarray(np.stack(parts, axis=1)).view(dtype)[:, 0]
        if operand in self.registers:
            value = self.registers[operand]
            if value.dtype == np.bool_:
                return value
            bits = KINDS[str(8 * dtype.itemsize)]
            return value.astype(bits).view(dtype)
        if operand in self.cta:
            return np.full(self.threads, self.cta[operand], dtype)
        if operand.startswith("0f"):
            return np.full(self.threads, int(operand[2:], 16), np.uint32).view(dtype)
        number = int(operand.rstrip("U"), 0)
        return np.full(self.threads, number & ((1 << 8 * dtype.itemsize) - 1), KINDS[str(8 * dtype.itemsize)]).view(
            dtype
        )

    def write(self, name: Any, value: Lanes) -> None:
        """A register gets a value where the guard holds; bits are kept, widths are the register's."""
        if name == "_":
            return
        if isinstance(name, list):
            parts = (
                np.ascontiguousarray(value)
                .view(KINDS[str(8 * value.dtype.itemsize // len(name))])
                .reshape(self.threads, -1)
            )
            for part, column in zip(name, parts.T, strict=True):
                self.write(part, column)
            return
        bits = (
            value if value.dtype == np.bool_ else np.ascontiguousarray(value).view(KINDS[str(8 * value.dtype.itemsize)])
        )
        width = {"%p": np.bool_, "%rs": np.uint16, "%r": np.uint32, "%rd": np.uint64}[re.match(r"%[a-z]+", name)[0]]  # type: ignore[index]  # ptx names
        bits = bits.astype(width)
        old = self.registers.get(name)
        self.registers[name] = bits if old is None else np.where(self.active, bits, old)

    def memory(self, operand: tuple[str, str, int], space: str, size: int) -> tuple[Lanes, Lanes]:
        """The buffer, and the first byte of each active thread's access in it. Raises IndexError outside of it, or unaligned."""
        start = (self.read(operand[1], "u32" if space == "shared" else "u64").astype(np.int64) + operand[2])[
            self.active
        ]
        buffer = self.shared
        if space == "global":
            which = np.unique(start // SPACE)
            if len(which) != 1 or not 1 <= which[0] <= len(self.buffers):
                raise IndexError(f"{size} B from no buffer, or from several: {which}")
            buffer, start = self.buffers[which[0] - 1], start % SPACE
        if (start % size).any() or start.min() < 0 or start.max() + size > len(buffer):
            raise IndexError(f"{space} access of {size} B at {start.min()}..{start.max()} of {len(buffer)}")
        return buffer, start

    def barrier(self) -> None:
        """Who has written and who has read each byte of shared memory since the last barrier: a bit for each warp."""
        self.written, self.seen = np.zeros(len(self.shared), np.uint8), np.zeros(len(self.shared), np.uint8)

    def touch(self, places: Lanes, *, write: bool) -> None:
        """Each active thread's bytes of shared memory, a row of `places` for each. Raises RuntimeError for a race."""
        warp = np.uint8(1) << (np.arange(self.threads)[self.active] // 32).astype(np.uint8)
        mine = np.broadcast_to(warp[:, None], places.shape)
        others = self.written[places] | (self.seen[places] if write else np.uint8(0))
        if (others & ~mine).any():
            raise RuntimeError("a race: a warp touches what another has touched since the last barrier")
        np.bitwise_or.at(self.written if write else self.seen, places, mine)

    def step(self, name: list[str], args: list[Any]) -> None:
        """One instruction."""
        op, kind = name[0], name[-1]
        if op == "bar" and name[1] == "sync":
            self.barrier()
        if op in ("bar", "ret"):
            return
        if op == "ld" and name[1] == "param":
            value = self.arguments[int(args[1][1].rsplit("_", 1)[1])]
            if isinstance(value, float):
                self.write(args[0], np.full(self.threads, value, np.float32))
            else:
                self.write(args[0], np.full(self.threads, value, np.int64 if args[0].startswith("%rd") else np.int32))
        elif op in ("ld", "st"):
            self.move(op, name, args)
        elif op in ("ldmatrix", "stmatrix"):
            self.matrix(op, name, args)
        elif op == "mma":
            self.multiply(args)
        elif op == "mul" and kind[0] in "su":
            multiplied(self, name, args)
        elif op in SPECIAL:
            SPECIAL[op](self, name, args)
        else:
            self.plain(name, args)

    def plain(self, name: list[str], args: list[Any]) -> None:
        """An operation element by element; .f32x2 is two in a register, .ftz takes subnormals for zero."""
        kind = name[-1]
        if name[0] not in PLAIN or kind not in (*TYPES, "f32x2"):
            raise NotImplementedError(".".join(name))
        values = [
            self.read(arg, "b64").view(np.float32) if kind == "f32x2" else self.read(arg, kind) for arg in args[1:]
        ]
        flush = (lambda v: np.where(np.abs(v) < 2.0**-126, v * np.float32(0), v)) if "ftz" in name else (lambda v: v)
        result = flush(PLAIN[name[0]](*map(flush, values))).astype(values[0].dtype)
        self.write(args[0], np.ascontiguousarray(result).view(np.uint64) if kind == "f32x2" else result)

    def move(self, op: str, name: list[str], args: list[Any]) -> None:
        space, kind = name[1].split(":")[0], name[-1]
        register, at = (args[0], args[1]) if op == "ld" else (args[1], args[0])
        registers = register if isinstance(register, list) else [register]
        size = np.dtype(TYPES[kind]).itemsize
        buffer, start = self.memory(at, space, size * len(registers))
        places = start[:, None] + np.arange(size)
        if space == "shared":
            self.touch(start[:, None] + np.arange(size * len(registers)), write=op == "st")
        for n, each in enumerate(registers):
            if op == "ld":
                value = np.zeros((self.threads, size), np.uint8)
                value[self.active] = buffer[places + n * size]
                self.write(each, value.view(KINDS[str(8 * size)])[:, 0])
            else:
                value = np.ascontiguousarray(self.read(each, kind)[self.active]).view(np.uint8).reshape(-1, size)
                buffer[places + n * size] = value
                if (buffer[places + n * size] != value).any():
                    raise RuntimeError("a race: two threads write different values in one instruction")

    def matrix(self, op: str, name: list[str], args: list[Any]) -> None:
        """ldmatrix and stmatrix: matrix i has its eight rows of 16 B where threads 8i.. of a warp say."""
        registers, at = (args[0], args[1]) if op == "ldmatrix" else (args[1], args[0])
        buffer, start = self.memory(at, "shared", 16)
        lane = np.arange(32)
        row, column = lane // 4, lane % 4 * 2
        pair = [(column, row), (column + 1, row)] if "trans" in name else [(row, column), (row, column + 1)]
        for n, register in enumerate(registers):
            rows = start.reshape(-1, 32)[:, 8 * n : 8 * n + 8]
            places = np.stack([rows[:, r] + 2 * c for r, c in pair], axis=2)[..., None] + np.arange(2)
            self.touch(places.reshape(self.threads, 4), write=op == "stmatrix")
            if op == "ldmatrix":
                self.write(
                    register, np.ascontiguousarray(buffer[places].reshape(self.threads, 4)).view(np.uint32)[:, 0]
                )
            else:
                buffer[places] = self.read(register, "b32").view(np.uint8).reshape(-1, 32, 2, 2)

    def multiply(self, args: list[Any]) -> None:
        """mma.m16n8k16, row by column, bf16 into fp32."""
        warps, lane = self.threads // 32, np.arange(32)
        group, pair = lane // 4, lane % 4 * 2
        a, b = np.zeros((warps, 16, 16), np.float32), np.zeros((warps, 16, 8), np.float32)
        for n, register in enumerate(args[1]):
            halves = wide(self.read(register, "b32").view(np.uint16)).reshape(warps, 32, 2)
            a[:, group + 8 * (n % 2), pair + 8 * (n // 2)], a[:, group + 8 * (n % 2), pair + 8 * (n // 2) + 1] = (
                halves[..., 0],
                halves[..., 1],
            )
        for n, register in enumerate(args[2]):
            halves = wide(self.read(register, "b32").view(np.uint16)).reshape(warps, 32, 2)
            b[:, pair + 8 * n, group], b[:, pair + 8 * n + 1, group] = halves[..., 0], halves[..., 1]
        product = a.astype(np.float64) @ b.astype(np.float64)
        old = [self.read(register, "f32") for register in args[3]]
        for n, register in enumerate(args[0]):
            part = product[:, group + 8 * (n // 2), pair + n % 2].reshape(self.threads)
            self.write(register, (old[n] + part).astype(np.float32))
