// Samples that take as many numbers as they need: of gamma and Dirichlet distributions, with how they move with their
// parameters, of Poisson and binomial ones.
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

// ---- counts

// Below 64 events Knuth's products of uniform numbers and above 4000 a rounded normal number, both with cuRAND's
// numbers, as in torch; between them Hormann's transformed rejection, where torch inverts an incomplete gamma function.
template <class T>
struct Poisson {
  T* out;
  const T* rate;
  PhiloxPlace place;
  __device__ static double knuth(SingleNumbers numbers, float rate) {
    float product = ::expf(rate);
    int count = -1;
    do {
      product *= numbers.next();
      ++count;
    } while (product > 1);
    return count;
  }
  __device__ static double rejection(Numbers numbers, double rate) {
    const double root = ::sqrt(rate), log_rate = ::log(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b,
                 inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), limit = 0.9277 - 3.6224 / (b - 2);
    while (true) {
      const double u = numbers.next() - 0.5, v = numbers.next(), us = 0.5 - ::fabs(u);
      const double k = ::floor((2 * a / us + b) * u + rate + 0.43);
      if (us >= 0.07 && v <= limit) return k;
      if (k < 0 || (us < 0.013 && v > us)) continue;
      if (::log(v) + ::log(inverse_alpha) - ::log(a / (us * us) + b) <= -rate + k * log_rate - ::lgamma(k + 1))
        return k;
    }
  }
  __device__ double draw(int64_t i, double rate) const {
    if (!(rate > 0)) return rate == 0 ? 0 : NAN;
    if (rate < 64) return knuth(SingleNumbers::of(place, i), static_cast<float>(rate));
    if (rate <= 4000) return rejection(Numbers::of(place, i), rate);
    double normal[2];
    NormalDraw<double>::draw(philox_words(place.current_seed(), static_cast<uint64_t>(i), place.current_offset() / 4),
                             normal);
    return ::floor(::fma(::sqrt(rate), normal[0], rate) + 0.5);
  }
  __device__ void operator()(int64_t i) const {
    out[i] = convert<T>(static_cast<compute_t<T>>(draw(i, static_cast<double>(widen(rate[i])))));
  }
};

// As torch's kernel has it: a thread draws four samples one after the other, 128 elements apart, out of numbers in [0,
// 1) with 24 bits, and computes in the dtype but for the constants.
template <class T>
struct Binomial {
  using C = compute_t<T>;
  static constexpr int kEach = 4;
  static constexpr int64_t kSide = 128;
  T* out;
  const T *count, *prob;
  int64_t n;
  PhiloxPlace place;

  static int64_t threads(int64_t n) { return (n + kSide * kEach - 1) / (kSide * kEach) * kSide; }
  __device__ static C next(SingleNumbers& numbers) {
    return static_cast<C>(static_cast<float>(numbers.next_word() & 0xffffffu) * 0x1p-24f);
  }
  // The gaps between successes are geometric: as many as fit in `n` trials.
  __device__ static C few(SingleNumbers& numbers, C n, C p) {
    const C log_failure = ::log1p(-p);
    C successes = 0, trials = 0;
    while (true) {
      trials += ::ceil(::log(next(numbers)) / log_failure);
      if (trials > n) return successes;
      successes += 1;
    }
  }
  // ln k! less Stirling's formula.
  __device__ static C remainder(C k) {
    constexpr double kFirst[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                                 0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                                 0.00925546218271273, 0.00833056343336287};
    if (k <= 9) return static_cast<C>(kFirst[static_cast<int>(k)]);
    const C square = (k + 1) * (k + 1);
    return static_cast<C>((1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1));
  }
  // W. Hoermann, "The generation of binomial random variates" (1993), BTRS.
  __device__ static C many(SingleNumbers& numbers, C n, C p) {
    const C deviation = ::sqrt(n * p * (1 - p));
    const C b = static_cast<C>(1.15 + 2.53 * deviation);
    const C a = static_cast<C>(-0.0873 + 0.0248 * b + 0.01 * p);
    const C c = static_cast<C>(n * p + 0.5);
    const C limit = static_cast<C>(0.92 - 4.2 / b);
    const C odds = p / (1 - p);
    const C alpha = static_cast<C>((2.83 + 5.1 / b) * deviation);
    const C mode = ::floor((n + 1) * p);
    while (true) {
      const C u = static_cast<C>(next(numbers) - 0.5);
      C v = next(numbers);
      const C us = static_cast<C>(0.5 - ::fabs(u)), k = ::floor((2 * a / us + b) * u + c);
      if (k < 0 || k > n) continue;
      if (us >= 0.07 && v <= limit) return k;
      v = ::log(v * alpha / (a / (us * us) + b));
      const C bound = static_cast<C>((mode + 0.5) * ::log((mode + 1) / (odds * (n - mode + 1))) +
                                     (n + 1) * ::log((n - mode + 1) / (n - k + 1)) +
                                     (k + 0.5) * ::log(odds * (n - k + 1) / (k + 1)) + remainder(mode) +
                                     remainder(n - mode) - remainder(k) - remainder(n - k));
      if (v <= bound) return k;
    }
  }
  __device__ static C draw(SingleNumbers& numbers, C n, C p) {
    if (n != n) return n;
    if (n <= 0 || p <= 0) return 0;
    if (p >= 1) return n;
    if (p != p) return p;
    const bool turned = p > C(0.5);
    const C q = turned ? static_cast<C>(1.0 - p) : p;
    const C k = n * q >= 10 ? many(numbers, n, q) : few(numbers, n, q);
    return turned ? n - k : k;
  }
  __device__ void operator()(int64_t thread) const {
    SingleNumbers numbers = SingleNumbers::of(place, thread);
    const int64_t first = thread / kSide * (kSide * kEach) + thread % kSide;
#pragma unroll 1
    for (int j = 0; j < kEach; ++j) {
      const int64_t i = first + j * kSide;
      if (i >= n) return;
      out[i] = convert<T>(draw(numbers, convert<C>(count[i]), convert<C>(prob[i])));
    }
  }
};

// A subsequence for each element. So many of its numbers are counted as torch counts.
PhiloxPlace take(const Generator& generator, uint64_t count) {
  PhiloxGenerator& source = philox(generator);
  std::lock_guard lock(generator.mutex());
  return take_place(source, count);
}

}  // namespace

void random_standard_gamma(const TensorView& out, const TensorView& alpha, Generator generator) {
  DeviceGuard guard(out.device.index());
  visit_whole_floats("_standard_gamma_cuda", out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel, Gamma<T>{out.ptr<T>(), alpha.ptr<const T>(), take(generator, 10)});
  });
}

void random_dirichlet(const TensorView& out, const TensorView& alpha, Generator generator) {
  const int device = out.device.index();
  DeviceGuard guard(device);
  if (out.numel == 0) return;
  visit_whole_floats("_sample_dirichlet_cuda", out.dtype, [&]<class T>(Tag<T>) {
    for_each(device, out.numel, Gamma<T>{out.ptr<T>(), alpha.ptr<const T>(), take(generator, 10)});
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

void random_poisson(const TensorView& out, const TensorView& rate, Generator generator) {
  DeviceGuard guard(out.device.index());
  const PhiloxPlace place = take(generator, 20);
  visit_floating("poisson", out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel, Poisson<T>{out.ptr<T>(), rate.ptr<const T>(), place});
  });
}

void random_binomial(const TensorView& out, const TensorView& count, const TensorView& prob, Generator generator) {
  DeviceGuard guard(out.device.index());
  const PhiloxPlace place = take(generator, 44);
  visit_floating("binomial", out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), Binomial<T>::threads(out.numel),
             Binomial<T>{out.ptr<T>(), count.ptr<const T>(), prob.ptr<const T>(), out.numel, place});
  });
}

}  // namespace mica::cuda
