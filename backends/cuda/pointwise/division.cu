// Division with rounding, remainders, rounding to decimals, extrema that pass over NaN, and what asks for the sign.
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

// Python's //: the quotient comes from an exact remainder, so that it is right even where x / y rounds up.
template <class T>
__device__ T floored(T x, T y) {
  if (y == T(0)) return x / y;
  const T rest = ::fmod(x, y);
  T quotient = (x - rest) / y;
  if (rest != T(0) && (y < T(0)) != (rest < T(0))) quotient -= T(1);
  if (quotient == T(0)) return ::copysign(T(0), x / y);
  const T below = ::floor(quotient);
  return quotient - below > T(0.5) ? below + T(1) : below;
}

}  // namespace

MICA_RARE_2(div_trunc, DivTrunc, visit_real, {
  if constexpr (std::is_integral_v<T>) {
    return truncated(x, y);
  } else {
    return ::trunc(x / y);
  }
})
MICA_RARE_2(div_floor, DivFloor, visit_real, {
  if constexpr (std::is_integral_v<T>) {
    const T rest = rest_of(x, y);
    const bool lower = std::is_signed_v<T> && y != 0 && rest != 0 && (rest < 0) != (y < 0);
    return static_cast<T>(truncated(x, y) - static_cast<T>(lower));
  } else {
    return floored(x, y);
  }
})
MICA_RARE_2(fmod, Fmod, visit_real, {
  if constexpr (std::is_integral_v<T>) {
    return rest_of(x, y);
  } else {
    return ::fmod(x, y);
  }
})
MICA_RARE_2(remainder, Remainder, visit_real, {
  if constexpr (std::is_integral_v<T>) {
    const T rest = rest_of(x, y);
    return std::is_signed_v<T> && rest != 0 && (rest < 0) != (y < 0) ? static_cast<T>(rest + y) : rest;
  } else {
    const T rest = ::fmod(x, y);
    return rest != T(0) && (rest < T(0)) != (y < T(0)) ? rest + y : rest;
  }
})
MICA_RARE_2(fmax, Fmax, visit_real_bool, { return x != x ? y : y != y ? x : x < y ? y : x; })
MICA_RARE_2(fmin, Fmin, visit_real_bool, { return x != x ? y : y != y ? x : y < x ? y : x; })
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

#define MICA_QUESTION(Name, ...)                          \
  template <class T>                                      \
  struct Name {                                           \
    __device__ bool operator()(T x) const { __VA_ARGS__ } \
  };
MICA_QUESTION(IsPosInf, {
  if constexpr (std::is_floating_point_v<T>) return x == static_cast<T>(INFINITY);
  return false;
})
MICA_QUESTION(IsNegInf, {
  if constexpr (std::is_floating_point_v<T>) return x == -static_cast<T>(INFINITY);
  return false;
})
MICA_QUESTION(SignBit, {
  if constexpr (std::is_floating_point_v<T>) {
    return ::signbit(x);
  } else {
    return std::is_signed_v<T> && x < T(0);
  }
})
#undef MICA_QUESTION

}  // namespace

void round_decimals(const PointwiseLoop& loop, int64_t decimals) {
  const double power = std::pow(10.0, static_cast<double>(decimals < 0 ? -decimals : decimals));
  visit_floating("round", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_rare<T, T>(loop, RoundDecimals<C>{static_cast<C>(power), decimals >= 0});
  });
}

void isposinf(const PointwiseLoop& loop) {
  visit_real_bool("isposinf", loop.dtype, [&]<class T>(Tag<T>) { run_rare<bool, T>(loop, IsPosInf<compute_t<T>>{}); });
}
void isneginf(const PointwiseLoop& loop) {
  visit_real_bool("isneginf", loop.dtype, [&]<class T>(Tag<T>) { run_rare<bool, T>(loop, IsNegInf<compute_t<T>>{}); });
}
void signbit(const PointwiseLoop& loop) {
  visit_real_bool("signbit", loop.dtype, [&]<class T>(Tag<T>) { run_rare<bool, T>(loop, SignBit<compute_t<T>>{}); });
}

}  // namespace mica::cuda
