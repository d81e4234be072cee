// Inner loops over complex numbers as two vectors, of real and of imaginary parts. Included once per Highway target.
#if defined(MICA_COMPLEX_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_COMPLEX_LANES_INL_H_
#undef MICA_COMPLEX_LANES_INL_H_
#else
#define MICA_COMPLEX_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "backends/cpu/pointwise/run_loop.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Computes a vector of results: one part each, or two.
template <class R, int kParts, class F>
HWY_INLINE void compute_parts(R* out, const R* from, const F& f) {
  const hn::ScalableTag<R> d;
  hn::VFromD<decltype(d)> re, im;
  hn::LoadInterleaved2(d, from, re, im);
  if constexpr (kParts == 1) {
    hn::StoreU(f(d, re, im), d, out);
  } else {
    f(d, re, im);
    hn::StoreInterleaved2(re, im, d, out);
  }
}

// The last elements go through the same vectors, so that the bits of an element do not depend on where it lies.
template <class R, int kParts, class F>
HWY_ATTR void parts_loop(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides, int64_t rows,
                         const void* context) {
  const F& f = *static_cast<const F*>(context);
  const hn::ScalableTag<R> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN R parts[2 * hn::MaxLanes(d)] = {}, results[kParts * hn::MaxLanes(d)];
  char *to = data[0], *from = data[1];
  for (; rows > 0; --rows, to += row_strides[0], from += row_strides[1]) {
    R* o = reinterpret_cast<R*>(to);
    const R* a = reinterpret_cast<const R*>(from);
    if (strides[1] == 0) {  // one number for all
      std::memcpy(parts, a, 2 * sizeof(R));
      compute_parts<R, kParts>(results, parts, f);
      for (int64_t i = 0; i < n; ++i) std::memcpy(o + i * kParts, results, kParts * sizeof(R));
      continue;
    }
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) compute_parts<R, kParts>(o + i * kParts, a + 2 * i, f);
    if (i == n) continue;
    const auto left = static_cast<size_t>(n - i);
    std::memcpy(parts, a + 2 * i, left * 2 * sizeof(R));
    compute_parts<R, kParts>(results, parts, f);
    std::memcpy(o + i * kParts, results, left * static_cast<size_t>(kParts) * sizeof(R));
  }
}

// f(d, re, im) returns the result, or with two parts changes them.
template <class R, int kParts, class F>
void run_parts(const PointwiseLoop& loop, const F& f, int64_t grain) {
  run_dense(loop, parts_loop<R, kParts, F>, &f, grain);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
