// The C ABI of the index-key kernels: plain structs of device pointers, launched on the caller's stream.
// op.py mirrors these structs with ctypes and compares sizes when it loads the library.
#pragma once

#include <stdint.h>

#define PD_INDEX_ABI 1

#ifdef __cplusplus
extern "C" {
#endif

// RMSNorm -> RoPE(64) -> Hadamard(128) -> bf16, one key per plan entry (sglang-facts 8.4).
typedef struct {
  const void* kv;          // [count, 128] bf16, or fp32 when kv_fp32
  const void* plan;        // [count, 16] bytes: SGLang's DecodePlan, or CompressPlan when !decode
  const void* weight;      // [128] bf16, or fp32 when weight_fp32
  const float* freqs;      // [freqs_rows, 64] fp32, cosine and sine interleaved
  const int64_t* out_loc;  // [out_rows] slots
  uint16_t* pages;         // [page_count, 64, 128] bf16
  int64_t page_count;
  int32_t count, freqs_rows, out_rows, ratio;
  int32_t kv_fp32, weight_fp32, decode;
  float eps;
} PdIndexStore;

// logits[r, j] = sum over heads of w[r, h] relu(q[r, h] . k[r, j]); -inf where there is no key.
typedef struct {
  const uint8_t* q;        // [rows, 64, 128] e4m3
  const float* weights;    // [rows, 64] fp32, q's scale included
  const uint16_t* pages;   // [page_count, 64, 128] bf16
  const int32_t* lengths;  // [rows] keys of each row
  const int32_t* table;    // [rows, table_width] pages, rows table_stride apart
  float* logits;           // [rows, columns]
  int64_t page_count, table_stride;
  int32_t rows, table_width, columns, chunks;
} PdIndexLogits;

int pd_index_abi(void);
uint64_t pd_index_sizes(void);  // sizeof(PdIndexStore) << 32 | sizeof(PdIndexLogits)
int pd_index_store(const PdIndexStore* args, int device, void* stream);  // 0, or a cudaError_t
int pd_index_logits(const PdIndexLogits* args, int device, void* stream);
const char* pd_index_error(int code);

#ifdef __cplusplus
}
#endif
