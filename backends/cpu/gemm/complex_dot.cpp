// The product of a row and a column of complex numbers, both read once and in place.
#include <algorithm>
#include <complex>
#include <vector>

#include "backends/cpu/gemm/product.h"
#include "mica/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/complex_dot.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::gemm_impl {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Parts lie side by side, so that vectors hold them by turns. `straight` has the products of real with real and of
// imaginary with imaginary parts, `crossed` those of one with the other.
template <class T>
struct DotSums {
  using D = hn::ScalableTag<T>;
  hn::Vec<D> straight, crossed;
  HWY_INLINE DotSums() : straight(hn::Zero(D())), crossed(hn::Zero(D())) {}
  HWY_INLINE void add(const T* a, const T* b) {
    const D d;
    const auto x = hn::LoadU(d, a), y = hn::LoadU(d, b);
    straight = hn::MulAdd(x, y, straight);
    crossed = hn::MulAdd(x, hn::Reverse2(d, y), crossed);
  }
  HWY_INLINE void add(const DotSums& other) {
    straight = hn::Add(straight, other.straight);
    crossed = hn::Add(crossed, other.crossed);
  }
};

template <class T>
HWY_INLINE std::complex<T> dot(const T* a, const T* b, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = 2 * count;
  DotSums<T> s0, s1, s2, s3;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0.add(a + i, b + i);
    s1.add(a + i + lanes, b + i + lanes);
    s2.add(a + i + 2 * lanes, b + i + 2 * lanes);
    s3.add(a + i + 3 * lanes, b + i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) s0.add(a + i, b + i);
  s0.add(s1);
  s2.add(s3);
  s0.add(s2);
  HWY_ALIGN T straight[hn::MaxLanes(d)], crossed[hn::MaxLanes(d)];
  hn::Store(s0.straight, d, straight);
  hn::Store(s0.crossed, d, crossed);
  T re = 0, im = 0;
  for (int64_t k = 0; k < lanes; k += 2) {
    re += straight[k] - straight[k + 1];
    im += crossed[k] + crossed[k + 1];
  }
  for (; i < n; i += 2) {
    re += a[i] * b[i] - a[i + 1] * b[i + 1];
    im += a[i] * b[i + 1] + a[i + 1] * b[i];
  }
  return {re, im};
}

HWY_ATTR std::complex<float> dot_f32(const void* a, const void* b, int64_t count) {
  return dot(static_cast<const float*>(a), static_cast<const float*>(b), count);
}
HWY_ATTR std::complex<double> dot_f64(const void* a, const void* b, int64_t count) {
  return dot(static_cast<const double*>(a), static_cast<const double*>(b), count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::gemm_impl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu::gemm_impl {
namespace {
HWY_EXPORT(dot_f32);
HWY_EXPORT(dot_f64);

constexpr int64_t kElementsPerThread = 32768;

complex64 dot(const complex64* a, const complex64* b, int64_t n) { return HWY_DYNAMIC_DISPATCH(dot_f32)(a, b, n); }
complex128 dot(const complex128* a, const complex128* b, int64_t n) { return HWY_DYNAMIC_DISPATCH(dot_f64)(a, b, n); }

template <class C>
C dot_in_threads(const Product& p, int threads) {
  const auto *a = static_cast<const C*>(p.a.data), *b = static_cast<const C*>(p.b.data);
  const int64_t slices = std::clamp<int64_t>(p.k / kElementsPerThread, 1, threads);
  if (slices == 1) return dot(a, b, p.k);
  std::vector<C> sums(static_cast<size_t>(slices));
  parallel_for(0, slices, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = p.k * i / slices;
      sums[static_cast<size_t>(i)] = dot(a + first, b + first, p.k * (i + 1) / slices - first);
    }
  });
  C sum = sums[0];
  for (size_t i = 1; i < sums.size(); ++i) sum += sums[i];
  return sum;
}
}  // namespace

bool run_complex_dot(const Scheme& s, const Product& p, int threads) {
  if (s.parts != 2 || p.m != 1 || p.n != 1 || !p.plain || p.a.col_stride != 1 || p.b.row_stride != 1) return false;
  if (s.dtype == DType::Complex64) {
    *reinterpret_cast<complex64*>(p.c) = dot_in_threads<complex64>(p, threads);
  } else {
    *reinterpret_cast<complex128*>(p.c) = dot_in_threads<complex128>(p, threads);
  }
  return true;
}
}  // namespace mica::cpu::gemm_impl
#endif
