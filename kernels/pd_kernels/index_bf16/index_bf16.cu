// The launchers of the C ABI.
#include <math.h>
#include <string.h>

#include "ptx.cuh"

#include "index_bf16.cuh"

extern "C" int pd_index_abi(void) { return PD_INDEX_ABI; }

extern "C" uint64_t pd_index_sizes(void) { return static_cast<uint64_t>(sizeof(PdIndexStore)) << 32 | sizeof(PdIndexLogits); }

extern "C" const char* pd_index_error(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

// The static runtime of this library has a current device of its own: it is told the caller's.
extern "C" int pd_index_store(const PdIndexStore* args, int device, void* stream) {
  if (const cudaError_t failed = cudaSetDevice(device)) return failed;
  if (args->count > 0) {
    pd::index_k_store_bf16<<<(args->count + pd::kWarps - 1) / pd::kWarps, pd::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
  }
  return cudaGetLastError();
}

extern "C" int pd_index_logits(const PdIndexLogits* args, int device, void* stream) {
  if (const cudaError_t failed = cudaSetDevice(device)) return failed;
  if (args->rows > 0 && args->columns > 0) {
    pd::index_logits_bf16<<<dim3(args->chunks, args->rows), pd::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
  }
  return cudaGetLastError();
}
