// Highway with a fused multiply-add and right conversions of float16 in its portable target. The vector mathematics of
// backends/cpu/simd takes products apart without an error, which only a fused one can; WebAssembly has none, and
// Highway's portable target rounds twice. That target of Highway 1.0.3 also cuts digits off where it makes float16 of
// float32, and knows no infinity there. The library's own functions are renamed as they are read, and fused ones take
// their names.
#pragma push_macro("DemoteTo")
#pragma push_macro("PromoteTo")
#pragma push_macro("MulAdd")
#pragma push_macro("NegMulAdd")
#pragma push_macro("MulSub")
#pragma push_macro("NegMulSub")
#define DemoteTo DemoteToCut
#define PromoteTo PromoteToCut
#define MulAdd MulAddTwice
#define NegMulAdd NegMulAddTwice
#define MulSub MulSubTwice
#define NegMulSub NegMulSubTwice
#include_next <hwy/highway.h>
#pragma pop_macro("DemoteTo")
#pragma pop_macro("PromoteTo")
#pragma pop_macro("MulAdd")
#pragma pop_macro("NegMulAdd")
#pragma pop_macro("MulSub")
#pragma pop_macro("NegMulSub")

#undef HWY_NATIVE_FMA
#define HWY_NATIVE_FMA 1

#ifndef MICA_LAB_WASM_FUSED
#define MICA_LAB_WASM_FUSED

#include <bit>
#include <cmath>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace hwy::HWY_NAMESPACE {

// The product of two floats is exact in double. The sum with the third is rounded there, and again to float: that
// differs from one rounding only where the first one ends half-way between two floats. There it is made odd instead.
inline float fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, addend = c, sum = product + addend;
  const auto bits = std::bit_cast<uint64_t>(sum);
  if ((bits & 0x1fffffff) != 0x10000000 && std::fabs(sum) >= 0x1p-126) return static_cast<float>(sum);
  const double part = sum - product, lost = (product - (sum - part)) + (addend - part);
  if (lost == 0 || (bits & 1) || !std::isfinite(sum)) return static_cast<float>(sum);
  return static_cast<float>(std::bit_cast<double>((lost > 0) == (sum > 0) ? bits + 1 : bits - 1));
}
inline double fused(double a, double b, double c) { return std::fma(a, b, c); }
template <class T>
inline T fused(T a, T b, T c) {
  return static_cast<T>(a * b + c);
}

template <class T, size_t N>
HWY_API Vec128<T, N> MulAdd(Vec128<T, N> mul, Vec128<T, N> x, Vec128<T, N> add) {
  for (size_t i = 0; i < N; ++i) add.raw[i] = fused(mul.raw[i], x.raw[i], add.raw[i]);
  return add;
}
template <class T, size_t N>
HWY_API Vec128<T, N> NegMulAdd(Vec128<T, N> mul, Vec128<T, N> x, Vec128<T, N> add) {
  return MulAdd(Neg(mul), x, add);
}
template <class T, size_t N>
HWY_API Vec128<T, N> MulSub(Vec128<T, N> mul, Vec128<T, N> x, Vec128<T, N> sub) {
  return MulAdd(mul, x, Neg(sub));
}
template <class T, size_t N>
HWY_API Vec128<T, N> NegMulSub(Vec128<T, N> mul, Vec128<T, N> x, Vec128<T, N> sub) {
  return MulAdd(Neg(mul), x, Neg(sub));
}

// Rounded to the nearest, ties to even.
inline uint16_t half_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (size >> 13 & 0x3ff));
  if (size >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (size < 0x38800000) {  // subnormal: the sum with one half has its last digit where this one's is
    const float sum = std::bit_cast<float>(size) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | ((size + 0xc8000fff + (size >> 13 & 1)) >> 13));
}
inline float float_of(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = bits >> 10 & 31, rest = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | rest << 13 | (rest ? 0x400000 : 0));
  if (exponent == 0) return std::copysign(static_cast<float>(rest) * 0x1p-24f, std::bit_cast<float>(sign | 0x3f800000));
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | rest << 13);
}

template <class D, class V>
HWY_API auto DemoteTo(D d, V v) {
  if constexpr (std::is_same_v<TFromD<D>, float16_t> && std::is_same_v<TFromV<V>, float>) {
    Vec128<float16_t, MaxLanes(D())> result;
    for (size_t i = 0; i < MaxLanes(d); ++i) detail::StoreU16ToF16(half_of(v.raw[i]), &result.raw[i]);
    return result;
  } else {
    return DemoteToCut(d, v);
  }
}
template <class D, class V>
HWY_API auto PromoteTo(D d, V v) {
  if constexpr (std::is_same_v<TFromD<D>, float> && std::is_same_v<TFromV<V>, float16_t>) {
    Vec128<float, MaxLanes(D())> result;
    for (size_t i = 0; i < MaxLanes(d); ++i) result.raw[i] = float_of(detail::U16FromF16(&v.raw[i]));
    return result;
  } else {
    return PromoteToCut(d, v);
  }
}

}  // namespace hwy::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
