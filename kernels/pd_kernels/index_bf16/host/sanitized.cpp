// A small problem with hostile indices, for the sanitizers: every buffer has exactly the size that is promised.
#include <cstdio>

#include "index_host.cpp"

namespace {

template <class T>
std::unique_ptr<T[]> filled(size_t count, T value) {
  auto array = std::make_unique<T[]>(count);
  for (size_t i = 0; i < count; ++i) array[i] = value;
  return array;
}

int count_of(const float* values, int count, float wanted) {
  int found = 0;
  for (int i = 0; i < count; ++i) found += values[i] == wanted;
  return found;
}

}  // namespace

int main(int argc, char**) {
  constexpr int kPages = 3, kRows = 2, kWidth = 4, kColumns = 250;
  pd_host_copies(argc > 1);
  auto pages = filled<uint16_t>(kPages * 64 * 128, 0x3f80);                    // ones
  const auto q = filled<uint8_t>(kRows * 64 * 128, 0x38);                      // ones
  const auto weights = filled<float>(kRows * 64, 1.0f);
  const int32_t lengths[kRows] = {1 << 30, 70}, table[kRows * kWidth] = {2, -1, kPages, 0, 1, 1 << 30, 0, 0};
  auto logits = filled<float>(kRows * kColumns, NAN);
  const PdIndexLogits read{q.get(), weights.get(), pages.get(), lengths, table, logits.get(), kPages, kWidth, kRows, kWidth, kColumns, 2};
  pd_index_logits(&read, 0, nullptr);

  const auto kv = filled<uint16_t>(5 * 128, 0x3f80);
  const auto weight = filled<uint16_t>(128, 0x3f80);
  const auto freqs = filled<float>(2 * 64, 0.5f);
  const uint32_t plan[5][4] = {{4, 0}, {8, 1}, {12, 2}, {0xffffffffu, 0}, {4, 0xffff}};
  const int64_t out_loc[3] = {-1, kPages * 64 - 1, 0};
  const PdIndexStore write{kv.get(), plan, weight.get(), freqs.get(), out_loc, pages.get(), kPages, 5, 2, 3, 4, 0, 0, 0, 1e-6f};
  pd_index_store(&write, 0, nullptr);

  const int scored = count_of(logits.get(), kRows * kColumns, 64.0f * 128.0f);
  const int empty = count_of(logits.get(), kRows * kColumns, -INFINITY);
  std::printf("%d scored, %d empty\n", scored, empty);
  return scored == 64 + (kColumns - 192) + 64 && scored + empty == kRows * kColumns ? 0 : 1;
}
