#include "backends/cpu/pointwise/divisor.h"

#include <atomic>

#include "backends/cpu/pointwise/run_loop.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/error.h"

namespace mica::cpu {

namespace {

template <class T>
void find_zero_loop(char* const* data, const int64_t* strides, int64_t n, const void* context) {
  auto* a = reinterpret_cast<const T*>(data[0]);
  bool found = false;
  const int64_t count = strides[0] == 0 ? (n > 0) : n;
  for (int64_t i = 0; i < count; ++i) found |= a[i] == 0;
  if (found) static_cast<std::atomic<bool>*>(const_cast<void*>(context))->store(true, std::memory_order_relaxed);
}

}  // namespace

void check_divisor(const PointwiseLoop& loop, int operand) {
  std::atomic<bool> found{false};
  if (loop.ndim == 1 && (loop.numel <= kMemoryGrain || loop.strides[0][operand] == 0) &&
      (loop.strides[0][operand] == 0 || loop.strides[0][operand] == element_size(loop.dtype))) {
    visit_integral("div_cpu", loop.dtype, [&]<class T>(Tag<T>) {
      find_zero_loop<T>(loop.data + operand, loop.strides[0] + operand, loop.numel, &found);
    });
    MICA_CHECK(!found, "ZeroDivisionError");
    return;
  }
  PointwiseLoop divisor = loop;
  divisor.noperands = 1;
  divisor.noutputs = 0;
  divisor.data[0] = loop.data[operand];
  divisor.dtypes[0] = loop.dtypes[operand];
  for (int d = 0; d < loop.ndim; ++d) divisor.strides[d][0] = loop.strides[d][operand];
  visit_integral("div_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_dense(divisor, find_zero_loop<T>, &found); });
  MICA_CHECK(!found, "ZeroDivisionError");
}

}  // namespace mica::cpu
