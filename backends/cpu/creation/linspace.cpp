#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

// Computed from both ends towards the middle, so that the last element is exactly `end`.
void linspace_kernel(const TensorView& out, Scalar start, Scalar end) {
  const int64_t n = out.numel, stride = out.strides[0];
  visit_number("linspace", out.dtype, [&]<class T>(Tag<T>) {
    using Step = std::conditional_t<std::is_integral_v<T>, double, T>;
    auto* o = out.ptr<T>();
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      const float from = start.cast<T>(), to = end.cast<T>(),
                  step = n > 1 ? (to - from) / static_cast<float>(n - 1) : 0.f;
      for (int64_t i = 0; i < n; ++i)
        o[i * stride] = T(i < n / 2 ? from + step * static_cast<float>(i) : to - step * static_cast<float>(n - 1 - i));
    } else {
      // Bounds of integers lose their fractions before the step is worked out.
      const Step from = static_cast<Step>(start.cast<T>()), to = static_cast<Step>(end.cast<T>()),
                 step = n > 1 ? (to - from) / Step(static_cast<double>(n - 1)) : Step(0);
      parallel_for(0, n, 32768, [&](int64_t begin, int64_t stop) {
        for (int64_t i = begin; i < stop; ++i)
          o[i * stride] = static_cast<T>(i < n / 2 ? from + step * Step(static_cast<double>(i))
                                                   : to - step * Step(static_cast<double>(n - 1 - i)));
      });
      if (n == 1) o[0] = static_cast<T>(from);
    }
  });
  if (n == 1 && (out.dtype == DType::Float16 || out.dtype == DType::BFloat16))
    visit_floating("linspace", out.dtype, [&]<class T>(Tag<T>) { out.ptr<T>()[0] = start.cast<T>(); });
}

MICA_REGISTER_CPU(linspace, linspace_kernel);

}  // namespace
}  // namespace mica::cpu
