"""Triton kernels of sparse decode: split-K attention over gathered keys, and the merge of its partials.

Both run under `TRITON_INTERPRET=1` with `HOST=True`. That flag replaces only what the interpreter (3.8.0) gets wrong or lacks:
it multiplies bf16 `tl.dot` operands as raw integers, truncates fp32 to bf16, loses bf16's subnormals, and has no inline assembly.
Integers are not specialised, so that the kernels that run are the ones that `gates/aot_gate.py` looked at.
"""

# ruff: noqa: N803, PLR0915, PLR0917, RET505  (Triton: constants in capitals, all arguments by position, no early return)
import triton
import triton.language as tl

GROUPS = tl.constexpr(8)  # of 64 dimensions: seven of e4m3 with a scale each, one of bf16
ROW_BYTES = tl.constexpr(576)
DIM = tl.constexpr(512)
WARPS = tl.constexpr(4)
RUN = tl.constexpr(128)  # dimensions of a warp
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
LOWEST = tl.constexpr(float("-inf"))

LIST_INTS = ["page_units", "shift", "slots", "index_row", "width"]
SPLIT_INTS = ["q_row", "q_head", *LIST_INTS, *(f"{name}_x" for name in LIST_INTS), "heads", "splits"]
UNALIGNED = ["indices", "lengths", "indices_x", "lengths_x", "sink"]


@triton.jit
def _round_bf16(x, HOST: tl.constexpr):
    """fp32 to bf16, nearest even. On the host the value stays in fp32, so that the interpreter multiplies numbers."""
    if HOST:
        bits = x.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return bits.to(tl.float32, bitcast=True)
    else:
        return x.to(tl.bfloat16)


@triton.jit
def _load_keys(cache, slot, live, shift, page_units, BLOCK_N: tl.constexpr, HOST: tl.constexpr):
    """Keys [BLOCK_N, 512] in bf16, exactly as stored; rows that are not live are zero and are not read.

    A page of 2^shift tokens is that many rows of 576 B, then 8 scale bytes a token (seven UE8M0 and a pad), then padding.
    One load of [keys, 8, 64] for all groups: eight tiles of 64 need twice the registers (kernels.md 3.2).
    """
    group = tl.arange(0, GROUPS)
    lane = tl.arange(0, 64)
    page = cache + (slot >> shift).to(tl.int64) * (page_units.to(tl.int64) * 16)
    token = slot & ((1 << shift) - 1)
    row = page + token * ROW_BYTES
    is_rope = (group == 7)[None, :, None]
    here = live[:, None, None]

    raw = tl.load(row[:, None, None] + (group[:, None] * 64 + lane[None, :])[None, :, :], mask=here & ~is_rope, other=0)
    rope_row = (row + 448)[:, None, None].to(tl.pointer_type(tl.bfloat16))
    rope = tl.load(rope_row + (lane[None, None, :] + group[None, :, None] * 0), mask=here & is_rope, other=0.0)
    # All scales of a key as one word: byte loads would go through shared memory and two barriers.
    word = (page + ((ROW_BYTES << shift) + token * 8)).to(tl.pointer_type(tl.uint64))
    scales = tl.load(word, mask=live, other=0)
    exponent = ((scales[:, None] >> (group * 8).to(tl.uint64)[None, :]) & 0xFF).to(tl.uint32)
    scale = tl.where(exponent == 0, 0x00400000, exponent << 23).to(tl.float32, bitcast=True)  # 2^-127 is subnormal

    nope = raw.to(tl.float8e4nv, bitcast=True).to(tl.float32) * scale[:, :, None]
    if HOST:
        key = _round_bf16(tl.where(is_rope, rope.to(tl.float32), nope), HOST)
    else:
        key = tl.where(is_rope, rope, nope.to(tl.bfloat16))
        # Triton must not see that these were bytes: it would choose an operand layout that ldmatrix cannot load.
        key = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [key], dtype=tl.bfloat16, is_pure=False, pack=2)
    return tl.reshape(key, (BLOCK_N, DIM))


@triton.jit(do_not_specialize=SPLIT_INTS, do_not_specialize_on_alignment=UNALIGNED)
def split_kernel(
    q, q_row, q_head,
    cache, page_units, shift, slots, indices, index_row, lengths, width,
    cache_x, page_units_x, shift_x, slots_x, indices_x, index_row_x, lengths_x, width_x,
    part, part_lse, scale, heads, splits,
    HAS_EXTRA: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, HOST: tl.constexpr,
):  # fmt: skip
    """CTA (head block, row, split): its run of tiles, softmax-weighted and normalised, and their log-sum-exp in base 2.

    Keys are on the MMA's M and heads on its N, so 8 heads pad nothing. Each warp has a run of 128 dimensions, of the scores
    (summed over the warps) and of the values: all four would compute all scores otherwise, in a chain four times as long.
    Tiles of both lists are numbered through; the live ones, not the lists' widths, are divided by the splits.
    """
    row = tl.program_id(1)
    split = tl.program_id(2)
    block = tl.program_id(0) * BLOCK_H
    head = tl.arange(0, BLOCK_H)
    in_heads = head < heads - block
    dim = tl.arange(0, DIM)
    q_at = q + (row.to(tl.int64) * q_row + block * q_head) * 8 + head[None, :] * (q_head * 8) + dim[:, None]
    query = tl.reshape(tl.load(q_at, mask=in_heads[None, :], other=0.0), (WARPS, RUN, BLOCK_H))
    if HOST:
        query = query.to(tl.float32)

    list_at = indices + row.to(tl.int64) * index_row
    count = tl.minimum(tl.maximum(tl.load(lengths + row), 0), width)
    tiles = tl.cdiv(count, BLOCK_N)
    total = tiles
    if HAS_EXTRA:
        list_x = indices_x + row.to(tl.int64) * index_row_x
        count_x = tl.minimum(tl.maximum(tl.load(lengths_x + row), 0), width_x)
        total = tiles + tl.cdiv(count_x, BLOCK_N)
    per = tl.cdiv(total, splits)
    first = split * per
    last = tl.minimum(first + per, total)

    top = tl.full((BLOCK_H,), LOWEST, tl.float32)
    mass = tl.zeros((BLOCK_H,), tl.float32)
    acc = tl.zeros((WARPS, RUN, BLOCK_H), tl.float32)
    scale2 = scale * LOG2_E
    for tile in tl.range(
        first, last, disable_licm=True
    ):  # hoisted addresses cost the registers that keep loads in flight
        # One loop with selects: a loop for each list doubles the code and spills.
        pool, stride, bits, limit, at, end, begin = cache, page_units, shift, slots, list_at, count, tile * BLOCK_N
        if HAS_EXTRA:
            second = tile >= tiles
            pool = tl.where(second, cache_x, pool)
            stride = tl.where(second, page_units_x, stride)
            bits = tl.where(second, shift_x, bits)
            limit = tl.where(second, slots_x, limit)
            at = tl.where(second, list_x, at)
            end = tl.where(second, count_x, end)
            begin = tl.where(second, (tile - tiles) * BLOCK_N, begin)
        position = begin + tl.arange(0, BLOCK_N)
        slot = tl.load(at + position, mask=position < end, other=-1)
        live = (slot >= 0) & (slot < limit)
        keys = _load_keys(pool, tl.where(live, slot, 0), live, bits, stride, BLOCK_N, HOST)

        keys = tl.permute(tl.reshape(keys, (BLOCK_N, WARPS, RUN)), (1, 0, 2))
        score = tl.where(live[:, None], tl.sum(tl.dot(keys, query), axis=0) * scale2, LOWEST)
        new_top = tl.maximum(top, tl.max(score, axis=0))
        base = tl.where(new_top == LOWEST, 0.0, new_top)
        fade = tl.exp2(top - base)
        weight = tl.exp2(score - base[None, :])
        mass = mass * fade + tl.sum(weight, axis=0)
        weights = tl.broadcast_to(_round_bf16(weight, HOST)[None, :, :], (WARPS, BLOCK_N, BLOCK_H))
        acc = tl.dot(tl.permute(keys, (0, 2, 1)), weights, acc * fade[None, None, :])
        top = new_top

    at = (row * heads + block) * splits + split
    tl.store(part_lse + at + head * splits, tl.where(mass > 0.0, top + tl.log2(mass), LOWEST), mask=in_heads)
    if first < last:  # an empty split's partial is never read
        value = tl.reshape(acc * tl.where(mass > 0.0, 1.0 / mass, 0.0)[None, None, :], (DIM, BLOCK_H))
        tl.store(part + at * DIM + head[None, :] * (splits * DIM) + dim[:, None], value, mask=in_heads[None, :])


@triton.jit(do_not_specialize=["heads", "splits"], do_not_specialize_on_alignment=UNALIGNED)
def merge_kernel(
    part, part_lse, sink, out, lse, heads, splits,
    HAS_SINK: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, HOST: tl.constexpr,
):  # fmt: skip
    """CTA (run of dimensions, head, row): O = sum of 2^(lse_s - L) O_s over the splits; the sink is in the denominator only."""
    head = tl.program_id(1)
    at_row = tl.program_id(2) * heads + head
    split = tl.arange(0, BLOCK_S)
    lses = tl.load(part_lse + at_row * splits + split, mask=split < splits, other=LOWEST)
    top = tl.max(lses, axis=0)
    base = tl.where(top == LOWEST, 0.0, top)
    weight = tl.exp2(lses - base)
    mass = tl.sum(weight, axis=0)
    lse2 = tl.where(mass > 0.0, base + tl.log2(mass), LOWEST)
    share = tl.where(mass > 0.0, 1.0 / mass, 0.0)
    if HAS_SINK:
        share = tl.where(mass > 0.0, share / (1.0 + tl.exp2(tl.load(sink + head) * LOG2_E - lse2)), 0.0)

    dim = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)
    at = (at_row * splits + split)[:, None] * DIM + dim[None, :]
    parts = tl.load(part + at, mask=(lses > LOWEST)[:, None], other=0.0)
    value = _round_bf16(tl.sum(parts * weight[:, None], axis=0) * share, HOST)
    if HOST:
        value = (value.to(tl.uint32, bitcast=True) >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    tl.store(out + at_row * DIM + dim, value)
    if tl.program_id(0) == 0:
        tl.store(lse + at_row, lse2 * LN_2)
