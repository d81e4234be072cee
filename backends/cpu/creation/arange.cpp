#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

// Floating sequences are computed in double, as start + i * step, so that the error does not grow along the way.
void arange_kernel(const TensorView& out, Scalar start, Scalar step) {
  const int64_t stride = out.ndim ? out.strides[0] : 1;
  visit_real("arange", out.dtype, [&]<class T>(Tag<T>) {
    auto* o = out.ptr<T>();
    parallel_for(0, out.numel, 32768, [&](int64_t begin, int64_t end) {
      if constexpr (std::is_integral_v<T>) {
        const auto from = static_cast<uint64_t>(start.cast<int64_t>()),
                   by = static_cast<uint64_t>(step.cast<int64_t>());
        for (int64_t i = begin; i < end; ++i) o[i * stride] = static_cast<T>(from + static_cast<uint64_t>(i) * by);
      } else {
        const double from = start.cast<double>(), by = step.cast<double>();
        for (int64_t i = begin; i < end; ++i) o[i * stride] = static_cast<T>(from + by * static_cast<double>(i));
      }
    });
  });
}

MICA_REGISTER_CPU(arange, arange_kernel);

}  // namespace
}  // namespace mica::cpu
