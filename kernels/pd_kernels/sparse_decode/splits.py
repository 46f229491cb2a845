"""How many splits a launch gets, and how many CTAs an SM holds: arithmetic on shapes, so that capture and replay of a graph agree."""

from __future__ import annotations

from dataclasses import dataclass

from . import shapes

KNOB = "SGLANG_SM120_MMA_TARGET_CTAS"


def parse_target(text: str | None) -> int:
    """CTAs that a launch should have, from the knob's text; 0 (also: unset) means what the device holds at once.

    Raises ValueError for anything but decimal digits: SGLang would fall back to a default in silence, an operator's typo must not.
    """
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{KNOB}={text!r}: write a number of CTAs such as 512, or 0 (or nothing) for the device's own")
    return int(text)


def tiles(keys: int, block_n: int = shapes.BLOCK_N) -> int:
    """Tiles that a list of `keys` keys is cut into."""
    return -(-keys // block_n)


def choose_kv_splits(
    rows: int,
    heads: int,
    topk: int,
    target_ctas: int,
    *,
    extra_topk: int = 0,
    block_h: int,
    block_n: int = shapes.BLOCK_N,
    min_tiles_per_split: int = 1,
    max_splits: int = shapes.MAX_SPLITS,
) -> int:
    """Splits S of each row's keys, so that rows x head blocks x S comes up to `target_ctas` and not over it.

    From the lists' widths (`topk`, `extra_topk`), never from their live lengths: the kernel divides the live tiles by S at run time.
    S is the least count with its longest chain, so no split is empty when the lists are full. Raises ValueError for a target below 1.
    """
    if target_ctas < 1:
        raise ValueError(f"{target_ctas} CTAs: a launch has at least 1")
    total = max(1, tiles(topk, block_n) + tiles(extra_topk, block_n))
    most = max(1, min(max_splits, total // min_tiles_per_split))
    wanted = min(max(target_ctas // (rows * -(-heads // block_h)), 1), most)
    longest = -(-total // wanted)
    return -(-total // longest)


@dataclass(frozen=True)
class Footprint:
    """What one CTA of a compiled kernel takes: registers a thread, bytes of shared memory, threads."""

    registers: int
    shared: int
    threads: int = 32 * shapes.WARPS


@dataclass(frozen=True)
class Multiprocessor:
    """What one SM has. `reserved` bytes of its shared memory go to the system with each CTA (CUDA programming guide, compute capabilities)."""

    registers: int
    shared: int
    threads: int
    ctas: int
    reserved: int = 1024


SM_120 = Multiprocessor(registers=65_536, shared=102_400, threads=1_536, ctas=24)
SM_90 = Multiprocessor(registers=65_536, shared=233_472, threads=2_048, ctas=32)
REGISTER_UNIT = 256  # a warp's registers are handed out in these
SHARED_UNIT = 128


def ctas_per_sm(cta: Footprint, sm: Multiprocessor) -> int:
    """CTAs that an SM holds at once: the least of what its registers, shared memory, threads and CTA slots allow."""
    warp = -(-cta.registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    warps = -(-cta.threads // 32)
    shared = -(-cta.shared // SHARED_UNIT) * SHARED_UNIT + sm.reserved
    return min(sm.registers // (warp * warps), sm.shared // shared, sm.threads // (32 * warps), sm.ctas)


def default_target(sms: int, cta: Footprint, sm: Multiprocessor) -> int:
    """CTAs of a launch that fills the device once. Raises ValueError where the kernel does not fit at all."""
    each = ctas_per_sm(cta, sm)
    if each < 1:
        raise ValueError(f"a CTA of {cta} does not fit on an SM of {sm}")
    return sms * each
