// Loops over rows of scores, which are in units of log 2.

#if defined(MICA_CPU_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_ATTENTION_SCORES_INL_H_
#undef MICA_CPU_ATTENTION_SCORES_INL_H_
#else
#define MICA_CPU_ATTENTION_SCORES_INL_H_
#endif

#include <cmath>
#include <limits>

#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/softmax/row_io-inl.h"
#include "mica/backend/tensor_view.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

#if MICA_SIMD_AVX512
// x less its nearest whole number; 0 for an infinity.
HWY_INLINE hn::Vec512<float> fraction(hn::Vec512<float> x) { return {_mm512_reduce_ps(x.raw, 8)}; }
HWY_INLINE hn::Vec512<double> fraction(hn::Vec512<double> x) { return {_mm512_reduce_pd(x.raw, 8)}; }
#endif

// 2^x for x up to a few hundred, without the upper bound that exp2 checks.
template <class D, class V>
HWY_INLINE V power_of_two(D d, V x) {
  using T = hn::TFromD<D>;
#if MICA_SIMD_AVX512
  if constexpr (hn::MaxLanes(D()) * sizeof(T) == 64) {  // on vectors of 64 bytes scaling has no bounds
    const V r = fraction(x);
    return scale_by_pow2(d, hn::MulAdd(polynomial(d, r, Polynomials<T>::kExp2), r, hn::Set(d, T(1))), hn::Sub(x, r));
  }
#endif
  x = at_least(d, x, sizeof(T) == 4 ? T(-151) : T(-1076));
  const V n = nearest_multiple(d, x, T(1));
  const V r = hn::Sub(x, n);
  return scale_by_pow2(d, hn::MulAdd(polynomial(d, r, Polynomials<T>::kExp2), r, hn::Set(d, T(1))), n);
}

// Constant i of a series as a multiply-add's addend. On NEON, which overwrites addends, it is loaded for each by one
// instruction; Addends::get() takes two, which matters where eight vectors go in step.
template <class D, class Series>
HWY_INLINE hn::VFromD<D> addend(D d, const Series& series, size_t i) {
#if HWY_ARCH_ARM_A64
  if constexpr (hn::MaxLanes(D()) == Series::kLanes) {
    using Raw = decltype(hn::VFromD<D>::raw);
    hn::VFromD<D> constant;
    asm volatile("ldr %q0, %1" : "=w"(constant.raw) : "m"(*reinterpret_cast<const Raw*>(series.lanes[i])));
    return constant;
  }
#endif
  return series.get(d, i);
}

// The powers of several vectors at once. Where no power is subnormal or infinite, the whole part is added to the
// exponent's bits; kSmall says that this is known beforehand.
template <bool kSmall = false, class D, class V, size_t kCount>
HWY_INLINE void powers_of_two(D d, V (&x)[kCount]) {
  if constexpr (!MICA_SIMD_AVX512) {
    using T = hn::TFromD<D>;
    using P = Polynomials<T>;
    if (kSmall || have_normal_exp(d, x)) {
      static constexpr Addends kSeries{P::kExp2};
      constexpr size_t kTerms = sizeof(P::kExp2) / sizeof(T);
      const hn::RebindToSigned<D> di;
      const V magic = hn::Set(d, FloatFormat<T>::kRoundingMagic);
      V shifted[kCount], p[kCount];
#define MICA_SIMD_EACH for (size_t k = 0; k < kCount; ++k)
      MICA_SIMD_EACH shifted[k] = hn::Add(x[k], magic);
      MICA_SIMD_EACH x[k] = hn::Sub(x[k], hn::Sub(shifted[k], magic));
      MICA_SIMD_EACH p[k] = hn::Set(d, P::kExp2[kTerms - 1]);
#pragma GCC unroll 16
      for (size_t i = 2; i <= kTerms; ++i) {
        MICA_SIMD_EACH p[k] = hn::MulAdd(p[k], x[k], addend(d, kSeries, kTerms - i));
      }
      MICA_SIMD_EACH p[k] = hn::MulAdd(p[k], x[k], addend(d, ExpAddends<T>::kOthers, 0));
      MICA_SIMD_EACH x[k] = hn::BitCast(
          d, hn::Add(hn::BitCast(di, p[k]), hn::ShiftLeft<FloatFormat<T>::kMantissaBits>(hn::BitCast(di, shifted[k]))));
#undef MICA_SIMD_EACH
      return;
    }
  }
  for (V& v : x) v = power_of_two(d, v);
}

template <class T>
HWY_INLINE T largest(const T* row, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto m0 = hn::Set(d, -std::numeric_limits<T>::infinity()), m1 = m0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = larger_or_nan(m0, hn::LoadU(d, row + i));
    m1 = larger_or_nan(m1, hn::LoadU(d, row + i + lanes));
  }
  for (; i < n; i += lanes) {
    const size_t rest = static_cast<size_t>(std::min(lanes, n - i));
    const auto x = load_first(d, row + i, rest);
    m0 = hn::IfThenElse(hn::FirstN(d, rest), larger_or_nan(m0, x), m0);
  }
  return hn::GetLane(hn::MaxOfLanes(d, larger_or_nan(m0, m1)));
}

// The largest of `columns` sums (at most kMostColumns) of squares, or of magnitudes, of `rows` elements each; NaN if
// one of them is.
inline constexpr int64_t kMostColumns = 32;
template <bool kSquares, class T>
HWY_INLINE T largest_column(const T* at, int64_t columns, int64_t rows, int64_t stride) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto add = [&](auto sum, const T* from) HWY_ATTR {
    const auto x = hn::LoadU(d, from);
    return kSquares ? hn::MulAdd(x, x, sum) : hn::Add(sum, hn::Abs(x));
  };
  T sums[kMostColumns] = {};
  int64_t whole = 0;
  for (; whole + 2 * lanes <= columns; whole += 2 * lanes) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    const T* from = at + whole;
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2, from += 2 * stride) {
      s0 = add(s0, from), s1 = add(s1, from + lanes);
      s2 = add(s2, from + stride), s3 = add(s3, from + stride + lanes);
    }
    if (r < rows) s0 = add(s0, from), s1 = add(s1, from + lanes);
    hn::StoreU(hn::Add(s0, s2), d, sums + whole);
    hn::StoreU(hn::Add(s1, s3), d, sums + whole + lanes);
  }
  if (whole + lanes <= columns) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    const T* from = at + whole;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4, from += 4 * stride) {
      s0 = add(s0, from), s1 = add(s1, from + stride);
      s2 = add(s2, from + 2 * stride), s3 = add(s3, from + 3 * stride);
    }
    for (; r < rows; ++r, from += stride) s0 = add(s0, from);
    hn::StoreU(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), d, sums + whole);
    whole += lanes;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = whole; c < columns; ++c) {
      const T x = at[r * stride + c];
      sums[c] += kSquares ? x * x : std::abs(x);
    }
  }
  T largest = 0;
  for (int64_t c = 0; c < columns; ++c)
    if (sums[c] > largest || sums[c] != sums[c]) largest = sums[c];
  return largest;
}

// row[i] = 2^(row[i] - shift) for i < n, zero from there to `end`; returns the sums by lanes. With kSmall the shift is
// 0 and no power is near the ends of the numbers' range.
template <bool kSmall = false, class T>
HWY_INLINE hn::VFromD<hn::ScalableTag<T>> powers_and_sums(T* row, int64_t n, int64_t end, T shift) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vshift = hn::Set(d, shift);
  auto s0 = hn::Zero(d), s1 = s0;
  int64_t i = 0;
  constexpr int64_t kTogether = MICA_SIMD_AVX512 ? 2 : 4;
  for (; i + kTogether * lanes <= n; i += kTogether * lanes) {
    hn::VFromD<decltype(d)> p[kTogether];
    for (int64_t k = 0; k < kTogether; ++k) {
      p[k] = hn::LoadU(d, row + i + k * lanes);
      if (!kSmall) p[k] = hn::Sub(p[k], vshift);
    }
    powers_of_two<kSmall>(d, p);
    for (int64_t k = 0; k < kTogether; ++k) {
      hn::StoreU(p[k], d, row + i + k * lanes);
      (k % 2 ? s1 : s0) = hn::Add(k % 2 ? s1 : s0, p[k]);
    }
  }
  for (; i < n; i += lanes) {
    const size_t rest = static_cast<size_t>(std::min(lanes, n - i));
    const auto p =
        hn::IfThenElseZero(hn::FirstN(d, rest), power_of_two(d, hn::Sub(load_first(d, row + i, rest), vshift)));
    store_first(p, d, row + i, rest);
    s0 = hn::Add(s0, p);
  }
  std::fill(row + n, row + std::max(n, end), T(0));
  return hn::Add(s0, s1);
}

// The same with kSmall for a row that ends within the last vectors. Up to `whole`, a multiple of two vectors, it does
// not check where the row ends; from there on it goes vector by vector, and writes all of them.
template <class T>
HWY_INLINE hn::VFromD<hn::ScalableTag<T>> powers_and_sums_to_end(T* row, int64_t whole, int64_t n, int64_t end) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sums = powers_and_sums<true>(row, whole, whole, T(0));
  for (int64_t i = whole; i < end; i += lanes) {
    const auto seen = hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(n - i, 0, lanes)));
    const auto p = hn::IfThenElseZero(seen, power_of_two(d, hn::LoadU(d, row + i)));
    hn::StoreU(p, d, row + i);
    sums = hn::Add(sums, p);
  }
  return sums;
}

// Four vectors of four as the columns of a block.
template <class D, class V>
HWY_INLINE void store_turned(D d, V p0, V p1, V p2, V p3, float* to, int64_t to_stride) {
  const hn::Repartition<uint64_t, D> pairs;
  const auto a = hn::BitCast(pairs, hn::InterleaveLower(d, p0, p1)),
             b = hn::BitCast(pairs, hn::InterleaveUpper(d, p0, p1));
  const auto c = hn::BitCast(pairs, hn::InterleaveLower(d, p2, p3)),
             e = hn::BitCast(pairs, hn::InterleaveUpper(d, p2, p3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, a, c)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, a, c)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, b, e)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, b, e)), d, to + 3 * to_stride);
}

// to[k * to_stride + j] = 2^rows[j * stride + k] for four rows and the keys k from `begin` to `end`, both multiples of
// four. Vectors of four are transposed in registers. With kSteps, row j has `first + j` keys, at most `seen`, and other
// powers are zero. No power is near the ends of the range. Adds to four vectors of sums.
template <bool kSteps>
HWY_ATTR void turned_powers(const float* rows, int64_t stride, int64_t begin, int64_t end, int64_t first, int64_t seen,
                            float* to, int64_t to_stride, float* totals) {
  const hn::FixedTag<float, 4> d;
  using V = hn::VFromD<decltype(d)>;
  V sums[4];
  for (int64_t j = 0; j < 4; ++j) sums[j] = hn::LoadU(d, totals + 4 * j);
  to += begin * to_stride;
  int64_t k = begin;
  if constexpr (!kSteps) {
    // Eight at a time: as many as the units take until the first is ready for its next step.
    for (; k + 8 <= end; k += 8, to += 8 * to_stride) {
      V p[8];
#pragma GCC unroll 8
      for (int64_t j = 0; j < 8; ++j) p[j] = hn::LoadU(d, rows + j % 4 * stride + k + j / 4 * 4);
      powers_of_two<true>(d, p);
#pragma GCC unroll 8
      for (int64_t j = 0; j < 8; ++j) sums[j % 4] = hn::Add(sums[j % 4], p[j]);
      store_turned(d, p[0], p[1], p[2], p[3], to, to_stride);
      store_turned(d, p[4], p[5], p[6], p[7], to + 4 * to_stride, to_stride);
    }
  }
  for (; k < end; k += 4, to += 4 * to_stride) {
    V p[4];
    for (int64_t j = 0; j < 4; ++j) p[j] = hn::LoadU(d, rows + j * stride + k);
    powers_of_two<true>(d, p);
    if constexpr (kSteps) {
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t left = std::clamp<int64_t>(std::min(first + j, seen) - k, 0, 4);
        p[j] = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(left)), p[j]);
      }
    }
    for (int64_t j = 0; j < 4; ++j) sums[j] = hn::Add(sums[j], p[j]);
    store_turned(d, p[0], p[1], p[2], p[3], to, to_stride);
  }
  for (int64_t j = 0; j < 4; ++j) hn::StoreU(sums[j], d, totals + 4 * j);
}

// scores[i] = p, grads[i] = p * (grads[i] - delta) with p = 2^(scores[i] - shift), for i < n; zeros from there to
// `end`.
template <class T>
HWY_INLINE void powers_and_gradients(T* scores, T* grads, int64_t n, int64_t end, T shift, T delta) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vshift = hn::Set(d, shift), vdelta = hn::Set(d, delta);
  int64_t i = 0;
  constexpr int64_t kTogether = MICA_SIMD_AVX512 ? 2 : 4;
  for (; i + kTogether * lanes <= n; i += kTogether * lanes) {
    hn::VFromD<decltype(d)> p[kTogether];
    for (int64_t k = 0; k < kTogether; ++k) p[k] = hn::Sub(hn::LoadU(d, scores + i + k * lanes), vshift);
    powers_of_two(d, p);
    for (int64_t k = 0; k < kTogether; ++k) {
      T* grad = grads + i + k * lanes;
      hn::StoreU(p[k], d, scores + i + k * lanes);
      hn::StoreU(hn::Mul(p[k], hn::Sub(hn::LoadU(d, grad), vdelta)), d, grad);
    }
  }
  for (; i + lanes <= n; i += lanes) {
    const auto p = power_of_two(d, hn::Sub(hn::LoadU(d, scores + i), vshift));
    hn::StoreU(p, d, scores + i);
    hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, grads + i), vdelta)), d, grads + i);
  }
  if (i < n) {
    const size_t rest = static_cast<size_t>(n - i);
    const auto p = power_of_two(d, hn::Sub(load_first(d, scores + i, rest), vshift));
    store_first(p, d, scores + i, rest);
    store_first(hn::Mul(p, hn::Sub(load_first(d, grads + i, rest), vdelta)), d, grads + i, rest);
  }
  std::fill(scores + n, scores + std::max(n, end), T(0));
  std::fill(grads + n, grads + std::max(n, end), T(0));
}

template <class T>
HWY_INLINE void scale_run(const T* row, int64_t n, T factor, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, row + i), f), d, to + i);
  if (i < n) store_first(hn::Mul(load_first(d, row + i, n - i), f), d, to + i, n - i);
}
template <class T>
HWY_INLINE void scale_run(T* row, int64_t n, T factor) {
  scale_run(row, n, factor, row);
}

template <class T>
HWY_INLINE T dot_run(const T* a, const T* b, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  if (i < n) sum = hn::MulAdd(load_first(d, a + i, n - i), load_first(d, b + i, n - i), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Writes row * factor in the tensor's dtype.
template <class T>
HWY_INLINE void write_row(T* row, int64_t n, T factor, DType dtype, char* to) {
  if (dtype == dtype_v<T>) return scale_run(row, n, factor, reinterpret_cast<T*>(to));
  scale_run(row, n, factor);
  if constexpr (sizeof(T) == 4) {
    if (dtype == DType::BFloat16) return close_row(row, n, reinterpret_cast<BFloat16*>(to));
    close_row(row, n, reinterpret_cast<Half*>(to));
  }
}

// The mask of one head: added to scores, or (bool) minus infinity where it is false.
class HeadMask {
 public:
  HeadMask(const TensorView& mask, int64_t batch, int64_t head) {
    if (!mask.defined()) return;
    dtype_ = mask.dtype;
    row_stride_ = mask.stride(2) * element_size(dtype_);
    stride_ = mask.stride(3);
    data_ = mask.ptr<const char>() + (batch * mask.stride(0) + head * mask.stride(1)) * element_size(dtype_);
  }
  explicit operator bool() const { return data_ != nullptr; }

  template <class T>
  void add_to(T* scores, int64_t row, int64_t column, int64_t n) const {
    switch (dtype_) {
      case DType::Bool:
        return exclude(scores, at<uint8_t>(row, column), n);
      case DType::Float32:
        return add(scores, at<float>(row, column), n);
      case DType::Float64:
        return add(scores, at<double>(row, column), n);
      case DType::BFloat16:
        return add(scores, at<BFloat16>(row, column), n);
      default:
        return add(scores, at<Half>(row, column), n);
    }
  }

 private:
  template <class M>
  const M* at(int64_t row, int64_t column) const {
    return reinterpret_cast<const M*>(data_ + row * row_stride_) + column * stride_;
  }
  template <class T, class M>
  void add(T* scores, const M* mask, int64_t n) const {
    if (stride_ == 1) {
      for (int64_t i = 0; i < n; ++i) scores[i] += static_cast<T>(mask[i]) * T(kLog2E);
    } else {
      for (int64_t i = 0; i < n; ++i) scores[i] += static_cast<T>(mask[i * stride_]) * T(kLog2E);
    }
  }
  template <class T>
  void exclude(T* scores, const uint8_t* mask, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) scores[i] = mask[i * stride_] ? scores[i] : -std::numeric_limits<T>::infinity();
  }

  const char* data_ = nullptr;
  DType dtype_ = DType::Undefined;
  int64_t row_stride_ = 0, stride_ = 0;
};

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_ATTENTION_SCORES_INL_H_
