// Norms, variance, logsumexp.
#include "backends/cuda/reduce/reduce.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct RealOf {
  using type = T;
};
template <class R>
struct RealOf<Complex<R>> {
  using type = R;
};

// A function that is called, where it would be inlined dozens of times.
template <class C>
__device__ __noinline__ C power(C a, C p) {
  return ::pow(a, p);
}

// The order two has kernels of its own; the others share theirs.
enum class Order { Zero, One, Largest, Smallest, Other };

template <class T>
struct SquareNorm {
  using In = T;
  using Acc = compute_t<typename RealOf<T>::type>;
  Results<typename RealOf<T>::type> out;
  __device__ Acc identity() const { return 0; }
  __device__ Acc load(T v, int64_t) const {
    if constexpr (is_complex_v<T>) {
      return v.real() * v.real() + v.imag() * v.imag();
    } else {
      const Acc a = convert<Acc>(v);
      return a * a;
    }
  }
  __device__ Acc combine(Acc a, Acc b) const { return a + b; }
  __device__ void store(Acc a, int64_t at, int64_t) const { out.set(at, ::sqrt(a)); }
};

template <class T>
struct Norm {
  static constexpr bool kRare = true;
  using In = T;
  using Acc = compute_t<typename RealOf<T>::type>;
  Results<typename RealOf<T>::type> out;
  Acc p;
  Order order;
  __device__ Acc identity() const { return order == Order::Smallest ? static_cast<Acc>(INFINITY) : Acc(0); }
  __device__ Acc load(T v, int64_t) const {
    Acc a;
    if constexpr (is_complex_v<T>) {
      a = abs(v);
    } else {
      a = ::fabs(convert<Acc>(v));
    }
    if (order == Order::Zero) return a != Acc(0);
    return order == Order::Other ? power(a, p) : a;
  }
  __device__ Acc combine(Acc a, Acc b) const {
    if (order == Order::Largest) return a != a || a > b ? a : b;
    if (order == Order::Smallest) return a != a || a < b ? a : b;
    return a + b;
  }
  __device__ void store(Acc a, int64_t at, int64_t) const {
    out.set(at, order == Order::Other ? power(a, Acc(1) / p) : a);
  }
};

// Welford's running mean and sum of squared deviations.
template <class C>
struct Moments {
  C mean, squares, count;
};
template <class T>
struct Variance {
  static constexpr bool kRare = std::is_same_v<T, double>;
  using In = T;
  using C = compute_t<T>;
  using Acc = Moments<C>;
  T *out, *mean;
  double total, correction;
  bool root;
  __device__ Acc identity() const { return {C(0), C(0), C(0)}; }
  __device__ Acc load(T v, int64_t) const { return {convert<C>(v), C(0), C(1)}; }
  __device__ Acc combine(Acc a, Acc b) const {
    if (b.count == C(1) && a.count > C(0)) {
      const C delta = b.mean - a.mean, count = a.count + C(1), mean = a.mean + delta / count;
      return {mean, a.squares + delta * (b.mean - mean), count};
    }
    if (a.count == C(0)) return b;
    if (b.count == C(0)) return a;
    const C count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
    return {a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share, count};
  }
  // Elements that come together have their own mean and deviations first, so that one division is enough for all.
  template <int kCount>
  __device__ void absorb_any(Acc& a, const T (&v)[kCount]) const {
    C mean = C(0), squares = C(0);
#pragma unroll
    for (int j = 0; j < kCount; ++j) mean += convert<C>(v[j]);
    mean *= C(1) / C(kCount);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const C d = convert<C>(v[j]) - mean;
      squares += d * d;
    }
    const C count = a.count + C(kCount), delta = mean - a.mean, share = C(kCount) / count;
    a = {a.mean + delta * share, a.squares + (squares + delta * delta * a.count * share), count};
  }
  __device__ void store(Acc a, int64_t at, int64_t second) const {
    const double free = total - correction;
    double v = static_cast<double>(a.squares) / (free > 0 ? free : 0);
    if (total == 0) v = NAN;
    out[at] = convert<T>(static_cast<C>(root ? ::sqrt(v) : v));
    if (mean) mean[second] = convert<T>(total == 0 ? static_cast<C>(NAN) : a.mean);
  }
};

template <class C>
struct Shifted {
  C largest, sum;
};

// exp of a number that is not positive, for a sum that has a one in it. The rounding of the product is off by as much
// as the number is large, and the exponential has become small by then. A subnormal result is zero.
__device__ float exp_in_sum(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634f));
  return result;
}
__device__ double exp_in_sum(double x) { return ::exp(x); }

template <class T>
struct LogSumExp {
  static constexpr bool kRare = std::is_same_v<T, double>;
  using In = T;
  using C = compute_t<T>;
  using Acc = Shifted<C>;
  T* out;
  __device__ Acc identity() const { return {-static_cast<C>(INFINITY), C(0)}; }
  __device__ Acc load(T v, int64_t) const { return {convert<C>(v), C(1)}; }
  __device__ Acc combine(Acc a, Acc b) const {
    if (a.largest != a.largest) return a;
    if (b.largest != b.largest) return b;
    if (a.largest < b.largest) return {b.largest, b.sum + a.sum * exp_in_sum(a.largest - b.largest)};
    if (a.largest == b.largest) return {a.largest, a.sum + b.sum};
    return {a.largest, a.sum + b.sum * exp_in_sum(b.largest - a.largest)};
  }
  // What belongs to the largest element of all lanes, whose own one is known by then, is added up as it is.
  __device__ Acc join_warp(Acc a) const {
    C largest = a.largest;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      largest = larger_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    C sum = a.largest == largest ? a.sum : a.sum * exp_in_sum(a.largest - largest);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return {largest, sum};
  }
  template <int kCount>
  __device__ void absorb_any(Acc& a, const T (&v)[kCount]) const {
    C largest = a.largest;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const C x = convert<C>(v[j]);
      largest = larger_or_nan(largest, x);
    }
    // Where all are minus infinity so far, there is nothing to add.
    const C shift = largest == -static_cast<C>(INFINITY) ? C(0) : largest;
    C sum = a.sum * exp_in_sum(a.largest - shift);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum += exp_in_sum(convert<C>(v[j]) - shift);
    a = {largest, sum};
  }
  __device__ void store(Acc a, int64_t at, int64_t) const {
    const bool finite = ::isfinite(a.largest);
    out[at] = convert<T>(finite ? a.largest + ::log(a.sum) : a.largest);
  }
};

}  // namespace

void reduce_norm(const TensorView& out, const TensorView& self, uint64_t dims, double p) {
  visit_floating_complex("norm", self.dtype, [&]<class T>(Tag<T>) {
    const Order order = p == 0                   ? Order::Zero
                        : p == 1                 ? Order::One
                        : std::isinf(p) && p > 0 ? Order::Largest
                        : std::isinf(p)          ? Order::Smallest
                                                 : Order::Other;
    const Results<typename RealOf<T>::type> results("norm", out);
    if (p == 2) return run_reduction(out, {}, self, dims, SquareNorm<T>{results});
    using A = compute_t<typename RealOf<T>::type>;
    run_reduction(out, {}, self, dims, Norm<T>{results, static_cast<A>(p), order});
  });
}

void reduce_var(const TensorView& out, const TensorView& mean, const TensorView& self, uint64_t dims, double correction,
                bool root) {
  visit_floating("var", self.dtype, [&]<class T>(Tag<T>) {
    run_reduction(
        out, mean, self, dims,
        Variance<T>{out.ptr<T>(), mean.defined() ? mean.ptr<T>() : nullptr, count_of(self, dims), correction, root});
  });
}

void reduce_logsumexp(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_floating("logsumexp", self.dtype,
                 [&]<class T>(Tag<T>) { run_reduction(out, {}, self, dims, LogSumExp<T>{out.ptr<T>()}); });
}

}  // namespace mica::cuda
