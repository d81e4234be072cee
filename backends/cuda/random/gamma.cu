// Gamma and Dirichlet distributions, and how their samples move with their parameters.
#include <mutex>

#include "backends/cuda/random/numbers.cuh"
#include "backends/shared/implicit_gradients.h"

namespace mica::cuda {

namespace {

// G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables" (2000), with the numbers and the
// precision that torch has: single numbers, for doubles too.
template <class T>
__device__ T standard_gamma(T alpha, SingleNumbers& numbers) {
  if (!(alpha >= 0)) return static_cast<T>(NAN);
  if (alpha == 0) return 0;
  T scale = 1;
  if (alpha < 1) {
    scale = ::pow(T(1) - static_cast<T>(numbers.next()), T(1) / alpha);
    alpha += 1;
  }
  const T d = alpha - static_cast<T>(1.0f / 3.0f), c = T(1) / ::sqrt(T(9) * d);
  while (true) {
    T x, y;
    do {
      x = static_cast<T>(numbers.next_normal());
      y = T(1) + c * x;
    } while (y <= 0);
    const T v = y * y * y, u = T(1) - static_cast<T>(numbers.next()), xx = x * x;
    if (u < T(1) - static_cast<T>(0.0331f) * xx * xx || ::log(u) < T(0.5) * xx + d * (T(1) - v + ::log(v)))
      return scale * d * v;
  }
}

template <class T>
__device__ constexpr T smallest() {
  return static_cast<T>(sizeof(T) == 8 ? 2.2250738585072014e-308 : 1.17549435e-38);
}

template <class T>
struct Gamma {
  T* out;
  const T* alpha;
  PhiloxPlace place;
  __device__ void operator()(int64_t i) const {
    SingleNumbers numbers = SingleNumbers::of(place, i);
    const T sample = standard_gamma(alpha[i], numbers);
    out[i] = sample < smallest<T>() ? smallest<T>() : sample;
  }
};

// Gamma samples, which `values` holds, become shares of their row's sum.
template <class T>
struct Shares {
  T* values;
  int64_t categories;
  __device__ void operator()(int64_t row) const {
    T* const at = values + row * categories;
    double sum = 0;
    for (int64_t i = 0; i < categories; ++i) sum += static_cast<double>(at[i]);
    const T below_one = static_cast<T>(sizeof(T) == 8 ? 1 - 0x1p-52 : 1 - 0x1p-23);
    for (int64_t i = 0; i < categories; ++i) {
      const T share = at[i] / static_cast<T>(sum);
      at[i] = share < smallest<T>() ? smallest<T>() : share > below_one ? below_one : share;
    }
  }
};

template <class T>
struct GammaSlope {
  T* out;
  const T *alpha, *sample;
  __device__ void operator()(int64_t i) const {
    out[i] = static_cast<T>(special::gamma_slope(static_cast<double>(alpha[i]), static_cast<double>(sample[i])));
  }
};
template <class T>
struct ShareSlope {
  T* out;
  const T *share, *alpha, *total;
  __device__ void operator()(int64_t i) const {
    const double a = static_cast<double>(alpha[i]);
    out[i] = static_cast<T>(special::beta_slope(static_cast<double>(share[i]), a, static_cast<double>(total[i]) - a));
  }
};

template <class F>
void visit_whole_floats(const char* op, DType dtype, const F& f) {
  if (dtype == DType::Float32) return f(Tag<float>{});
  if (dtype == DType::Float64) return f(Tag<double>{});
  unsupported_dtype(op, dtype);
}

// A subsequence for each element. Ten of its numbers are counted, as torch counts them.
PhiloxPlace take(const Generator& generator) {
  PhiloxGenerator& source = philox(generator);
  std::lock_guard lock(generator.mutex());
  return take_place(source, 10);
}

}  // namespace

void random_standard_gamma(const TensorView& out, const TensorView& alpha, Generator generator) {
  DeviceGuard guard(out.device.index());
  visit_whole_floats("_standard_gamma_cuda", out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel, Gamma<T>{out.ptr<T>(), alpha.ptr<const T>(), take(generator)});
  });
}

void random_dirichlet(const TensorView& out, const TensorView& alpha, Generator generator) {
  const int device = out.device.index();
  DeviceGuard guard(device);
  if (out.numel == 0) return;
  visit_whole_floats("_sample_dirichlet_cuda", out.dtype, [&]<class T>(Tag<T>) {
    for_each(device, out.numel, Gamma<T>{out.ptr<T>(), alpha.ptr<const T>(), take(generator)});
    const int64_t categories = alpha.sizes[alpha.ndim - 1];
    for_each(device, out.numel / categories, Shares<T>{out.ptr<T>(), categories});
  });
}

void standard_gamma_grad(const TensorView& out, const TensorView& alpha, const TensorView& sample) {
  DeviceGuard guard(out.device.index());
  visit_whole_floats("_standard_gamma_grad_cuda", out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel, GammaSlope<T>{out.ptr<T>(), alpha.ptr<const T>(), sample.ptr<const T>()});
  });
}

void dirichlet_grad(const TensorView& out, const TensorView& share, const TensorView& alpha, const TensorView& total) {
  DeviceGuard guard(out.device.index());
  visit_whole_floats("_dirichlet_grad_cuda", out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel,
             ShareSlope<T>{out.ptr<T>(), share.ptr<const T>(), alpha.ptr<const T>(), total.ptr<const T>()});
  });
}

}  // namespace mica::cuda
