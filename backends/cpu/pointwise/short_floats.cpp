#include "backends/cpu/pointwise/short_floats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/short_floats.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Format>
HWY_ATTR void widen(char* const* data, const int64_t* strides, int64_t n) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d), count = static_cast<size_t>(n);
  auto* to = reinterpret_cast<float*>(data[0]);
  auto* from = reinterpret_cast<const uint16_t*>(data[1]);
  size_t i = 0;
  if (strides[1] == 0) {
    const auto value = hn::Set(d, hn::GetLane(load_first_as_float<Format>(d, from, 1)));
    for (; i < count; i += lanes) store_first(value, d, to + i, count - i < lanes ? count - i : lanes);
    return;
  }
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_as_float<Format>(d, from + i), d, to + i);
  if (i < count) store_first(load_first_as_float<Format>(d, from + i, count - i), d, to + i, count - i);
}

template <class Format>
HWY_ATTR void narrow(char* const* data, const int64_t* strides, int64_t n) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d), count = static_cast<size_t>(n);
  auto* to = reinterpret_cast<uint16_t*>(data[0]);
  auto* from = reinterpret_cast<const float*>(data[1]);
  size_t i = 0;
  if (strides[1] == 0) {
    const auto value = hn::Set(d, *from);
    for (; i < count; i += lanes)
      store_first_from_float<Format>(value, d, to + i, count - i < lanes ? count - i : lanes);
    return;
  }
  for (; i + lanes <= count; i += lanes) store_from_float<Format>(hn::LoadU(d, from + i), d, to + i);
  if (i < count) store_first_from_float<Format>(load_first(d, from + i, count - i), d, to + i, count - i);
}

void widen_half(char* const* data, const int64_t* strides, int64_t n) { widen<HalfBits>(data, strides, n); }
void widen_bfloat16(char* const* data, const int64_t* strides, int64_t n) { widen<BFloat16Bits>(data, strides, n); }
void narrow_half(char* const* data, const int64_t* strides, int64_t n) { narrow<HalfBits>(data, strides, n); }
void narrow_bfloat16(char* const* data, const int64_t* strides, int64_t n) { narrow<BFloat16Bits>(data, strides, n); }

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {

#define MICA_CONVERSION(name, function)                                          \
  HWY_EXPORT(function);                                                          \
  void name(char* const* data, const int64_t* strides, int64_t n, const void*) { \
    HWY_DYNAMIC_DISPATCH(function)(data, strides, n);                            \
  }
MICA_CONVERSION(half_to_float_loop, widen_half)
MICA_CONVERSION(bfloat16_to_float_loop, widen_bfloat16)
MICA_CONVERSION(float_to_half_loop, narrow_half)
MICA_CONVERSION(float_to_bfloat16_loop, narrow_bfloat16)
#undef MICA_CONVERSION

}  // namespace mica::cpu
#endif
