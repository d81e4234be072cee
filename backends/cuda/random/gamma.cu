// Gamma and Dirichlet distributions, and how their samples move with their parameters.
#include <mutex>

#include "backends/cuda/allocator.h"
#include "backends/cuda/random/numbers.cuh"
#include "backends/functors/implicit_gradients.h"

namespace mica::cuda {

namespace {

// G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables" (2000).
__device__ double standard_gamma(double alpha, Numbers& numbers) {
  if (!(alpha >= 0)) return NAN;
  if (alpha == 0) return 0;
  double scale = 1;
  if (alpha < 1) {
    scale = ::pow(numbers.next(), 1 / alpha);
    alpha += 1;
  }
  const double d = alpha - 1.0 / 3, c = 1 / ::sqrt(9 * d);
  while (true) {
    double x, y;
    do {
      x = numbers.next_normal();
      y = 1 + c * x;
    } while (y <= 0);
    const double v = y * y * y, u = numbers.next(), xx = x * x;
    if (u < 1 - 0.0331 * xx * xx || ::log(u) < 0.5 * xx + d * (1 - v + ::log(v))) return scale * d * v;
  }
}

template <class T>
struct Smallest {
  static constexpr double value = sizeof(T) == 8 ? 2.2250738585072014e-308 : 1.17549435e-38;
};

template <class T>
struct Gamma {
  T* out;
  const T* alpha;
  PhiloxPlace place;
  __device__ void operator()(int64_t i) const {
    Numbers numbers = Numbers::of(place, i);
    const T sample = static_cast<T>(standard_gamma(static_cast<double>(alpha[i]), numbers));
    out[i] = sample < static_cast<T>(Smallest<T>::value) ? static_cast<T>(Smallest<T>::value) : sample;
  }
};

template <class T>
struct GammaOfShare {
  double* out;
  const T* alpha;
  PhiloxPlace place;
  __device__ void operator()(int64_t i) const {
    Numbers numbers = Numbers::of(place, i);
    const double sample = standard_gamma(static_cast<double>(alpha[i]), numbers);
    out[i] = sample < Smallest<double>::value ? Smallest<double>::value : sample;
  }
};
template <class T>
struct Shares {
  T* out;
  const double* gammas;
  int64_t categories;
  __device__ void operator()(int64_t row) const {
    const double* from = gammas + row * categories;
    double sum = 0;
    for (int64_t i = 0; i < categories; ++i) sum += from[i];
    const T smallest = static_cast<T>(Smallest<T>::value),
            below_one = static_cast<T>(sizeof(T) == 8 ? 0.99999999999999989 : 0.99999994);
    for (int64_t i = 0; i < categories; ++i) {
      const T share = static_cast<T>(from[i] / sum);
      out[row * categories + i] = share < smallest ? smallest : share > below_one ? below_one : share;
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

// A subsequence for each element, and so many of its words that a second call hardly meets them.
PhiloxPlace take(const Generator& generator) {
  PhiloxGenerator& source = philox(generator);
  std::lock_guard lock(generator.mutex());
  return take_place(source, 40);
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
    const Workspace gammas(static_cast<size_t>(out.numel) * sizeof(double), device);
    auto* const values = static_cast<double*>(gammas.data());
    for_each(device, out.numel, GammaOfShare<T>{values, alpha.ptr<const T>(), take(generator)});
    const int64_t categories = alpha.sizes[alpha.ndim - 1];
    for_each(device, out.numel / categories, Shares<T>{out.ptr<T>(), values, categories});
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
