// Distributions of floats that are functions of a uniform or a normal number.
#include "backends/cuda/random/philox.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct Uniform : UnitDraw<drawn_t<T>> {
  using R = drawn_t<T>;
  R from, range, to;
  // The interval is closed at the beginning and open at the end, the reverse of the drawn number. The element is
  // rounded.
  __device__ T operator()(R u, int64_t) const {
    const T value = convert<T>(u * range + from);
    return convert<R>(value) == to ? convert<T>(from) : value;
  }
};
template <class R>
struct Normal : NormalDraw<R> {
  R mean, std;
  __device__ R operator()(R z, int64_t) const { return z * std + mean; }
};
template <class R>
struct LogNormal : NormalDraw<R> {
  R mean, std;
  __device__ R operator()(R z, int64_t) const { return ::exp(z * std + mean); }
};
template <class R>
__host__ __device__ R epsilon() {
  return sizeof(R) == 8 ? R(2.220446049250313e-16) : R(1.1920928955078125e-07);
}
template <class R>
struct Exponential : UnitDraw<R> {
  R lambd;
  __device__ R operator()(R u, int64_t) const {
    // A logarithm of one would be an arrival at time zero.
    const R half = epsilon<R>() / R(2);
    return R(-1) / lambd * (u >= R(1) - half ? -half : ::log(u));
  }
};
template <class R>
struct Cauchy : UnitDraw<R> {
  R median, sigma;
  __device__ R operator()(R u, int64_t) const {
    const R eps = epsilon<R>();
    u = u > R(1) - eps ? R(1) - eps : u < eps ? eps : u;
    return median + sigma * ::tan(R(3.14159265358979323846) * (u - R(0.5)));
  }
};
template <class R>
struct Geometric : UnitDraw<R> {
  R log_failure;
  __device__ R operator()(R u, int64_t) const { return ::ceil(::log(u) / log_failure); }
};
template <class R>
struct Bernoulli : UnitDraw<R> {
  R p;
  __device__ bool operator()(R u, int64_t) const { return u < p; }
};
// Elements in fours, each four from one subsequence: torch compares doubles where the result is of doubles, else
// floats.
template <class T, class P>
struct BernoulliFours {
  T* out;
  const P* p;
  int64_t n;
  PhiloxPlace from;
  __device__ void operator()(int64_t four) const {
    const uint4 w = philox_words(from.current_seed(), static_cast<uint64_t>(four), from.current_offset() / 4);
    const float drawn[4] = {unit(w.x), unit(w.y), unit(w.z), unit(w.w)};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t i = four * 4 + j;
      using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
      if (i < n) out[i] = convert<T>(static_cast<C>(drawn[j]) <= convert<C>(p[i]));
    }
  }
};

template <template <class> class D, class... Numbers>
void draw_floating(const char* op, const TensorView& out, const Generator& generator, Numbers... numbers) {
  visit_floating(op, out.dtype, [&]<class T>(Tag<T>) {
    using R = drawn_t<T>;
    draw<T>(out, generator, D<R>{{}, static_cast<R>(numbers)...});
  });
}

}  // namespace

// Complex numbers are drawn as twice as many real ones.
static TensorView real_parts(const TensorView& t) {
  if (!is_complex(t.dtype)) return t;
  TensorView parts = t;
  parts.dtype = t.dtype == DType::Complex64   ? DType::Float32
                : t.dtype == DType::Complex32 ? DType::Float16
                                              : DType::Float64;
  parts.numel = 2 * t.numel;
  return parts;
}

void random_uniform(const TensorView& out, double from, double to, Generator generator) {
  const TensorView parts = real_parts(out);
  visit_floating("uniform_", parts.dtype, [&]<class T>(Tag<T>) {
    using R = drawn_t<T>;
    draw<T>(parts, generator,
            Uniform<T>{{}, static_cast<R>(from), static_cast<R>(to) - static_cast<R>(from), static_cast<R>(to)});
  });
}
// The parts of complex numbers share the variance, and each has the mean.
void random_normal(const TensorView& out, double mean, double std, Generator generator, bool) {
  draw_floating<Normal>("normal_", real_parts(out), generator, mean,
                        is_complex(out.dtype) ? std * 0.70710678118654752440 : std);
}
void random_log_normal(const TensorView& out, double mean, double std, Generator generator) {
  MICA_CHECK(std > 0, "log_normal_ expects std > 0.0, but found std=", std);
  draw_floating<LogNormal>("log_normal_", out, generator, mean, std);
}
void random_exponential(const TensorView& out, double lambd, Generator generator) {
  MICA_CHECK(lambd > 0, "exponential_ expects lambda > 0.0, but found lambda=", lambd);
  draw_floating<Exponential>("exponential_", out, generator, lambd);
}
void random_cauchy(const TensorView& out, double median, double sigma, Generator generator) {
  MICA_CHECK(sigma > 0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  draw_floating<Cauchy>("cauchy_", out, generator, median, sigma);
}
void random_geometric(const TensorView& out, double p, Generator generator) {
  MICA_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  visit_real("geometric_", out.dtype, [&]<class T>(Tag<T>) {
    using R = drawn_t<T>;
    draw<T>(out, generator, Geometric<R>{{}, static_cast<R>(std::log1p(-p))});
  });
}
void random_bernoulli(const TensorView& out, double p, Generator generator) {
  visit_real_bool("bernoulli_", out.dtype, [&]<class T>(Tag<T>) {
    using R = drawn_t<T>;
    draw<T>(out, generator, Bernoulli<R>{{}, static_cast<R>(p)});
  });
}
void random_bernoulli_each(const TensorView& out, const TensorView& p, Generator generator) {
  visit_floating("bernoulli_", p.dtype, [&]<class P>(Tag<P>) {
    visit_real_bool("bernoulli_", out.dtype, [&]<class T>(Tag<T>) {
      DeviceGuard guard(out.device.index());
      PhiloxGenerator& source = philox(generator);
      std::lock_guard lock(generator.mutex());
      for_each(out.device.index(), (out.numel + 3) / 4,
               BernoulliFours<T, P>{out.ptr<T>(), p.ptr<const P>(), out.numel, take_place(source, 10)});
    });
  });
}

}  // namespace mica::cuda
