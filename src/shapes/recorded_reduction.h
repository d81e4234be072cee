// Reductions that compiled functions put off.
#pragma once

#include <bit>
#include <string_view>

#include "core/recorded_rows.h"
#include "shapes/reduced_dims.h"

namespace mica::shapes {

using ReductionKernel = void(const TensorView& out, const TensorView& self, uint64_t dims);

// The number of leading dimensions of a reduction over all dimensions after them, if each result is computed from one
// run of elements, in an order that does not depend on the other results. Otherwise 0.
inline int leading_dims(const Tensor& t, uint64_t dims) {
  constexpr int64_t kLongRun = 32768;  // longer runs are cut where there are few of them
  const int lead = std::countr_zero(dims);
  if (dims == kAllDims || lead == 0 || lead >= t.dim() || dims >> lead != (uint64_t{1} << (t.dim() - lead)) - 1)
    return 0;
  int64_t run = 1;
  for (int64_t d = t.dim() - 1; d >= lead; --d) {
    if (t.sizes()[d] != 1 && t.strides()[d] != run) return 0;
    run *= t.sizes()[d];
  }
  return run < kLongRun ? lead : 0;
}

// Calls the kernel, or puts it off while a compiled function runs.
inline void reduce(const char* name, ReductionKernel* kernel, const Tensor& target, const Tensor& t, uint64_t dims) {
  if (thread_modes & mode_bit::kRecord) {
    const auto body = [kernel, dims](const TensorView* v, int dropped) { kernel(v[0], v[1], dims >> dropped); };
    const bool is_mean = std::string_view(name) == "reduce_mean";
    if (recording::put_off(name, {&target}, {&t}, leading_dims(t, dims), body)) return;
    if ((is_mean || std::string_view(name) == "reduce_sum") && recording::put_off_sum(name, target, t, is_mean, body))
      return;
  }
  kernel(target.view_of(), t.view_of(), dims);
}

}  // namespace mica::shapes
