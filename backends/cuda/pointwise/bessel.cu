// Modified Bessel functions of the second kind and Airy's function, of float32 and float64 alone, as in torch. The
// series are those of the CPU's kernels; their terms become constants of the code.
#include "backends/cuda/pointwise/clenshaw.cuh"
#include "backends/cuda/pointwise/define.cuh"

namespace mica::cuda {

namespace {

template <class F>
void visit_whole_floats(const char* op, DType dtype, const F& f) {
  if (dtype == DType::Float32) return f(Tag<float>{});
  if (dtype == DType::Float64) return f(Tag<double>{});
  unsupported_dtype(op, dtype);
}

// Inf at zero, NaN below; with a factor exp(x) where `kScaled`.
template <int kOrder, bool kScaled, class T>
__device__ T bessel_k(T x) {
  if (x == 0) return static_cast<T>(INFINITY);
  if (!(x > 0)) return static_cast<T>(NAN);
  if (x <= 2) {
    const T t = to_unit(x * x, 4), logarithm = ::log(x * T(0.5));
    T low;
    if constexpr (kOrder == 0) {
      low = ::fma(-logarithm, chebyshev_series<bessel::kI0Small>(t), chebyshev_series<bessel::kK0Small>(t));
    } else {
      low = ::fma(logarithm, x * chebyshev_series<bessel::kI1Small>(t), chebyshev_series<bessel::kK1Small>(t) / x);
    }
    return kScaled ? low * ::exp(x) : low;
  }
  const T t = to_unit(T(2) / x, 1);
  T high;
  if constexpr (kOrder == 0) {
    high = chebyshev_series<bessel::kK0Large>(t);
  } else {
    high = chebyshev_series<bessel::kK1Large>(t);
  }
  high /= ::sqrt(x);
  return kScaled ? high : high * ::exp(-x);
}

template <class T>
__device__ T airy_ai(T x) {
  if (x != x) return x;
  if (x >= -4 && x <= 2) return chebyshev_series<bessel::kAiryMiddle>((x + T(1)) * T(1.0 / 3));
  if (::isinf(x)) return x > 0 ? T(0) : static_cast<T>(NAN);
  const T size = ::fabs(x), root = ::sqrt(size), s = T(2.0 / 3) * (size * root), inverse = T(1) / s;
  const T amplitude = T(0.56418958354775628695) / ::sqrt(root);
  if (x > 2)
    return amplitude *
           (T(0.5) * ::exp(-s) * chebyshev_series<bessel::kAiryDecay>(to_unit(inverse, 0.53033008588991064330)));
  const T squared = to_unit(inverse * inverse, 0.03515625), sine = ::sin(s), cosine = ::cos(s);
  const T u = chebyshev_series<bessel::kAiryU>(squared), v = inverse * chebyshev_series<bessel::kAiryV>(squared);
  return amplitude * (T(0.70710678118654752440) * ::fma(-(cosine - sine), v, (sine + cosine) * u));
}

}  // namespace

MICA_RARE_1(special_modified_bessel_k0, BesselK0, visit_whole_floats, { return bessel_k<0, false>(x); })
MICA_RARE_1(special_modified_bessel_k1, BesselK1, visit_whole_floats, { return bessel_k<1, false>(x); })
MICA_RARE_1(special_scaled_modified_bessel_k0, ScaledBesselK0, visit_whole_floats, { return bessel_k<0, true>(x); })
MICA_RARE_1(special_scaled_modified_bessel_k1, ScaledBesselK1, visit_whole_floats, { return bessel_k<1, true>(x); })
MICA_RARE_1(special_airy_ai, AiryAi, visit_whole_floats, { return airy_ai(x); })

}  // namespace mica::cuda
