// pow.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/power.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <complex>
#include <cstring>

#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/pointwise/visit_others.h"
#include "backends/cpu/simd/arithmetic-inl.h"
#include "backends/cpu/simd/pow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

MICA_LANES_2(PowLanes, pow(d, x, y))
MICA_LANES_2(SquareLanes, hn::Mul(x, x))
MICA_LANES_2(CubeLanes, hn::Mul(hn::Mul(x, x), x))
MICA_LANES_2(SqrtLanes, hn::Sqrt(x))
MICA_LANES_2(RsqrtLanes, rsqrt(d, x))
MICA_LANES_2(ReciprocalLanes, hn::Div(hn::Set(d, T(1)), x))
MICA_LANES_2(InverseSquareLanes, hn::Div(hn::Set(d, T(1)), hn::Mul(x, x)))
MICA_LANES_2(IdentityLanes, x)

// The exponents for which a shorter function gives what torch gives: it takes the same ones.
void pow_constant(const PointwiseLoop& loop, double exponent) {
  const auto run = [&](const auto& f) { run_floating<2>("pow", loop, f, kMemoryGrain); };
  if (exponent == 2) return run(SquareLanes{});
  if (exponent == 3) return run(CubeLanes{});
  if (exponent == 1) return run(IdentityLanes{});
  const bool half = loop.dtype == DType::Float16;
  if (exponent == 0.5 && !half) return run(SqrtLanes{});
  if (exponent == -0.5 && !half) return run(RsqrtLanes{});
  if (exponent == -1) return run(ReciprocalLanes{});
  if (exponent == -2) return run(InverseSquareLanes{});
  run_floating<2>("pow", loop, PowLanes{}, kHeavyGrain);
}

// By squaring, wrapping around; a negative exponent leaves only 1 and -1.
template <class T>
struct IntegerPow {
  T operator()(T base, T exponent) const {
    if constexpr (std::is_signed_v<T>) {
      if (exponent < 0) return base == 1 ? T(1) : base == -1 ? static_cast<T>(exponent % 2 ? -1 : 1) : T(0);
    }
    T result = 1;
    for (auto left = static_cast<std::make_unsigned_t<T>>(exponent); left; left >>= 1) {
      if (left & 1) result = wrapping_mul(result, base);
      base = wrapping_mul(base, base);
    }
    return result;
  }
};
// The exponents that programs have: without the loop over the exponent's bits, the compiler has a vector of bases.
template <class T>
struct IntegerSquare {
  T operator()(T base, T) const { return wrapping_mul(base, base); }
};
template <class T>
struct IntegerCube {
  T operator()(T base, T) const { return wrapping_mul(wrapping_mul(base, base), base); }
};
template <class T>
void integer_pow(const PointwiseLoop& loop) {
  const T exponent = is_constant(loop, 2) ? *reinterpret_cast<const T*>(loop.data[2]) : T(0);
  if (exponent == 2) return run_binary<T>(loop, IntegerSquare<T>{});
  if (exponent == 3) return run_binary<T>(loop, IntegerCube<T>{});
  run_binary<T>(loop, IntegerPow<T>{}, kHeavyGrain);
}

template <class C>
struct ComplexPow {
  C operator()(C base, C exponent) const {
    if (exponent == C(2)) return base * base;
    if (exponent == C(0)) return C(1);
    if (exponent == C(1)) return base;  // infinities keep their parts
    return std::pow(base, exponent);
  }
};

void pow_kernel(const PointwiseLoop& loop) {
  if (is_floating(loop.dtype)) {
    if (!is_constant(loop, 2)) return run_floating<2>("pow", loop, PowLanes{}, kHeavyGrain);
    double exponent = 0;
    visit_floating("pow", loop.dtype, [&]<class T>(Tag<T>) {
      T value;
      std::memcpy(static_cast<void*>(&value), loop.data[2], sizeof value);
      exponent = static_cast<double>(static_cast<compute_t<T>>(value));
    });
    return pow_constant(loop, exponent);
  }
  if (is_complex(loop.dtype))
    return visit_complex("pow", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, ComplexPow<T>{}, kSlowGrain); });
  if (loop.dtype == DType::Bool && is_constant(loop, 2))  // x ** True is x, x ** False is True
    return run_binary<bool>(
        loop, [](bool base, bool exponent) { return base || !exponent; }, kMemoryGrain);
  visit_integral("pow", loop.dtype, [&]<class T>(Tag<T>) { integer_pow<T>(loop); });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(pow)
}  // namespace mica::cpu
#endif
