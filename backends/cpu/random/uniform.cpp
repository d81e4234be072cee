// Uniform numbers in [from, to): from + unit * (to - from) in one rounding, then in the 16-bit formats a second.
#include <cmath>
#include <limits>
#include <mutex>
#include <type_traits>

#include "backends/cpu/random/checks.h"
#include "backends/cpu/random/draw.h"
#include "backends/cpu/random/narrow.h"
#include "backends/cpu/random/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/random/uniform.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Maps whole vectors of words; returns how many words that was. `out` may be `words`.
template <class Word, class T>
int64_t map_uniform(const Word* words, T* out, int64_t count, T from, T to) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  constexpr int digits = std::numeric_limits<T>::digits;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto mask = hn::Set(di, (static_cast<hn::TFromD<decltype(di)>>(1) << digits) - 1);
  const auto unit = hn::Set(d, T(1) / static_cast<T>(Word(1) << digits));
  const auto low = hn::Set(d, from);
  const auto high = hn::Set(d, to);
  const auto span = hn::Set(d, to - from);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::And(hn::LoadU(di, reinterpret_cast<const hn::TFromD<decltype(di)>*>(words) + i), mask);
    const auto value = hn::MulAdd(hn::Mul(hn::ConvertTo(d, bits), unit), span, low);
    // Rounding may reach the open end.
    hn::StoreU(hn::IfThenElse(hn::Eq(value, high), low, value), d, out + i);
  }
  return i;
}

int64_t map_uniform_float(const uint32_t* words, float* out, int64_t count, float from, float to) {
  return map_uniform(words, out, count, from, to);
}
int64_t map_uniform_double(const uint64_t* words, double* out, int64_t count, double from, double to) {
  return map_uniform(words, out, count, from, to);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
namespace {

HWY_EXPORT(map_uniform_float);
HWY_EXPORT(map_uniform_double);

int64_t map_vectors(const uint32_t* words, float* out, int64_t count, float from, float to) {
  return HWY_DYNAMIC_DISPATCH(map_uniform_float)(words, out, count, from, to);
}
int64_t map_vectors(const uint64_t* words, double* out, int64_t count, double from, double to) {
  return HWY_DYNAMIC_DISPATCH(map_uniform_double)(words, out, count, from, to);
}

template <class Word, class T>
void map_block(const Word* words, T* out, int64_t count, T from, T to) {
  for (int64_t i = map_vectors(words, out, count, from, to); i < count; ++i) {
    const T value = std::fma(unit_uniform(words[i]), to - from, from);
    out[i] = value == to ? from : value;
  }
}

// In the 16-bit formats the open end is looked for after the last rounding, so equal zeros of either sign count.
template <class T>
void replace_open_end(T* out, int64_t count, T from, T to) {
  const uint16_t compared = float(to) == 0.0f ? 0x7fff : 0xffff;
  for (int64_t i = 0; i < count; ++i) {
    const bool at_end = ((out[i].bits ^ to.bits) & compared) == 0;
    out[i].bits = at_end ? from.bits : out[i].bits;
  }
}

template <class T>
void check_bounds(DType dtype, double from, double to) {
  constexpr double max = FloatRange<T>::kMax;
  MICA_CHECK(from >= -max && from <= max, "from is out of bounds for ", cpp_name(dtype));
  MICA_CHECK(to >= -max && to <= max, "to is out of bounds for ", cpp_name(dtype));
  MICA_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", shown(from),
             " > to=", shown(to));
  MICA_CHECK(to - from <= max, "uniform_ expects to-from <= std::numeric_limits<", info(dtype).legacy,
             ">::max(), but found to=", shown(to), " and from=", shown(from),
             " which result in to-from to exceed the limit");
}

}  // namespace

void fill_uniform(void* data, DType dtype, int64_t numel, double from, double to, const Generator& generator) {
  if (is_complex(dtype)) return fill_uniform(data, to_real(dtype), 2 * numel, from, to, generator);
  dispatch_floating(dtype, "check_uniform_bounds", [&]<class T>(T) {
    check_bounds<T>(dtype, from, to);
    if (numel == 0) return;
    auto* out = static_cast<T*>(data);
    CpuGenerator& source = cpu_generator(generator);
    std::lock_guard lock(source.mutex);
    if constexpr (sizeof(T) == 2) {
      alignas(64) float values[kDrawBlockBytes / sizeof(uint32_t)];
      draw_blocks<uint32_t>(source.engine, numel, [&](const uint32_t* words, int64_t first, int64_t count) {
        map_block(words, values, count, static_cast<float>(from), static_cast<float>(to));
        narrow(values, out + first, count);
        replace_open_end(out + first, count, T(static_cast<float>(from)), T(static_cast<float>(to)));
      });
    } else {
      using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
      draw_blocks<Word>(source.engine, numel, [&](const Word* words, int64_t first, int64_t count) {
        map_block(words, out + first, count, static_cast<T>(from), static_cast<T>(to));
      });
    }
  });
}

}  // namespace mica::cpu
#endif
