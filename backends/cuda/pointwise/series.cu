// Bessel functions and orthogonal polynomials, of float32 and float64 alone, as in torch.
#include "backends/cuda/pointwise/define.cuh"
#include "backends/shared/orthogonal_polynomials.h"

namespace mica::cuda {

namespace {

template <class F>
void visit_whole_floats(const char* op, DType dtype, const F& f) {
  if (dtype == DType::Float32) return f(Tag<float>{});
  if (dtype == DType::Float64) return f(Tag<double>{});
  unsupported_dtype(op, dtype);
}

}  // namespace

MICA_RARE_1(special_bessel_j0, BesselJ0, visit_whole_floats, { return static_cast<T>(::j0(static_cast<double>(x))); })
MICA_RARE_1(special_bessel_j1, BesselJ1, visit_whole_floats, { return static_cast<T>(::j1(static_cast<double>(x))); })
MICA_RARE_1(special_bessel_y0, BesselY0, visit_whole_floats, { return static_cast<T>(::y0(static_cast<double>(x))); })
MICA_RARE_1(special_bessel_y1, BesselY1, visit_whole_floats, { return static_cast<T>(::y1(static_cast<double>(x))); })
MICA_RARE_1(special_spherical_bessel_j0, SphericalJ0, visit_whole_floats, {
  if (::isinf(x)) return T(0);
  if (::fabs(x) < T(0.5)) {
    // The first terms of sin(x) / x, which end below half a unit in the last place.
    const T y = x * x;
    return T(1) +
           y * (T(-1.0 / 6) +
                y * (T(1.0 / 120) + y * (T(-1.0 / 5040) + y * (T(1.0 / 362880) +
                                                               y * (T(-1.0 / 39916800) + y * T(1.0 / 6227020800.0))))));
  }
  return ::sin(x) / x;
})

#define MICA_POLYNOMIAL(slot, Name, function) \
  MICA_RARE_2(slot, Name, visit_whole_floats, { return special::function(x, y); })
MICA_POLYNOMIAL(special_chebyshev_polynomial_t, ChebyshevT, chebyshev_t)
MICA_POLYNOMIAL(special_chebyshev_polynomial_u, ChebyshevU, chebyshev_u)
MICA_POLYNOMIAL(special_chebyshev_polynomial_v, ChebyshevV, chebyshev_v)
MICA_POLYNOMIAL(special_chebyshev_polynomial_w, ChebyshevW, chebyshev_w)
MICA_POLYNOMIAL(special_shifted_chebyshev_polynomial_t, ShiftedChebyshevT, shifted_chebyshev_t)
MICA_POLYNOMIAL(special_shifted_chebyshev_polynomial_u, ShiftedChebyshevU, shifted_chebyshev_u)
MICA_POLYNOMIAL(special_shifted_chebyshev_polynomial_v, ShiftedChebyshevV, shifted_chebyshev_v)
MICA_POLYNOMIAL(special_shifted_chebyshev_polynomial_w, ShiftedChebyshevW, shifted_chebyshev_w)
MICA_POLYNOMIAL(special_hermite_polynomial_h, HermiteH, hermite_h)
MICA_POLYNOMIAL(special_hermite_polynomial_he, HermiteHe, hermite_he)
MICA_POLYNOMIAL(special_laguerre_polynomial_l, LaguerreL, laguerre_l)
MICA_POLYNOMIAL(special_legendre_polynomial_p, LegendreP, legendre_p)
#undef MICA_POLYNOMIAL

}  // namespace mica::cuda
