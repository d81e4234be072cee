// normal_: Box-Muller on groups of sixteen uniform numbers, the radii from the first eight and the angles from the
// rest.
//
// The bits are those of torch's x86 kernel, which computes float with the polynomials of the Cephes library in vectors
// of eight and fuses every product that feeds a sum; on other machines torch calls the C library, and so does this
// file.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <numbers>
#include <type_traits>

#include "backends/cpu/random/checks.h"
#include "backends/cpu/random/draw.h"
#include "backends/cpu/random/narrow.h"
#include "backends/cpu/random/normal_pairs.h"
#include "backends/cpu/random/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/random/normal.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::CappedTag<float, 8> df;
constexpr hn::RebindToSigned<decltype(df)> di;
using F = hn::Vec<decltype(df)>;
using I = hn::Vec<decltype(di)>;

// c[0] x^n + ... + c[n], by Horner's rule.
template <size_t N>
F polynomial(F x, const float (&c)[N]) {
  F y = hn::Set(df, c[0]);
  for (size_t i = 1; i < N; ++i) y = hn::MulAdd(y, x, hn::Set(df, c[i]));
  return y;
}

// log of normal x in (0, 1]: x = m 2^e with m in [sqrt(1/2), sqrt(2)), and a polynomial of m - 1.
F cephes_log(F x) {
  static constexpr float kCoefficients[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                                            -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                                            2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
  const F one = hn::Set(df, 1.0f);
  const F half = hn::Set(df, 0.5f);
  const I bits = hn::BitCast(di, x);
  const F mantissa = hn::Or(hn::AndNot(hn::BitCast(df, hn::Set(di, 0x7f800000)), x), half);
  const auto is_small = hn::Lt(mantissa, hn::Set(df, 0.707106781186547524f));
  F e = hn::Add(hn::ConvertTo(df, hn::Sub(hn::ShiftRight<23>(bits), hn::Set(di, 127))), one);
  e = hn::Sub(e, hn::IfThenElseZero(is_small, one));
  const F m = hn::Add(hn::Sub(mantissa, one), hn::IfThenElseZero(is_small, mantissa));
  const F square = hn::Mul(m, m);
  // ln 2 in two parts, the larger of them short enough for exact multiples.
  F y = hn::MulAdd(hn::Mul(polynomial(m, kCoefficients), m), square, hn::Mul(e, hn::Set(df, -2.12194440e-4f)));
  y = hn::NegMulAdd(square, half, y);
  return hn::MulAdd(e, hn::Set(df, 0.693359375f), hn::Add(m, y));
}

// Sine and cosine of x >= 0: the distance to the nearest even multiple j of pi/4, then a polynomial for each.
void cephes_sincos(F x, F& sine, F& cosine) {
  static constexpr float kSine[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
  static constexpr float kCosine[] = {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f};
  const I two = hn::Set(di, 2);
  const I four = hn::Set(di, 4);
  const I octant = hn::ConvertTo(di, hn::Mul(x, hn::Set(df, 1.27323954473516f)));
  const I j = hn::AndNot(hn::Set(di, 1), hn::Add(octant, hn::Set(di, 1)));
  const F multiple = hn::ConvertTo(df, j);
  // pi/4 in three parts.
  x = hn::MulAdd(multiple, hn::Set(df, -0.78515625f), x);
  x = hn::MulAdd(multiple, hn::Set(df, -2.4187564849853515625e-4f), x);
  x = hn::MulAdd(multiple, hn::Set(df, -3.77489497744594108e-8f), x);
  const F square = hn::Mul(x, x);

  F c = hn::Mul(polynomial(square, kCosine), square);
  c = hn::MulSub(c, square, hn::Mul(square, hn::Set(df, 0.5f)));
  c = hn::Add(c, hn::Set(df, 1.0f));
  const F s = hn::MulAdd(hn::Mul(polynomial(square, kSine), square), x, x);

  // Adding zero turns -0 into +0, as torch's way of selecting does.
  const auto in_place = hn::MaskFromVec(hn::BitCast(df, hn::VecFromMask(di, hn::Eq(hn::And(j, two), hn::Zero(di)))));
  const F zero = hn::Zero(df);
  const I sine_sign = hn::ShiftLeft<29>(hn::And(j, four));
  const I cosine_sign = hn::ShiftLeft<29>(hn::AndNot(hn::Sub(j, two), four));
  sine = hn::Xor(hn::Add(hn::IfThenElse(in_place, s, c), zero), hn::BitCast(df, sine_sign));
  cosine = hn::Xor(hn::Add(hn::IfThenElse(in_place, c, s), zero), hn::BitCast(df, cosine_sign));
}

F unit_uniforms(const uint32_t* words) {
  const I bits = hn::And(hn::LoadU(di, reinterpret_cast<const int32_t*>(words)), hn::Set(di, 0xffffff));
  return hn::Mul(hn::ConvertTo(df, bits), hn::Set(df, 0x1p-24f));
}

void box_muller(const uint32_t* words, float* out, int64_t groups, float mean, float std) {
  const F scale = hn::Set(df, std);
  const F shift = hn::Set(df, mean);
  for (const uint32_t* end = words + 16 * groups; words < end; words += 16, out += 16) {
    for (size_t i = 0; i < 8; i += hn::Lanes(df)) {
      const F u = hn::Sub(hn::Set(df, 1.0f), unit_uniforms(words + i));
      const F radius = hn::Sqrt(hn::Mul(hn::Set(df, -2.0f), cephes_log(u)));
      const F angle = hn::Mul(hn::Set(df, static_cast<float>(2.0 * std::numbers::pi)), unit_uniforms(words + 8 + i));
      F sine, cosine;
      cephes_sincos(angle, sine, cosine);
      hn::StoreU(hn::MulAdd(hn::Mul(radius, cosine), scale, shift), df, out + i);
      hn::StoreU(hn::MulAdd(hn::Mul(radius, sine), scale, shift), df, out + 8 + i);
    }
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
namespace {

HWY_EXPORT(box_muller);

template <class Word, class T>
void box_muller_scalar(const Word* words, T* out, int64_t groups, T mean, T std) {
  for (const Word* end = words + 16 * groups; words < end; words += 16, out += 16) {
    for (int64_t i = 0; i < 8; ++i) {
      const T radius = std::sqrt(-2 * std::log(1 - unit_uniform(words[i])));
      const T angle = static_cast<T>(2.0 * std::numbers::pi * unit_uniform(words[i + 8]));
      out[i] = std::fma(radius * std::cos(angle), std, mean);
      out[i + 8] = std::fma(radius * std::sin(angle), std, mean);
    }
  }
}

template <class T>
using WordOf = std::conditional_t<std::is_same_v<T, double>, uint64_t, uint32_t>;

template <class T>
void map_groups(const WordOf<T>* words, T* out, int64_t groups, double mean, double std) {
  if constexpr (std::is_same_v<T, double>) {
    box_muller_scalar(words, out, groups, mean, std);
  } else if constexpr (std::is_same_v<T, float>) {
#if HWY_ARCH_X86
    HWY_DYNAMIC_DISPATCH(box_muller)(words, out, groups, static_cast<float>(mean), static_cast<float>(std));
#else
    box_muller_scalar(words, out, groups, static_cast<float>(mean), static_cast<float>(std));
#endif
  } else {
    constexpr int64_t kGroups = 16;
    alignas(64) float values[16 * kGroups];
    for (int64_t i = 0; i < groups; i += kGroups) {
      const int64_t n = std::min(kGroups, groups - i);
      map_groups(words + 16 * i, values, n, mean, std);
      narrow(values, out + 16 * i, 16 * n);
    }
  }
}

// For at least sixteen elements. A last, incomplete group is not completed: as torch does, it draws sixteen more words
// and writes the last sixteen elements again.
template <class T>
void fill_groups(Mt19937& engine, T* out, int64_t numel, double mean, double std) {
  using Word = WordOf<T>;
  constexpr int64_t kGrain = std::is_same_v<T, double> ? 64 : 512;
  draw_blocks_parallel<Word, 16>(engine, numel / 16, kGrain, [&](const Word* words, int64_t first, int64_t groups) {
    map_groups(words, out + 16 * first, groups, mean, std);
  });
  if (const int64_t rest = numel % 16; rest != 0) {
    Word words[16];
    // Only the 16-bit kernel of torch leaves the words of the incomplete group undrawn.
    if (sizeof(T) > 2) draw_words(engine, words, rest);
    draw_words(engine, words, 16);
    map_groups(words, out + numel - 16, 1, mean, std);
  }
}

}  // namespace

void fill_normal(void* data, DType dtype, int64_t numel, double mean, double std, const Generator& generator,
                 bool is_contiguous) {
  MICA_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", shown(std));
  if (numel == 0) return;
  if (is_complex(dtype)) {
    return fill_normal(data, to_real(dtype), 2 * numel, mean, std / std::sqrt(2.0), generator, is_contiguous);
  }
  dispatch_floating(dtype, "normal_kernel_cpu", [&]<class T>(T) {
    auto* out = static_cast<T*>(data);
    CpuGenerator& source = cpu_generator(generator);
    std::lock_guard lock(source.mutex);
    if (numel >= 16 && is_contiguous) {
      fill_groups(source.engine, out, numel, mean, std);
    } else {
      draw_normals(source, numel,
                   [&](int64_t i, double sample) { out[i] = static_cast<T>(std::fma(sample, std, mean)); });
    }
  });
}

}  // namespace mica::cpu
#endif
