// arange, linspace.
#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct IntegerSteps {
  T* out;
  int64_t stride;
  uint64_t start, step;
  __device__ void operator()(int64_t i) const {
    out[i * stride] = static_cast<T>(start + static_cast<uint64_t>(i) * step);
  }
};
// Floating sequences are computed in double, as start + i * step.
template <class T>
struct FloatingSteps {
  T* out;
  int64_t stride;
  double start, step;
  __device__ void operator()(int64_t i) const { out[i * stride] = convert<T>(start + step * static_cast<double>(i)); }
};
// From both ends towards the middle, so that the last element is exactly the end.
template <class T, class S>
struct Between {
  T* out;
  int64_t stride, n;
  S from, to, step;
  __device__ void operator()(int64_t i) const {
    const bool first_half = i < n / 2 || n == 1;
    out[i * stride] = convert<T>(first_half ? from + step * S(static_cast<double>(i))
                                            : to - step * S(static_cast<double>(n - 1 - i)));
  }
};

}  // namespace

void arange(const TensorView& out, Scalar start, Scalar step) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const int64_t stride = out.ndim ? out.strides[0] : 1;
  visit_real("arange", out.dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_integral_v<T>) {
      for_each(out.device.index(), out.numel,
               IntegerSteps<T>{out.ptr<T>(), stride, static_cast<uint64_t>(start.cast<int64_t>()),
                               static_cast<uint64_t>(step.cast<int64_t>())});
    } else {
      for_each(out.device.index(), out.numel,
               FloatingSteps<T>{out.ptr<T>(), stride, start.cast<double>(), step.cast<double>()});
    }
  });
}

void linspace(const TensorView& out, Scalar start, Scalar end) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const int64_t n = out.numel, stride = out.strides[0];
  visit_number("linspace", out.dtype, [&]<class T>(Tag<T>) {
    using S = std::conditional_t<std::is_integral_v<T>, double, compute_t<T>>;
    S from, to;
    if constexpr (std::is_integral_v<T>) {
      // Bounds of integers lose their fractions before the step is worked out.
      from = static_cast<S>(start.cast<T>());
      to = static_cast<S>(end.cast<T>());
    } else if constexpr (std::is_same_v<T, half>) {
      from = static_cast<float>(start.cast<Half>()), to = static_cast<float>(end.cast<Half>());
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      from = static_cast<float>(start.cast<BFloat16>()), to = static_cast<float>(end.cast<BFloat16>());
    } else {
      from = number<S>(start);
      to = number<S>(end);
    }
    const S step = n > 1 ? (to - from) / S(static_cast<double>(n - 1)) : S(0);
    for_each(out.device.index(), n, Between<T, S>{out.ptr<T>(), stride, n, from, to, step});
  });
}

}  // namespace mica::cuda
