#include "tests/backends/simd_math/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/backends/simd_math/kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/simd/convert-inl.h"
#include "backends/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The root that the kernel takes of several vectors at once, where it does.
template <class D, class V>
HWY_INLINE V grouped_sqrt(D d, V x) {
#if MICA_SIMD_AVX512
  V group[3] = {hn::Set(d, hn::TFromD<D>(2)), x, hn::Set(d, hn::TFromD<D>(3))};
  sqrt(d, group);
  return group[1];
#else
  return sqrt(d, x);
#endif
}

#define MICA_TEST_LOOP(NAME)                                                                  \
  template <class T>                                                                          \
  void NAME##_loop(const T* in, T* out, size_t n) {                                           \
    const hn::ScalableTag<T> d;                                                               \
    const size_t lanes = hn::Lanes(d);                                                        \
    size_t i = 0;                                                                             \
    for (; i + lanes <= n; i += lanes) hn::StoreU(NAME(d, hn::LoadU(d, in + i)), d, out + i); \
    if (i < n) store_first(NAME(d, load_first(d, in + i, n - i)), d, out + i, n - i);         \
  }
MICA_TEST_UNARY(MICA_TEST_LOOP)

#define MICA_TEST_BINARY_LOOP(NAME)                                                                      \
  template <class T>                                                                                     \
  void NAME##_loop(const T* a, const T* b, T* out, size_t n) {                                           \
    const hn::ScalableTag<T> d;                                                                          \
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {                                                       \
      const size_t count = n - i < hn::Lanes(d) ? n - i : hn::Lanes(d);                                  \
      store_first(NAME(d, load_first(d, a + i, count), load_first(d, b + i, count)), d, out + i, count); \
    }                                                                                                    \
  }
MICA_TEST_BINARY(MICA_TEST_BINARY_LOOP)

template <class Format>
void widen_loop(const uint16_t* in, float* out, size_t n) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load_as_float<Format>(d, in + i), d, out + i);
  if (i < n) store_first(load_first_as_float<Format>(d, in + i, n - i), d, out + i, n - i);
}

template <class Format>
void narrow_loop(const float* in, uint16_t* out, size_t n) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) store_from_float<Format>(hn::LoadU(d, in + i), d, out + i);
  if (i < n) store_first_from_float<Format>(load_first(d, in + i, n - i), d, out + i, n - i);
}

#define MICA_TEST_ENTRY(NAME) &NAME##_loop,
constexpr Loops<float> kFloats = {MICA_TEST_UNARY(MICA_TEST_ENTRY) MICA_TEST_BINARY(MICA_TEST_ENTRY)};
constexpr Loops<double> kDoubles = {MICA_TEST_UNARY(MICA_TEST_ENTRY) MICA_TEST_BINARY(MICA_TEST_ENTRY)};
constexpr Conversions kConversions = {&widen_loop<BFloat16Bits>, &narrow_loop<BFloat16Bits>, &widen_loop<HalfBits>,
                                      &narrow_loop<HalfBits>};

Target target() { return {hwy::TargetName(HWY_TARGET), kFloats, kDoubles, kConversions}; }

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(target);

const std::vector<Target>& targets() {
  static const std::vector<Target> found = [] {
    std::vector<Target> out;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      out.push_back(HWY_DYNAMIC_DISPATCH(target)());
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return out;
  }();
  return found;
}

}  // namespace mica::cpu
#endif
