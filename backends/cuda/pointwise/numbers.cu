// Shifts, divisors, parts of numbers, complex numbers from parts, and nan_to_num.
#include <optional>

#include "backends/cuda/pointwise/define.cuh"
#include "backends/shared/numbers.h"

namespace mica::cuda {

namespace {

template <class T>
__device__ bool within_width(T shift) {
  return static_cast<std::make_unsigned_t<T>>(shift) < sizeof(T) * 8;
}
template <class F>
void visit_integral(const char* op, DType dtype, const F& f) {
  if (dtype == DType::Bool) unsupported_dtype(op, dtype);
  visit_integral_bool(op, dtype, [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, bool>) f(Tag<T>{});
  });
}

}  // namespace

// A shift by a negative number or by the whole width moves every bit out; what is left of a signed number is its sign.
MICA_RARE_2(bitwise_left_shift, LeftShift, visit_integral,
            { return within_width(y) ? static_cast<T>(static_cast<uint64_t>(x) << y) : T(0); })
MICA_RARE_2(bitwise_right_shift, RightShift, visit_integral, {
  if (within_width(y)) return static_cast<T>(x >> y);
  return std::is_signed_v<T> ? static_cast<T>(x >> (sizeof(T) * 8 - 1)) : T(0);
})
MICA_RARE_2(gcd, Gcd, visit_integral, { return static_cast<T>(greatest_divisor(magnitude(x), magnitude(y))); })
MICA_RARE_2(lcm, Lcm, visit_integral, {
  const auto a = magnitude(x);
  const auto b = magnitude(y);
  const auto divisor = greatest_divisor(a, b);
  if (divisor == 0) return T(0);
  // The product may not fit; its magnitude is then taken as wide as integers are computed, and cut.
  if constexpr (sizeof(T) == 8) {
    const auto product = static_cast<int64_t>(static_cast<uint64_t>(a / divisor) * b);
    return static_cast<T>(product < 0 ? static_cast<int64_t>(0 - static_cast<uint64_t>(product)) : product);
  } else {
    const auto product = static_cast<int32_t>(static_cast<uint32_t>(a / divisor) * static_cast<uint32_t>(b));
    return static_cast<T>(product < 0 ? static_cast<int32_t>(0 - static_cast<uint32_t>(product)) : product);
  }
})
MICA_RARE_1(deg2rad, Deg2Rad, visit_floating, { return x * static_cast<T>(3.14159265358979323846 / 180); })
MICA_RARE_1(rad2deg, Rad2Deg, visit_floating, { return x * static_cast<T>(180 / 3.14159265358979323846); })
MICA_RARE_1(frexp_mantissa, Mantissa, visit_floating, {
  int exponent;
  return ::frexp(x, &exponent);
})

namespace {

template <class T>
struct Exponent {
  __device__ int32_t operator()(T x) const {
    int exponent = 0;
    if (!::isfinite(x)) return 0;
    ::frexp(x, &exponent);
    return exponent;
  }
};

// The neighbours of a 16-bit float are its bits, counted up or down.
struct NextShort {
  bool is_half;
  __device__ float value(uint16_t bits) const {
    return is_half ? __half2float(__ushort_as_half(bits)) : __bfloat162float(__ushort_as_bfloat16(bits));
  }
  __device__ uint16_t bits(float v) const {
    return is_half ? __half_as_ushort(__float2half_rn(v)) : __bfloat16_as_ushort(__float2bfloat16_rn(v));
  }
  __device__ uint16_t operator()(uint16_t from, uint16_t to) const {
    const float a = value(from), b = value(to);
    if (a != a || b != b) return bits(a + b);
    if (a == b) return to;
    if (a == 0) return static_cast<uint16_t>((b < 0 ? 0x8000u : 0u) | 1u);
    return static_cast<uint16_t>(from + ((a < b) == (a > 0) ? 1 : -1));
  }
};
template <class T>
struct NextAfter {
  __device__ T operator()(T from, T to) const { return ::nextafter(from, to); }
};

template <class R>
struct FromParts {
  __device__ Complex<R> operator()(R re, R im) const { return {re, im}; }
};
template <class R>
struct FromPolar {
  __device__ Complex<R> operator()(R radius, R angle) const { return {radius * ::cos(angle), radius * ::sin(angle)}; }
};
template <class C>
struct Angle {
  __device__ auto operator()(C z) const {
    if constexpr (is_complex_v<C>) {
      return ::atan2(z.imag(), z.real());
    } else {
      return z != z ? z : z < C(0) ? C(3.14159265358979323846) : C(0);
    }
  }
};

template <class T>
struct NanToNum {
  T nan, above, below;
  __device__ T operator()(T x) const {
    return x != x ? nan : x == static_cast<T>(INFINITY) ? above : x == -static_cast<T>(INFINITY) ? below : x;
  }
};
template <class R>
struct NanToNumComplex {
  NanToNum<R> part;
  __device__ Complex<R> operator()(Complex<R> z) const { return {part(z.real()), part(z.imag())}; }
};
template <class T>
struct Unchanged {
  __device__ T operator()(T x) const { return x; }
};

}  // namespace

void frexp_exponent(const PointwiseLoop& loop) {
  visit_floating("frexp", loop.dtype, [&]<class T>(Tag<T>) { run_rare<int32_t, T>(loop, Exponent<compute_t<T>>{}); });
}

void nextafter(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Float32) return run_rare<float, float, float>(loop, NextAfter<float>{});
  if (loop.dtype == DType::Float64) return run_rare<double, double, double>(loop, NextAfter<double>{});
  if (loop.dtype != DType::Float16 && loop.dtype != DType::BFloat16) unsupported_dtype("nextafter", loop.dtype);
  run_rare<uint16_t, uint16_t, uint16_t>(loop, NextShort{loop.dtype == DType::Float16});
}

void complex(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Float32) return run_rare<complexf, float, float>(loop, FromParts<float>{});
  if (loop.dtype == DType::Float64) return run_rare<complexd, double, double>(loop, FromParts<double>{});
  if (loop.dtype != DType::Float16) unsupported_dtype("complex", loop.dtype);
  run_rare<complexh, half, half>(loop, FromParts<float>{});
}
void polar(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Float32) return run_rare<complexf, float, float>(loop, FromPolar<float>{});
  if (loop.dtype != DType::Float64) unsupported_dtype("polar", loop.dtype);
  run_rare<complexd, double, double>(loop, FromPolar<double>{});
}
void angle(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Complex64) return run_rare<float, complexf>(loop, Angle<complexf>{});
  if (loop.dtype == DType::Complex128) return run_rare<double, complexd>(loop, Angle<complexd>{});
  visit_floating("angle", loop.dtype, [&]<class T>(Tag<T>) { run_rare<T, T>(loop, Angle<compute_t<T>>{}); });
}

void nan_to_num(const PointwiseLoop& loop, std::optional<double> nan, std::optional<double> posinf,
                std::optional<double> neginf) {
  const double limit = largest_finite(loop.dtype);
  const double zero = nan.value_or(0), above = posinf.value_or(limit), below = neginf.value_or(-limit);
  auto part = [&]<class R>(Tag<R>) {
    return NanToNum<R>{static_cast<R>(zero), static_cast<R>(above), static_cast<R>(below)};
  };
  if (is_floating(loop.dtype))
    return visit_floating("nan_to_num", loop.dtype,
                          [&]<class T>(Tag<T>) { run_rare<T, T>(loop, part(Tag<compute_t<T>>{})); });
  if (loop.dtype == DType::Complex64)
    return run_rare<complexf, complexf>(loop, NanToNumComplex<float>{part(Tag<float>{})});
  if (loop.dtype == DType::Complex128)
    return run_rare<complexd, complexd>(loop, NanToNumComplex<double>{part(Tag<double>{})});
  visit_size(element_size(loop.dtype), [&]<class T>(Tag<T>) { run_rare<T, T>(loop, Unchanged<T>{}); });
}

}  // namespace mica::cuda
