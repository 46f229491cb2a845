// ptx.cuh for a CPU: every CUDA thread is a thread, what a warp does together follows PTX's fragment tables.
//
// Asynchronous copies land as early as they may (when issued) or as late as they may (when waited for), see pd_host_copies:
// the early run shows a stage that is refilled too soon, the late one a wait that is missing.
// Not covered: lanes of one warp meet at every warp instruction here, so a missing __syncwarp would not be seen.
#pragma once

#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#define PD_GLOBAL(threads, ctas) inline void
#define PD_DEVICE inline

namespace pd {

struct Index {
  int x = 0, y = 0;
};

struct Warp {
  std::barrier<> meet{32};
  uint32_t slots[2][32][6];
};

struct Cta {
  explicit Cta(int threads) : meet(threads), warps(threads / 32) {}
  std::barrier<> meet;
  std::vector<Warp> warps;
};

struct Copy {
  void* to;
  const void* from;
};

inline bool late_copies = false;
alignas(128) inline char shared_memory[99 * 1024];
inline thread_local Index threadIdx, blockIdx;
inline thread_local Cta* cta;
inline thread_local int turn;
inline thread_local std::deque<std::vector<Copy>> groups;
inline thread_local std::vector<Copy> open_group;

template <class T>
T& shared() {
  static_assert(sizeof(T) <= sizeof(shared_memory));
  return *reinterpret_cast<T*>(shared_memory);
}

inline void barrier() {
#ifndef PD_PLANT_NO_BARRIER
  cta->meet.arrive_and_wait();
#endif
}

// What each lane brings, for all lanes to see. Two sets of slots in turn: nobody is two exchanges ahead.
template <size_t kWords>
const uint32_t (*exchange(const uint32_t (&mine)[kWords]))[6] {
  Warp& warp = cta->warps[threadIdx.x / 32];
  uint32_t(*slots)[6] = warp.slots[turn ^= 1];
  memcpy(slots[threadIdx.x % 32], mine, sizeof(mine));
  warp.meet.arrive_and_wait();
  return slots;
}

inline float shuffle_xor(float value, int mask) {
  uint32_t bits[1];
  memcpy(bits, &value, 4);
  memcpy(&value, exchange(bits)[threadIdx.x % 32 ^ mask], 4);
  return value;
}

inline void copy_16(void* shared_at, const void* global_at) {
  if (late_copies) {
    open_group.push_back({shared_at, global_at});
  } else {
    memcpy(shared_at, global_at, 16);
  }
}

inline void close_group() {
  groups.push_back(std::move(open_group));
  open_group.clear();
}

template <int kPending>
void wait_groups() {
#ifndef PD_PLANT_NO_WAIT
  for (; groups.size() > kPending; groups.pop_front()) {
    for (const Copy& copy : groups.front()) memcpy(copy.to, copy.from, 16);
  }
#endif
}

inline void load_matrices(uint32_t (&to)[4], const void* row) {
  const uint64_t at = reinterpret_cast<uint64_t>(row);
  const auto rows = exchange({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32)});
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    const uint32_t* address = rows[i * 8 + lane / 4];
    const uint64_t from = address[0] | static_cast<uint64_t>(address[1]) << 32;
    memcpy(&to[i], reinterpret_cast<const char*>(from) + lane % 4 * 4, 4);
  }
}

inline float half_of(uint32_t word, int which) {
  const uint32_t bits = which ? word & 0xffff0000u : word << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline void multiply_add(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const auto lanes = exchange({a[0], a[1], a[2], a[3], b0, b1});
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const float left = half_of(lanes[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2);
      acc[i] += left * half_of(lanes[column * 4 + k % 8 / 2][4 + k / 8], k % 2);
    }
  }
}

// CTAs one after the other, each with shared memory full of NaN.
template <class Body>
void launch(int grid_x, int grid_y, int threads, Body body) {
  for (int y = 0; y < grid_y; ++y) {
    for (int x = 0; x < grid_x; ++x) {
      memset(shared_memory, 0xff, sizeof(shared_memory));
      const auto block = std::make_unique<Cta>(threads);
      std::vector<std::thread> all;
      for (int thread = 0; thread < threads; ++thread) {
        all.emplace_back([&, thread] {
          threadIdx = {thread, 0};
          blockIdx = {x, y};
          cta = block.get();
          body();
        });
      }
      for (std::thread& one : all) one.join();
    }
  }
}

}  // namespace pd
