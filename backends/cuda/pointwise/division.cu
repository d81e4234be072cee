// Division with rounding, remainders, rounding to decimals, extrema that pass over NaN, and what asks for the sign.
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise/define.cuh"

namespace mica::cuda {

namespace {

// The one quotient of two's complement that does not fit; and a division by zero, which a GPU does not report: it gives
// the quotient -1 and the dividend as the remainder, as torch's does.
template <class T>
__device__ bool is_minus_one(T b) {
  return std::is_signed_v<T> && b == static_cast<T>(-1);
}
template <class T>
__device__ T truncated(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  return is_minus_one(b) ? static_cast<T>(0 - static_cast<uint64_t>(a)) : static_cast<T>(a / b);
}
template <class T>
__device__ T rest_of(T a, T b) {
  if (b == 0) return a;
  return is_minus_one(b) ? T(0) : static_cast<T>(a % b);
}

// The remainder of a division that is cut off. Where the quotient has fewer digits than a number, one division finds
// it, or one more, and what is left is exact; the library's function takes bit by bit.
template <class T>
__device__ T remainder_of(T x, T y) {
  constexpr T kQuotients = std::is_same_v<T, float> ? T(1 << 22) : T(int64_t{1} << 51);
  const T a = ::fabs(x), b = ::fabs(y);
  if (!(a < b * kQuotients) || b == static_cast<T>(INFINITY)) return ::fmod(x, y);
  T rest = ::fma(-::trunc(a / b), b, a);
  if (rest < T(0)) rest += b;
  return ::copysign(rest, x);
}

// Python's //: the quotient comes from an exact remainder, so that it is right even where x / y rounds up.
template <class T>
__device__ T floored(T x, T y) {
  if (y == T(0)) return x / y;
  const T rest = remainder_of(x, y);
  T quotient = (x - rest) / y;
  if (rest != T(0) && (y < T(0)) != (rest < T(0))) quotient -= T(1);
  if (quotient == T(0)) return ::copysign(T(0), x / y);
  const T below = ::floor(quotient);
  return quotient - below > T(0.5) ? below + T(1) : below;
}

enum class Wanted { Truncated, Floored, Fmod, Remainder };

template <class T>
struct Division {
  Wanted wanted;
  __device__ T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      const T rest = rest_of(x, y);
      const bool lower = std::is_signed_v<T> && rest != 0 && (rest < 0) != (y < 0);
      if (wanted == Wanted::Fmod) return rest;
      if (wanted == Wanted::Remainder) return lower ? static_cast<T>(rest + y) : rest;
      const T quotient = truncated(x, y);
      return wanted == Wanted::Floored && lower && y != 0 ? static_cast<T>(quotient - 1) : quotient;
    } else {
      if (wanted == Wanted::Truncated) return ::trunc(x / y);
      if (wanted == Wanted::Floored) return floored(x, y);
      const T rest = remainder_of(x, y);
      if (wanted == Wanted::Fmod) return rest;
      return rest != T(0) && (rest < T(0)) != (y < T(0)) ? rest + y : rest;
    }
  }
};

void divide(const char* op, const PointwiseLoop& loop, Wanted wanted) {
  visit_real(op, loop.dtype, [&]<class T>(Tag<T>) { run_rare<T, T, T>(loop, Division<compute_t<T>>{wanted}); });
}

// The other operand wins over a NaN.
template <class T>
struct NumberExtremum {
  bool larger;
  __device__ T operator()(T x, T y) const { return x != x ? y : y != y ? x : (larger ? x < y : y < x) ? y : x; }
};

}  // namespace

void div_trunc(const PointwiseLoop& loop) { divide("div_trunc", loop, Wanted::Truncated); }
void div_floor(const PointwiseLoop& loop) { divide("div_floor", loop, Wanted::Floored); }
void fmod(const PointwiseLoop& loop) { divide("fmod", loop, Wanted::Fmod); }
void remainder(const PointwiseLoop& loop) { divide("remainder", loop, Wanted::Remainder); }

void fmax(const PointwiseLoop& loop) {
  if (!is_floating(loop.dtype)) return maximum(loop);
  visit_floating("fmax", loop.dtype,
                 [&]<class T>(Tag<T>) { run_rare<T, T, T>(loop, NumberExtremum<compute_t<T>>{true}); });
}
void fmin(const PointwiseLoop& loop) {
  if (!is_floating(loop.dtype)) return minimum(loop);
  visit_floating("fmin", loop.dtype,
                 [&]<class T>(Tag<T>) { run_rare<T, T, T>(loop, NumberExtremum<compute_t<T>>{false}); });
}

MICA_RARE_2(copysign, Copysign, visit_floating, { return ::copysign(x, y); })
MICA_RARE_2(heaviside, Heaviside, visit_real_bool, { return x == T(0) ? y : static_cast<T>(x > T(0)); })
MICA_RARE_1(frac, Frac, visit_floating, { return x - ::trunc(x); })

namespace {

template <class T>
struct RoundDecimals {
  T power;
  bool after_point;
  __device__ T operator()(T x) const { return after_point ? ::rint(x * power) / power : ::rint(x / power) * power; }
};

template <class T>
struct IsInfinity {
  T which;
  __device__ bool operator()(T x) const { return x == which; }
};
template <class T>
struct SignBit {
  __device__ bool operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      return ::signbit(x);
    } else {
      return x < T(0);
    }
  }
};

void is_infinity(const char* op, const PointwiseLoop& loop, double which) {
  if (is_integral(loop.dtype) || loop.dtype == DType::Bool) return run_pointwise<bool>(loop, Always{false});
  visit_floating(op, loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_rare<bool, T>(loop, IsInfinity<C>{static_cast<C>(which)});
  });
}

}  // namespace

void round_decimals(const PointwiseLoop& loop, int64_t decimals) {
  const double power = std::pow(10.0, static_cast<double>(decimals < 0 ? -decimals : decimals));
  visit_floating("round", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_rare<T, T>(loop, RoundDecimals<C>{static_cast<C>(power), decimals >= 0});
  });
}

void isposinf(const PointwiseLoop& loop) { is_infinity("isposinf", loop, INFINITY); }
void isneginf(const PointwiseLoop& loop) { is_infinity("isneginf", loop, -INFINITY); }
void signbit(const PointwiseLoop& loop) {
  auto run = [&]<class T>(Tag<T>) { run_rare<bool, T>(loop, SignBit<compute_t<T>>{}); };
  switch (loop.dtype) {
    case DType::Int8:
      return run(Tag<int8_t>{});
    case DType::Int16:
      return run(Tag<int16_t>{});
    case DType::Int32:
      return run(Tag<int32_t>{});
    case DType::Int64:
      return run(Tag<int64_t>{});
    default:
      break;
  }
  if (is_floating(loop.dtype)) return visit_floating("signbit", loop.dtype, run);
  if (is_complex(loop.dtype)) unsupported_dtype("signbit", loop.dtype);
  run_pointwise<bool>(loop, Always{false});
}

}  // namespace mica::cuda
