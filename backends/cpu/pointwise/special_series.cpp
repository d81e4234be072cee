// Bessel and Airy functions and orthogonal polynomials.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/special_series.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/simd/bessel-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "backends/shared/orthogonal_polynomials.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// For float32 and float64 only, as in torch.
template <int kInputs, class F>
void run_whole_floats(const char* name, const PointwiseLoop& loop, const F& f) {
  if (loop.dtype == DType::Float32) return run_lanes<float, kInputs>(loop, f, kSlowGrain);
  if (loop.dtype == DType::Float64) return run_lanes<double, kInputs>(loop, f, kSlowGrain);
  unsupported_dtype(name, loop.dtype);
}

#define MICA_SERIES(slot, ...)            \
  MICA_LANES_1(slot##_lanes, __VA_ARGS__) \
  void slot##_kernel(const PointwiseLoop& loop) { run_whole_floats<1>(#slot "_cpu", loop, slot##_lanes{}); }
MICA_SERIES(special_bessel_j0, bessel_j0(d, x))
MICA_SERIES(special_bessel_j1, bessel_j1(d, x))
MICA_SERIES(special_bessel_y0, bessel_y<0>(d, x))
MICA_SERIES(special_bessel_y1, bessel_y<1>(d, x))
MICA_SERIES(special_modified_bessel_k0, bessel_k<0, false>(d, x))
MICA_SERIES(special_modified_bessel_k1, bessel_k<1, false>(d, x))
MICA_SERIES(special_scaled_modified_bessel_k0, bessel_k<0, true>(d, x))
MICA_SERIES(special_scaled_modified_bessel_k1, bessel_k<1, true>(d, x))
MICA_SERIES(special_airy_ai, airy_ai(d, x))
MICA_SERIES(special_spherical_bessel_j0, spherical_bessel_j0(d, x))
#undef MICA_SERIES

#define MICA_POLYNOMIAL(slot, function)                                                \
  void slot##_kernel(const PointwiseLoop& loop) {                                      \
    const auto run = [&]<class T>(Tag<T>) {                                            \
      run_binary<T>(                                                                   \
          loop, [](T x, T n) { return ::mica::special::function(x, n); }, kSlowGrain); \
    };                                                                                 \
    if (loop.dtype == DType::Float32) return run(Tag<float>{});                        \
    if (loop.dtype == DType::Float64) return run(Tag<double>{});                       \
    unsupported_dtype(#slot "_cpu", loop.dtype);                                       \
  }
MICA_POLYNOMIAL(special_chebyshev_polynomial_t, chebyshev_t)
MICA_POLYNOMIAL(special_chebyshev_polynomial_u, chebyshev_u)
MICA_POLYNOMIAL(special_chebyshev_polynomial_v, chebyshev_v)
MICA_POLYNOMIAL(special_chebyshev_polynomial_w, chebyshev_w)
MICA_POLYNOMIAL(special_shifted_chebyshev_polynomial_t, shifted_chebyshev_t)
MICA_POLYNOMIAL(special_shifted_chebyshev_polynomial_u, shifted_chebyshev_u)
MICA_POLYNOMIAL(special_shifted_chebyshev_polynomial_v, shifted_chebyshev_v)
MICA_POLYNOMIAL(special_shifted_chebyshev_polynomial_w, shifted_chebyshev_w)
MICA_POLYNOMIAL(special_hermite_polynomial_h, hermite_h)
MICA_POLYNOMIAL(special_hermite_polynomial_he, hermite_he)
MICA_POLYNOMIAL(special_laguerre_polynomial_l, laguerre_l)
MICA_POLYNOMIAL(special_legendre_polynomial_p, legendre_p)
#undef MICA_POLYNOMIAL

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(special_bessel_j0)
MICA_POINTWISE_SLOT(special_bessel_j1)
MICA_POINTWISE_SLOT(special_bessel_y0)
MICA_POINTWISE_SLOT(special_bessel_y1)
MICA_POINTWISE_SLOT(special_modified_bessel_k0)
MICA_POINTWISE_SLOT(special_modified_bessel_k1)
MICA_POINTWISE_SLOT(special_scaled_modified_bessel_k0)
MICA_POINTWISE_SLOT(special_scaled_modified_bessel_k1)
MICA_POINTWISE_SLOT(special_airy_ai)
MICA_POINTWISE_SLOT(special_spherical_bessel_j0)
MICA_POINTWISE_SLOT(special_chebyshev_polynomial_t)
MICA_POINTWISE_SLOT(special_chebyshev_polynomial_u)
MICA_POINTWISE_SLOT(special_chebyshev_polynomial_v)
MICA_POINTWISE_SLOT(special_chebyshev_polynomial_w)
MICA_POINTWISE_SLOT(special_shifted_chebyshev_polynomial_t)
MICA_POINTWISE_SLOT(special_shifted_chebyshev_polynomial_u)
MICA_POINTWISE_SLOT(special_shifted_chebyshev_polynomial_v)
MICA_POINTWISE_SLOT(special_shifted_chebyshev_polynomial_w)
MICA_POINTWISE_SLOT(special_hermite_polynomial_h)
MICA_POINTWISE_SLOT(special_hermite_polynomial_he)
MICA_POINTWISE_SLOT(special_laguerre_polynomial_l)
MICA_POINTWISE_SLOT(special_legendre_polynomial_p)
}  // namespace mica::cpu
#endif
