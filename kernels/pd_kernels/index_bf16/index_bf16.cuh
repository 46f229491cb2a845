// Index keys of DeepSeek-V4 kept in bf16: store and logits. Compiled by nvcc with ptx.cuh, by g++ with host/machine.h.
// Deterministic: every sum has a fixed order. Nothing out of bounds is read or written, whatever the indices say.
#pragma once

#include "index_bf16.h"

namespace pd {

constexpr int kDim = 128, kRope = 64, kHeads = 64, kPage = 64;
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kTile = 32;   // keys per stage: three stages and three CTAs fit in an SM's 100 KB
constexpr int kStages = 3;
constexpr int kChunks = kDim / 8;  // 16-byte chunks of a key
static_assert(kHeads == 16 * kWarps && kPage % kTile == 0 && kTile % kWarps == 0);

struct alignas(128) Shared {  // cp.async and ldmatrix need 16
  uint16_t keys[kStages][kTile][kDim];  // chunk c of key k stands at chunk c ^ (k % 8): ldmatrix without bank conflicts
  float partial[2][kWarps][kTile];
};

PD_DEVICE float as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

PD_DEVICE uint32_t as_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

PD_DEVICE float from_bf16(uint16_t bits) { return as_float(static_cast<uint32_t>(bits) << 16); }

// Nearest even; a NaN stays one.
PD_DEVICE uint32_t to_bf16(float value) {
  const uint32_t bits = as_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// Exact: e4m3 has fewer bits than bf16. The exponents differ by 120, subnormals included.
PD_DEVICE uint32_t e4m3_to_bf16(uint32_t byte) {
  const uint32_t sign = (byte & 0x80u) << 8;
  if ((byte & 0x7fu) == 0x7fu) return sign | 0x7fc0u;
  return sign | (as_bits(as_float((byte & 0x7fu) << 20) * 0x1p120f) >> 16);
}

PD_DEVICE float element(const void* array, int64_t at, int fp32) {
  return fp32 ? static_cast<const float*>(array)[at] : from_bf16(static_cast<const uint16_t*>(array)[at]);
}

// Where a plan entry says its key goes: false for an entry that writes none, or none that exists.
PD_DEVICE bool placed(const PdIndexStore& args, int work, int64_t& slot, int64_t& position) {
  uint32_t plan[2];  // both layouts start with the sequence length; CompressPlan's next 16 bits are the row of out_loc
  memcpy(plan, static_cast<const uint8_t*>(args.plan) + static_cast<int64_t>(work) * 16, 8);
  if (args.decode ? plan[0] % static_cast<uint32_t>(args.ratio) != 0 : plan[0] == 0xffffffffu) return false;
  const int64_t row = args.decode ? work : static_cast<int64_t>(plan[1] & 0xffffu);
  if (row >= args.out_rows) return false;
  slot = args.out_loc[row];
  position = static_cast<int64_t>(plan[0]) - args.ratio;
  return slot >= 0 && slot < args.page_count * kPage && position >= 0 && position < args.freqs_rows;
}

// One warp per key, four dimensions per lane; fp32 up to the one rounding at the end.
PD_GLOBAL(kThreads, 8) index_k_store_bf16(const PdIndexStore args) {
  const int lane = threadIdx.x % 32;
  const int work = blockIdx.x * kWarps + threadIdx.x / 32;
  int64_t slot, position;
  if (work >= args.count || !placed(args, work, slot, position)) return;  // the whole warp, or none of it

  float value[4];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    value[i] = element(args.kv, static_cast<int64_t>(work) * kDim + lane * 4 + i, args.kv_fp32);
    squares = fmaf(value[i], value[i], squares);
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) squares += shuffle_xor(squares, mask);
  const float norm = 1.0f / sqrtf(squares / kDim + args.eps);
#pragma unroll
  for (int i = 0; i < 4; ++i) value[i] *= norm * element(args.weight, lane * 4 + i, args.weight_fp32);

  if (lane >= 16) {  // the last 64 dimensions turn, in pairs
    const float* turn = args.freqs + position * kRope + (lane - 16) * 4;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float real = value[i], imaginary = value[i + 1];
      value[i] = real * turn[i] - imaginary * turn[i + 1];
      value[i + 1] = real * turn[i + 1] + imaginary * turn[i];
    }
  }

#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & step) continue;
      const float low = value[i], high = value[i + step];
      value[i] = low + high;
      value[i + step] = low - high;
    }
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float other = shuffle_xor(value[i], mask);
      value[i] = lane & mask ? other - value[i] : value[i] + other;
    }
  }

  constexpr float kScale = 0.08838834764831845f;  // 128^-1/2
  const uint32_t words[2] = {to_bf16(value[0] * kScale) | to_bf16(value[1] * kScale) << 16,
                             to_bf16(value[2] * kScale) | to_bf16(value[3] * kScale) << 16};
  memcpy(__builtin_assume_aligned(args.pages + slot * kDim + lane * 4, 8), words, 8);
}

// The pages and the run of tiles that one CTA of a row has, and what it reads them with.
struct Run {
  const int32_t* table;
  int64_t page_count;
  int32_t length, first, last;

  // The page of a tile, -1 when the table names one outside the pool.
  PD_DEVICE int64_t page(int tile) const {
    const int64_t page = table[tile / (kPage / kTile)];
    return page >= 0 && page < page_count ? page : -1;
  }
};

PD_DEVICE int clamp_to(int64_t value, int64_t top) { return static_cast<int>(value < 0 ? 0 : value < top ? value : top); }

// Pages are dealt out by each row's own length, so a short row among long ones is still spread over all its CTAs.
PD_DEVICE Run run_of(const PdIndexLogits& args, int row, int chunk) {
  const int64_t room = static_cast<int64_t>(args.table_width) * kPage;
  const int length = clamp_to(args.lengths[row], room < args.columns ? room : args.columns);
  const int tiles = (length + kTile - 1) / kTile;
  const int pages = (length + kPage - 1) / kPage;
  const int per = (pages + args.chunks - 1) / args.chunks * (kPage / kTile);
  return {args.table + row * args.table_stride, args.page_count, length, clamp_to(static_cast<int64_t>(chunk) * per, tiles),
          clamp_to(static_cast<int64_t>(chunk + 1) * per, tiles)};
}

// 16 heads of a row as the A operand of eight 16-wide steps (PTX, m16n8k16): two dimensions a register.
PD_DEVICE void load_query(uint32_t (&query)[8][4], const uint8_t* q, int warp, int lane) {
#pragma unroll
  for (int step = 0; step < 8; ++step) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int head = warp * 16 + lane / 4 + part % 2 * 8;
      const uint8_t* at = q + head * kDim + step * 16 + lane % 4 * 2 + part / 2 * 8;
      query[step][part] = e4m3_to_bf16(at[0]) | e4m3_to_bf16(at[1]) << 16;
    }
  }
}

PD_DEVICE void fetch(Shared& shared, const PdIndexLogits& args, const Run& run, int tile, int thread) {
  const int64_t page = tile < run.last ? run.page(tile) : -1;
  if (page >= 0) {
    const uint16_t* from = args.pages + (page * kPage + tile % (kPage / kTile) * kTile) * kDim;
#pragma unroll
    for (int i = 0; i < kTile * kChunks / kThreads; ++i) {
      const int key = (i * kThreads + thread) / kChunks, chunk = thread % kChunks;
      copy_16(&shared.keys[tile % kStages][key][(chunk ^ (key % 8)) * 8], from + key * kDim + chunk * 8);
    }
  }
  close_group();  // an empty group too: the count of groups is the count of tiles
}

// This warp's heads against one tile: lane (g, c) ends with key (g / 2) * 8 + 2 c + g % 2, summed over 16 heads.
PD_DEVICE float score(const uint16_t (&keys)[kTile][kDim], const uint32_t (&query)[8][4], float weight, float weight_8, int lane) {
  float acc[kTile / 8][4] = {};
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      uint32_t matrix[4];
      const int chunk = pair * 4 + lane / 8;
      load_matrices(matrix, &keys[n * 8 + lane % 8][(chunk ^ (lane % 8)) * 8]);
      multiply_add(acc[n], query[pair * 2], matrix[0], matrix[1]);
      multiply_add(acc[n], query[pair * 2 + 1], matrix[2], matrix[3]);
    }
  }
  float sum[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {  // fmaxf(NaN, 0) is 0: a NaN product scores nothing
    sum[i] = fmaf(fmaxf(acc[i / 2][i % 2], 0.0f), weight, fmaxf(acc[i / 2][i % 2 + 2], 0.0f) * weight_8);
  }
#pragma unroll
  for (int half = 4; half >= 1; half /= 2) {  // each step halves the keys a lane has and doubles the heads they are summed over
    const bool upper = lane & (half * 4);
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float given = upper ? sum[i] : sum[i + half];
      const float kept = upper ? sum[i + half] : sum[i];
      sum[i] = kept + shuffle_xor(given, half * 4);
    }
  }
  return sum[0];
}

PD_DEVICE void finish(const Shared& shared, const Run& run, float* logits, int tile, int warp, int lane) {
  if (warp != tile % kWarps) return;
  const float(&partial)[kWarps][kTile] = shared.partial[tile % 2];
  float sum = partial[0][lane];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) sum += partial[i][lane];
  const int column = tile * kTile + lane;
  if (column >= run.length) return;
  logits[column] = run.page(tile) < 0 ? -INFINITY : sum == sum ? sum : 0.0f;
}

// CTA = (run of pages, row); 16 heads a warp. One barrier a tile: it shows the tile's keys and the last tile's partial sums.
PD_GLOBAL(kThreads, 3) index_logits_bf16(const PdIndexLogits args) {
  Shared& shared = pd::shared<Shared>();
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int row = blockIdx.y, chunk = blockIdx.x;
  const Run run = run_of(args, row, chunk);
  float* logits = args.logits + static_cast<int64_t>(row) * args.columns;

  // The columns past the context are dealt out too.
  const int64_t rest = args.columns - run.length;
  const int64_t start = run.length + rest * chunk / args.chunks, end = run.length + rest * (chunk + 1) / args.chunks;
  for (int64_t column = start + thread; column < end; column += kThreads) logits[column] = -INFINITY;
  if (run.first >= run.last) return;

#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch(shared, args, run, run.first + i, thread);
  uint32_t query[8][4];
  load_query(query, args.q + static_cast<int64_t>(row) * kHeads * kDim, warp, lane);
  const float* weights = args.weights + static_cast<int64_t>(row) * kHeads + warp * 16 + lane / 4;
  const float weight = weights[0], weight_8 = weights[8];

  for (int tile = run.first; tile < run.last; ++tile) {
    wait_groups<kStages - 2>();
    barrier();
    if (tile > run.first) finish(shared, run, logits, tile - 1, warp, lane);
    fetch(shared, args, run, tile + kStages - 1, thread);  // into the stage that every warp left before this barrier
    const int group = lane / 4, key = group / 2 * 8 + lane % 4 * 2 + group % 2;
    shared.partial[tile % 2][warp][key] = score(shared.keys[tile % kStages], query, weight, weight_8, lane);
  }
  barrier();
  finish(shared, run, logits, run.last - 1, warp, lane);
}

}  // namespace pd
