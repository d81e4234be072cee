// The product of a row and a column of complex numbers, both read once and in place, the row conjugated or as it is.
#include <algorithm>
#include <complex>
#include <vector>

#include "backends/cpu/gemm/product.h"
#include "backends/cpu/register.h"
#include "mica/backend/kernel_types.h"
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

// Of conj(a) the imaginary parts change their sign: the same products with other signs.
template <class T>
HWY_INLINE std::complex<T> dot(const T* a, const T* b, int64_t count, bool conjugates) {
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
  const T sign = conjugates ? T(-1) : T(1);
  T re = 0, im = 0;
  for (int64_t k = 0; k < lanes; k += 2) {
    re += straight[k] - sign * straight[k + 1];
    im += crossed[k] + sign * crossed[k + 1];
  }
  for (; i < n; i += 2) {
    re += a[i] * b[i] - sign * (a[i + 1] * b[i + 1]);
    im += a[i] * b[i + 1] + sign * (a[i + 1] * b[i]);
  }
  return {re, im};
}

HWY_ATTR std::complex<float> dot_f32(const void* a, const void* b, int64_t count, bool conjugates) {
  return dot(static_cast<const float*>(a), static_cast<const float*>(b), count, conjugates);
}
HWY_ATTR std::complex<double> dot_f64(const void* a, const void* b, int64_t count, bool conjugates) {
  return dot(static_cast<const double*>(a), static_cast<const double*>(b), count, conjugates);
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

complex64 dot(const complex64* a, const complex64* b, int64_t n, bool conjugates) {
  return HWY_DYNAMIC_DISPATCH(dot_f32)(a, b, n, conjugates);
}
complex128 dot(const complex128* a, const complex128* b, int64_t n, bool conjugates) {
  return HWY_DYNAMIC_DISPATCH(dot_f64)(a, b, n, conjugates);
}

template <class C>
struct Numbers {
  const C* data;
  int64_t stride;

  // `count` of them side by side, from `first` on: in place, or copied to `room`.
  const C* adjacent(int64_t first, int64_t count, C* room) const {
    const C* from = data + first * stride;
    if (stride == 1) return from;
    for (int64_t i = 0; i < count; ++i) room[i] = from[i * stride];
    return room;
  }
};

// Of the elements from `first` on, block by block where they have to be copied.
template <class C>
C dot(Numbers<C> a, Numbers<C> b, int64_t first, int64_t count, bool conjugates) {
  if (a.stride == 1 && b.stride == 1) return dot(a.data + first, b.data + first, count, conjugates);
  constexpr int64_t kBlock = 512;
  C rooms[2][kBlock], sum = 0;
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    sum += dot(a.adjacent(first + i, n, rooms[0]), b.adjacent(first + i, n, rooms[1]), n, conjugates);
  }
  return sum;
}

template <class C>
C dot_in_threads(Numbers<C> a, Numbers<C> b, int64_t count, bool conjugates, int threads) {
  const int64_t slices = std::clamp<int64_t>(count / kElementsPerThread, 1, threads);
  if (slices == 1) return dot(a, b, 0, count, conjugates);
  std::vector<C> sums(static_cast<size_t>(slices));
  parallel_for(0, slices, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = count * i / slices;
      sums[static_cast<size_t>(i)] = dot(a, b, first, count * (i + 1) / slices - first, conjugates);
    }
  });
  C sum = sums[0];
  for (size_t i = 1; i < sums.size(); ++i) sum += sums[i];
  return sum;
}

template <class C>
void write_product(const Product& p, int threads) {
  const Numbers<C> a{static_cast<const C*>(p.a.data), p.a.col_stride};
  const Numbers<C> b{static_cast<const C*>(p.b.data), p.b.row_stride};
  *reinterpret_cast<C*>(p.c) = dot_in_threads(a, b, p.k, false, threads);
}

template <class C>
void write_vdot(const TensorView& out, const TensorView& a, const TensorView& b) {
  *out.ptr<C>() = dot_in_threads(Numbers<C>{a.ptr<const C>(), a.strides[0]}, Numbers<C>{b.ptr<const C>(), b.strides[0]},
                                 a.numel, true, get_num_threads());
}

void vdot(const TensorView& out, const TensorView& a, const TensorView& b) {
  if (out.dtype == DType::Complex64) return write_vdot<complex64>(out, a, b);
  if (out.dtype == DType::Complex128) return write_vdot<complex128>(out, a, b);
  unsupported_dtype("vdot", out.dtype);
}
}  // namespace

bool run_complex_dot(const Scheme& s, const Product& p, int threads) {
  if (s.parts != 2 || p.m != 1 || p.n != 1 || !p.plain) return false;
  s.dtype == DType::Complex64 ? write_product<complex64>(p, threads) : write_product<complex128>(p, threads);
  return true;
}

MICA_REGISTER_CPU(vdot, vdot);
}  // namespace mica::cpu::gemm_impl
#endif
