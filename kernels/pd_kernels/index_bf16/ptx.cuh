// What the kernels need of the machine, as PTX. host/machine.h has the same names for a CPU.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#define PD_GLOBAL(threads, ctas) extern "C" __global__ void __launch_bounds__(threads, ctas)
#define PD_DEVICE __device__ __forceinline__

namespace pd {

template <class T>
PD_DEVICE T& shared() {
  __shared__ T memory;
  return memory;
}

PD_DEVICE void barrier() { __syncthreads(); }

PD_DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// 16 bytes from global to shared memory, past L1. Visible after wait_copies and a barrier.
PD_DEVICE void copy_16(void* shared_at, const void* global_at) {
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared_at));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global_at) : "memory");
}

PD_DEVICE void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
PD_DEVICE void wait_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8x8 matrices of 16 bits; lane l gives the address of row l % 8 of matrix l / 8.
PD_DEVICE void load_matrices(uint32_t (&to)[4], const void* row) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}

// acc[16, 8] += a[16, 16] b[16, 8], bf16 with fp32 accumulation.
PD_DEVICE void multiply_add(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace pd
