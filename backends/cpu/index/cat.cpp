// cat: the output as one run of bytes, cut evenly among the threads.
#include <algorithm>
#include <cstring>

#include "backends/cpu/register.h"
#include "mica/kernel_types.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kBytesPerTask = 1 << 16;

// All tensors are contiguous and of one dtype. A row is what the dimensions before `dim` repeat: a piece of every input
// in turn.
void cat_kernel(const TensorView& out, TensorViewList inputs, int64_t dim) {
  int64_t inner = element_size(out.dtype);
  for (int d = static_cast<int>(dim) + 1; d < out.ndim; ++d) inner *= out.sizes[d];
  DimVector starts{0};  // where each input's piece begins in a row, and where the row ends
  for (const TensorView* t : inputs) starts.push_back(starts.back() + t->sizes[dim] * inner);
  const int64_t row = starts.back(), total = out.numel * element_size(out.dtype);
  auto* to = static_cast<char*>(out.data);
  parallel_for(0, total, kBytesPerTask, [&](int64_t begin, int64_t end) {
    int64_t at = begin;
    while (at < end) {
      const int64_t r = at / row, in_row = at % row;
      const auto next = std::upper_bound(starts.begin(), starts.end(), in_row);
      const auto i = static_cast<size_t>(next - starts.begin()) - 1;
      const int64_t within = in_row - starts[i];
      const int64_t count = std::min(*next - in_row, end - at);
      const char* from = static_cast<const char*>(inputs[i]->data) + r * (*next - starts[i]) + within;
      std::memcpy(to + at, from, static_cast<size_t>(count));
      at += count;
    }
  });
}

MICA_REGISTER_CPU(cat, cat_kernel);

}  // namespace
}  // namespace mica::cpu
