// The C ABI on a CPU: the kernels of index_bf16.cuh, launched by machine.h. For tests; slow.
#include "machine.h"

#include "../index_bf16.cuh"

extern "C" int pd_index_abi(void) { return PD_INDEX_ABI; }

extern "C" uint64_t pd_index_sizes(void) { return static_cast<uint64_t>(sizeof(PdIndexStore)) << 32 | sizeof(PdIndexLogits); }

extern "C" const char* pd_index_error(int) { return "none: this is the CPU"; }

extern "C" void pd_host_copies(int late) { pd::late_copies = late != 0; }

extern "C" int pd_index_store(const PdIndexStore* args, int, void*) {
  pd::launch((args->count + pd::kWarps - 1) / pd::kWarps, 1, pd::kThreads, [&] { pd::index_k_store_bf16(*args); });
  return 0;
}

extern "C" int pd_index_logits(const PdIndexLogits* args, int, void*) {
  pd::launch(args->chunks, args->rows, pd::kThreads, [&] { pd::index_logits_bf16(*args); });
  return 0;
}
