// quantize and dequantize: contiguous float32 numbers to integers and back, with one scale or one for each channel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/quantized/quantize.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backends/cpu/simd_register.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
T to_integer(float value, float inverse, int64_t zero, int64_t low, int64_t high) {
  const float scaled = value * inverse;
  // NaN and numbers beyond all integers become the bounds, as with the vector instructions.
  if (!(scaled < 9.0e18f)) return static_cast<T>(scaled > 0 ? high : low);
  if (scaled < -9.0e18f) return static_cast<T>(low);
  return static_cast<T>(std::clamp(static_cast<int64_t>(std::nearbyint(scaled)) + zero, low, high));
}

template <class T>
void quantize_run(T* HWY_RESTRICT to, const float* HWY_RESTRICT from, int64_t n, float scale, int64_t zero, int64_t low,
                  int64_t high) {
  const float inverse = 1.0f / scale;
  int64_t i = 0;
  if constexpr (sizeof(T) == 1) {
    const hn::ScalableTag<float> f;
    const hn::RebindToSigned<decltype(f)> wide;
    const hn::Rebind<T, decltype(f)> narrow;
    const auto lanes = static_cast<int64_t>(hn::Lanes(f));
    const auto factor = hn::Set(f, inverse);
    // Clamped as floats, so that numbers far beyond a byte end at a bound.
    const auto least = hn::Set(f, static_cast<float>(low - zero)),
               greatest = hn::Set(f, static_cast<float>(high - zero));
    const auto offset = hn::Set(wide, static_cast<int32_t>(zero));
    const auto integers = [&](int64_t at) HWY_ATTR {
      const auto x = hn::Mul(hn::LoadU(f, from + at), factor);
      const auto bounded = hn::Min(hn::Max(hn::IfThenElse(hn::Eq(x, x), x, least), least), greatest);
      return hn::Add(hn::NearestInt(bounded), offset);
    };
#if HWY_TARGET == HWY_AVX3
    // Four vectors at a time, packed within blocks of 16 bytes and put in order by one exchange of their quarters.
    alignas(64) constexpr int32_t kOrder[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const __m512i order = _mm512_load_si512(kOrder);
    for (; i + 64 <= n; i += 64) {
      const __m512i first = _mm512_packs_epi32(integers(i).raw, integers(i + 16).raw);
      const __m512i second = _mm512_packs_epi32(integers(i + 32).raw, integers(i + 48).raw);
      const __m512i bytes =
          std::is_signed_v<T> ? _mm512_packs_epi16(first, second) : _mm512_packus_epi16(first, second);
      _mm512_storeu_si512(to + i, _mm512_permutexvar_epi32(order, bytes));
    }
#endif
    for (; i + lanes <= n; i += lanes) hn::StoreU(hn::DemoteTo(narrow, integers(i)), narrow, to + i);
  }
  for (; i < n; ++i) to[i] = to_integer<T>(from[i], inverse, zero, low, high);
}

template <class T>
void dequantize_run(float* HWY_RESTRICT to, const T* HWY_RESTRICT from, int64_t n, float scale, int64_t zero) {
  int64_t i = 0;
  if constexpr (sizeof(T) == 1) {
    // A vector of bytes becomes four of floats.
    const hn::ScalableTag<float> f;
    const hn::Repartition<T, decltype(f)> bytes;
    const hn::Half<decltype(bytes)> half_bytes;
    const hn::Repartition<int16_t, decltype(f)> words;
    const hn::Half<decltype(words)> half_words;
    const hn::RebindToSigned<decltype(f)> wide;
    const auto lanes = static_cast<int64_t>(hn::Lanes(bytes)), quarter = lanes / 4;
    const auto factor = hn::Set(f, scale);
    const auto offset = hn::Set(wide, static_cast<int32_t>(zero));
    for (; i + lanes <= n; i += lanes) {
      const auto v = hn::LoadU(bytes, from + i);
      const auto lower = hn::PromoteTo(words, hn::LowerHalf(half_bytes, v));
      const auto upper = hn::PromoteTo(words, hn::UpperHalf(half_bytes, v));
      const auto store = [&](auto quarter_words, int64_t at) HWY_ATTR {
        const auto integers = hn::Sub(hn::PromoteTo(wide, quarter_words), offset);
        hn::StoreU(hn::Mul(hn::ConvertTo(f, integers), factor), f, to + i + at);
      };
      store(hn::LowerHalf(half_words, lower), 0);
      store(hn::UpperHalf(half_words, lower), quarter);
      store(hn::LowerHalf(half_words, upper), 2 * quarter);
      store(hn::UpperHalf(half_words, upper), 3 * quarter);
    }
  }
  for (; i < n; ++i) to[i] = static_cast<float>(static_cast<int64_t>(from[i]) - zero) * scale;
}

// Calls run(first element, count, channel) for pieces of `numel` elements that lie in one channel, on all threads.
template <class Run>
void for_each_channel_run(int64_t numel, int64_t inner, int64_t channels, const Run& run) {
  parallel_for(0, numel, 32768, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t line = begin / inner, count = std::min(end, (line + 1) * inner) - begin;
      run(begin, count, line % channels);
      begin += count;
    }
  });
}

void quantize(const TensorView& out, const TensorView& self, const TensorView& scales, const TensorView& zero_points,
              int64_t inner, int64_t low, int64_t high) {
  const auto work = [&]<class T>(T*) {
    for_each_channel_run(out.numel, inner, scales.numel, [&](int64_t first, int64_t count, int64_t channel) {
      quantize_run<T>(out.ptr<T>() + first, self.ptr<const float>() + first, count,
                      static_cast<float>(scales.ptr<const double>()[channel]),
                      zero_points.ptr<const int64_t>()[channel], low, high);
    });
  };
  if (out.dtype == DType::UInt8) {
    work(static_cast<uint8_t*>(nullptr));
  } else if (out.dtype == DType::Int8) {
    work(static_cast<int8_t*>(nullptr));
  } else {
    work(static_cast<int32_t*>(nullptr));
  }
}

void dequantize(const TensorView& out, const TensorView& self, const TensorView& scales, const TensorView& zero_points,
                int64_t inner) {
  const auto work = [&]<class T>(T*) {
    for_each_channel_run(out.numel, inner, scales.numel, [&](int64_t first, int64_t count, int64_t channel) {
      dequantize_run<T>(out.ptr<float>() + first, self.ptr<const T>() + first, count,
                        static_cast<float>(scales.ptr<const double>()[channel]),
                        zero_points.ptr<const int64_t>()[channel]);
    });
  };
  if (self.dtype == DType::UInt8) {
    work(static_cast<uint8_t*>(nullptr));
  } else if (self.dtype == DType::Int8) {
    work(static_cast<int8_t*>(nullptr));
  } else {
    work(static_cast<int32_t*>(nullptr));
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(quantize);
HWY_EXPORT(dequantize);
MICA_REGISTER_SIMD(quantize, quantize);
MICA_REGISTER_SIMD(dequantize, dequantize);
}  // namespace mica::cpu
#endif
