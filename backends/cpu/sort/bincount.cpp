// How often each of few integers occurs.
#include <algorithm>
#include <vector>

#include "backends/cpu/register.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/backend/tensor_view.h"

namespace mica::cpu {
namespace {

// Neighbours are often equal, and an addition to memory waits for an earlier one to the same place. So four tables take
// turns.
template <class T>
void count_values(const T* values, int64_t n, int64_t bins, int64_t* counts) {
  constexpr int64_t kTables = 4, kMostBins = 4096;
  std::fill(counts, counts + bins, int64_t{0});
  if (bins > kMostBins) {
    for (int64_t i = 0; i < n; ++i) ++counts[values[i]];
    return;
  }
  std::vector<int64_t> tables(static_cast<size_t>(kTables * bins), 0);
  int64_t i = 0;
  for (; i + kTables <= n; i += kTables)
    for (int64_t t = 0; t < kTables; ++t) ++tables[static_cast<size_t>(t * bins + static_cast<int64_t>(values[i + t]))];
  for (; i < n; ++i) ++tables[static_cast<size_t>(values[i])];
  for (int64_t b = 0; b < bins; ++b)
    for (int64_t t = 0; t < kTables; ++t) counts[b] += tables[static_cast<size_t>(t * bins + b)];
}

// The values are read in their own dtype, whose width decides what counting costs.
void bincount_kernel(const TensorView& counts, const TensorView& values) {
  visit_integral("bincount_cpu", values.dtype, [&]<class T>(Tag<T>) {
    count_values(values.ptr<T>(), values.numel, counts.numel, counts.ptr<int64_t>());
  });
}

MICA_REGISTER_CPU(bincount, bincount_kernel);

}  // namespace
}  // namespace mica::cpu
