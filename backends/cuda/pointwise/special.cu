// Gamma and error functions, Bessel functions, the normal distribution.
#include <optional>

#include "backends/cuda/pointwise/define.cuh"
#include "backends/functors/special_math.h"

namespace mica::cuda {

MICA_RARE_1(lgamma, Lgamma, visit_floating, { return ::lgamma(x); })
MICA_RARE_1(digamma, Digamma, visit_floating, { return special::digamma(x); })
MICA_RARE_1(erfinv, Erfinv, visit_floating, { return ::erfinv(x); })
MICA_RARE_1(i0, I0, visit_floating, { return special::i0(x); })
MICA_RARE_1(special_i0e, I0e, visit_floating, { return special::i0e(x); })
MICA_RARE_1(special_i1, I1, visit_floating, { return special::i1(x); })
MICA_RARE_1(special_i1e, I1e, visit_floating, { return special::i1e(x); })
MICA_RARE_1(special_ndtr, Ndtr, visit_floating, { return special::ndtr(x); })
MICA_RARE_1(special_ndtri, Ndtri, visit_floating, { return special::ndtri(x); })
MICA_RARE_1(special_log_ndtr, LogNdtr, visit_floating, { return special::log_ndtr(x); })
MICA_RARE_1(special_erfcx, Erfcx, visit_floating, { return ::erfcx(x); })
MICA_RARE_1(special_entr, Entr, visit_floating, { return special::entr(x); })
MICA_RARE_2(special_xlog1py, Xlog1py, visit_floating, { return special::xlog1py(x, y); })
MICA_RARE_2(special_zeta, Zeta, visit_floating, { return special::zeta(x, y); })
MICA_RARE_2(igamma, Igamma, visit_floating, { return special::igamma(x, y); })
MICA_RARE_2(igammac, Igammac, visit_floating, { return special::igammac(x, y); })

namespace {

template <class T>
struct Polygamma {
  int n;
  __device__ T operator()(T x) const { return special::polygamma(n, x); }
};

template <class T>
struct Logit {
  T eps;
  bool clamped;
  __device__ T operator()(T x) const {
    if (clamped) {
      const T high = T(1) - eps;
      x = x < eps ? eps : x;
      x = x > high ? high : x;
    }
    return ::log(x / (T(1) - x));
  }
};
// grad / (x (1 - x)) between the bounds, `outside` beyond them.
template <class T>
struct LogitBackward {
  T low, high, outside;
  __device__ T operator()(T grad, T x) const { return x >= low && x <= high ? grad / (x * (T(1) - x)) : outside; }
};

}  // namespace

void polygamma(const PointwiseLoop& loop, int64_t n) {
  visit_floating("polygamma", loop.dtype,
                 [&]<class T>(Tag<T>) { run_rare<T, T>(loop, Polygamma<compute_t<T>>{static_cast<int>(n)}); });
}

void logit(const PointwiseLoop& loop, std::optional<double> eps) {
  const bool clamped = eps && *eps >= 0;
  visit_floating("logit", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_rare<T, T>(loop, Logit<C>{static_cast<C>(clamped ? *eps : 0), clamped});
  });
}

void logit_backward(const PointwiseLoop& loop, std::optional<double> eps) {
  const bool clamped = eps && *eps >= 0;
  visit_floating("logit_backward", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const auto low = static_cast<C>(clamped ? *eps : 0);
    run_rare<T, T, T>(loop, LogitBackward<C>{low, C(1) - low, clamped ? C(0) : static_cast<C>(NAN)});
  });
}

}  // namespace mica::cuda
