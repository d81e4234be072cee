// Copies into packed panels, with conversion and transposition, and the rounding of finished sums into C.
#include "backends/cpu/gemm/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "mica/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/element_copy.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/gemm/element_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::gemm_impl {
namespace HWY_NAMESPACE {
namespace {

template <class S, class T>
HWY_INLINE T to_sum(S value) {
  return static_cast<T>(value);
}

constexpr bool kMasksAreCheap = HWY_TARGET <= HWY_AVX3;

template <class S>
HWY_INLINE void copy_run(const S* src, SumOf<S>* dst, int64_t count) {
  using T = SumOf<S>;
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_as(d, src + i), d, dst + i);
  // Rows of a panel of A are shorter than a wide vector.
  if constexpr (kMasksAreCheap && std::is_same_v<S, T>) {
    if (i == count) return;
    const auto rest = hn::FirstN(d, static_cast<size_t>(count - i));
    hn::BlendedStore(hn::MaskedLoad(rest, d, src + i), rest, d, dst + i);
    return;
  }
  if constexpr (HWY_TARGET != HWY_SCALAR) {
    constexpr int64_t kFew = 16 / sizeof(T);
    const hn::FixedTag<T, kFew> few;
    for (; i + kFew <= count; i += kFew) hn::StoreU(load_as(few, src + i), few, dst + i);
  }
  for (; i < count; ++i) dst[i] = to_sum<S, T>(src[i]);
}

// Copies every second element: the real or the imaginary parts of adjacent complex numbers. The last one is read alone,
// since src may be an imaginary part with nothing behind it.
template <class S>
HWY_INLINE void copy_alternate(const S* src, SumOf<S>* dst, int64_t count) {
  int64_t i = 0;
  if constexpr (std::is_arithmetic_v<S> && sizeof(S) == sizeof(SumOf<S>)) {
    const hn::ScalableTag<SumOf<S>> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto* from = reinterpret_cast<const SumOf<S>*>(src);
    for (; i + lanes < count; i += lanes) {
      if constexpr (sizeof(S) == 8 && HWY_ARCH_ARM_A64) {
        // Two loads and one instruction take half the time of an interleaved load here.
        hn::StoreU(hn::InterleaveLower(d, hn::LoadU(d, from + 2 * i), hn::LoadU(d, from + 2 * i + lanes)), d, dst + i);
      } else {
        hn::Vec<decltype(d)> even, odd;
        hn::LoadInterleaved2(d, from + 2 * i, even, odd);
        hn::StoreU(even, d, dst + i);
      }
    }
  }
  for (; i < count; ++i) dst[i] = to_sum<S, SumOf<S>>(src[2 * i]);
}

// dst[j * stride_dst + i] = src[i * stride_src + j] for a 4 x 4 block of 32-bit sums.
template <class S>
HWY_INLINE void transpose_4x4(const S* src, int64_t src_stride, SumOf<S>* dst, int64_t dst_stride) {
  using T = SumOf<S>;
  const hn::FixedTag<T, 4> d;
  const hn::Repartition<uint64_t, decltype(d)> wide;
  const auto r0 = load_as(d, src), r1 = load_as(d, src + src_stride);
  const auto r2 = load_as(d, src + 2 * src_stride), r3 = load_as(d, src + 3 * src_stride);
  const auto p0 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1)),
             p1 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
  const auto q0 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3)),
             q1 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, p0, q0)), d, dst);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, p0, q0)), d, dst + dst_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, p1, q1)), d, dst + 2 * dst_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, p1, q1)), d, dst + 3 * dst_stride);
}

// The same for a 2 x 2 block of 64-bit sums.
template <class S>
HWY_INLINE void transpose_2x2(const S* src, int64_t src_stride, SumOf<S>* dst, int64_t dst_stride) {
  const hn::FixedTag<SumOf<S>, 2> d;
  const auto r0 = load_as(d, src), r1 = load_as(d, src + src_stride);
  hn::StoreU(hn::InterleaveLower(d, r0, r1), d, dst);
  hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, dst + dst_stride);
}

#if HWY_TARGET <= HWY_AVX3
// Loads the same four columns of rows 0, 4, 8 and 12 into the four parts of a vector. Only one unit shuffles, and
// inserting from memory spares it half of its work.
HWY_INLINE __m512 four_rows(const float* at, int64_t stride) {
  __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(at));
  v = _mm512_insertf32x4(v, _mm_loadu_ps(at + 4 * stride), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps(at + 8 * stride), 2);
  return _mm512_insertf32x4(v, _mm_loadu_ps(at + 12 * stride), 3);
}

// dst[j * dst_stride + i] = src[i * src_stride + j] for a 16 x 16 block of 4 bytes each, whatever they mean.
HWY_INLINE void transpose_16x16(const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
#pragma GCC unroll 4
  for (int j = 0; j < 16; j += 4) {
    const __m512 r0 = four_rows(src + j, src_stride), r1 = four_rows(src + j + src_stride, src_stride);
    const __m512 r2 = four_rows(src + j + 2 * src_stride, src_stride),
                 r3 = four_rows(src + j + 3 * src_stride, src_stride);
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(r0, r1)),
                  low23 = _mm512_castps_pd(_mm512_unpacklo_ps(r2, r3));
    const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(r0, r1)),
                  high23 = _mm512_castps_pd(_mm512_unpackhi_ps(r2, r3));
    float* to = dst + j * dst_stride;
    _mm512_storeu_pd(to, _mm512_unpacklo_pd(low01, low23));
    _mm512_storeu_pd(to + dst_stride, _mm512_unpackhi_pd(low01, low23));
    _mm512_storeu_pd(to + 2 * dst_stride, _mm512_unpacklo_pd(high01, high23));
    _mm512_storeu_pd(to + 3 * dst_stride, _mm512_unpackhi_pd(high01, high23));
  }
}
#endif

#if HWY_ARCH_ARM_A64
// Copies kSquares x 4 rows of floats into a panel of so many columns. All rows of a depth are copied together, so that
// it reads and writes memory in order.
template <int kSquares>
void turn_into_panel(const float* src, int64_t src_stride, int64_t depth, float* dst) {
  constexpr int64_t kRows = 4 * kSquares;
  constexpr int64_t kFetchAhead = 64;
  const auto turn = [&](const float* from, float* to) HWY_ATTR {
#pragma GCC unroll 3
    for (int q = 0; q < kSquares; ++q) transpose_4x4(from + 4 * q * src_stride, src_stride, to + 4 * q, kRows);
  };
  int64_t k = 0;
  for (; k + 16 <= depth; k += 16) {
    if (k + kFetchAhead < depth) {
#pragma GCC unroll 12
      for (int64_t r = 0; r < kRows; ++r) __builtin_prefetch(src + r * src_stride + k + kFetchAhead);
    }
    for (int64_t j = k; j < k + 16; j += 4) turn(src + j, dst + j * kRows);
  }
  for (; k + 4 <= depth; k += 4) turn(src + k, dst + k * kRows);
  for (; k < depth; ++k) {
    for (int64_t r = 0; r < kRows; ++r) dst[k * kRows + r] = src[r * src_stride + k];
  }
}
#endif

// Transposes: src has adjacent columns, dst adjacent rows.
template <class S>
void copy_transposed(const S* src, SumOf<S>* dst, const CopyShape& s) {
  using T = SumOf<S>;
  constexpr int64_t kBlock = 16;  // columns per pass: one cache line of a 4-byte source
  [[maybe_unused]] constexpr int64_t kFetchAhead = 4 * kBlock;
  for (int64_t j0 = 0; j0 < s.cols; j0 += kBlock) {
    const int64_t j1 = std::min(s.cols, j0 + kBlock);
    int64_t i = 0;
#if HWY_TARGET <= HWY_AVX3
    if constexpr (std::is_same_v<S, T> && sizeof(T) == 4) {
      const float* from = reinterpret_cast<const float*>(src) + j0;
      float* to = reinterpret_cast<float*>(dst) + j0 * s.dst_col_stride;
      for (; j1 == j0 + kBlock && i + 16 <= s.rows; i += 16) {
        // These are more rows than the processor fetches ahead by itself.
        for (int64_t r = i; r < i + 16; ++r) __builtin_prefetch(from + r * s.src_row_stride + kFetchAhead);
        transpose_16x16(from + i * s.src_row_stride, s.src_row_stride, to + i, s.dst_col_stride);
      }
    }
#endif
    if constexpr (HWY_TARGET != HWY_SCALAR) {
      constexpr int64_t kSide = 16 / sizeof(T);
      for (; i + kSide <= s.rows; i += kSide) {
        int64_t j = j0;
        for (; j + kSide <= j1; j += kSide) {
          const S* from = src + i * s.src_row_stride + j;
          T* to = dst + j * s.dst_col_stride + i;
          if constexpr (kSide == 4) {
            transpose_4x4(from, s.src_row_stride, to, s.dst_col_stride);
          } else {
            transpose_2x2(from, s.src_row_stride, to, s.dst_col_stride);
          }
        }
        for (; j < j1; ++j) {
          for (int64_t r = i; r < i + kSide; ++r)
            dst[j * s.dst_col_stride + r] = to_sum<S, T>(src[r * s.src_row_stride + j]);
        }
      }
    }
    for (; i < s.rows; ++i) {
      for (int64_t j = j0; j < j1; ++j) dst[j * s.dst_col_stride + i] = to_sum<S, T>(src[i * s.src_row_stride + j]);
    }
  }
}

template <class S>
void copy(const void* src_bytes, void* dst_bytes, const CopyShape& shape) {
  using T = SumOf<S>;
  const S* src = static_cast<const S*>(src_bytes);
  T* dst = static_cast<T*>(dst_bytes);
  CopyShape s = shape;
  // The dimension along which both have the smaller strides comes last.
  const bool swap = s.src_row_stride == 1 && (s.dst_row_stride == 1 || s.src_col_stride != 1);
  if (swap) {
    std::swap(s.rows, s.cols);
    std::swap(s.src_row_stride, s.src_col_stride);
    std::swap(s.dst_row_stride, s.dst_col_stride);
  }
  if (s.src_col_stride == 1 && s.dst_col_stride == 1) {
    for (int64_t i = 0; i < s.rows; ++i) copy_run<S>(src + i * s.src_row_stride, dst + i * s.dst_row_stride, s.cols);
  } else if (s.src_col_stride == 1 && s.dst_row_stride == 1) {
#if HWY_ARCH_ARM_A64
    if constexpr (std::is_same_v<S, float>) {
      if (s.rows == 8 && s.dst_col_stride == 8) return turn_into_panel<2>(src, s.src_row_stride, s.cols, dst);
      if (s.rows == 12 && s.dst_col_stride == 12) return turn_into_panel<3>(src, s.src_row_stride, s.cols, dst);
    }
#endif
    copy_transposed<S>(src, dst, s);
  } else if (s.src_col_stride == 2 && s.dst_col_stride == 1) {
    for (int64_t i = 0; i < s.rows; ++i)
      copy_alternate<S>(src + i * s.src_row_stride, dst + i * s.dst_row_stride, s.cols);
  } else {
    for (int64_t i = 0; i < s.rows; ++i) {
      for (int64_t j = 0; j < s.cols; ++j) {
        dst[i * s.dst_row_stride + j * s.dst_col_stride] =
            to_sum<S, T>(src[i * s.src_row_stride + j * s.src_col_stride]);
      }
    }
  }
}

// Copies complex128 as it is: the number is wider than a lane of a vector.
void copy_16_bytes(const void* src_bytes, void* dst_bytes, const CopyShape& s) {
  const complex128* src = static_cast<const complex128*>(src_bytes);
  complex128* dst = static_cast<complex128*>(dst_bytes);
  for (int64_t i = 0; i < s.rows; ++i) {
    for (int64_t j = 0; j < s.cols; ++j) {
      dst[i * s.dst_row_stride + j * s.dst_col_stride] = src[i * s.src_row_stride + j * s.src_col_stride];
    }
  }
}

template <class S>
void finish(const void* sums_bytes, void* c_bytes, const FinishShape& s, const Epilogue& e) {
  using T = SumOf<S>;
  const T alpha = *reinterpret_cast<const T*>(e.alpha), beta = *reinterpret_cast<const T*>(e.beta);
  const S* bias = static_cast<const S*>(e.bias);
  for (int64_t i = 0; i < s.rows; ++i) {
    const T* sums = static_cast<const T*>(sums_bytes) + i * s.sums_stride;
    S* c = static_cast<S*>(c_bytes) + i * s.c_row_stride;
    int64_t j = 0;
    if constexpr (!std::is_integral_v<S>) {
      if (s.c_col_stride == 1) {
        const hn::ScalableTag<T> d;
        const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
        for (; j + lanes <= s.cols; j += lanes) {
          auto v = hn::Mul(hn::LoadU(d, sums + j), hn::Set(d, alpha));
          if (e.reads_c) v = multiply_add(d, load_as(d, c + j), hn::Set(d, beta), v);
          if (bias) v = hn::Add(v, load_as(d, bias + j));
          store_as(d, v, c + j);
        }
      }
    }
    using U = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
    if (s.c_col_stride == 1 && !e.reads_c && !bias) {  // written so, the compiler makes vectors of the loop
      for (; j < s.cols; ++j) c[j] = static_cast<S>(static_cast<U>(sums[j]) * static_cast<U>(alpha));
      continue;
    }
    for (; j < s.cols; ++j) {
      S& to = c[j * s.c_col_stride];
      U v = static_cast<U>(sums[j]) * static_cast<U>(alpha);
      if (e.reads_c) v += static_cast<U>(to_sum<S, T>(to)) * static_cast<U>(beta);
      if (bias) v += static_cast<U>(to_sum<S, T>(bias[j]));
      to = static_cast<S>(v);
    }
  }
}

// Makes complex sums of the sums of the real product, whose rows and columns are (re, im) in turn.
template <class R>
void finish_complex(const void* sums_bytes, void* c_bytes, const FinishShape& s, const Epilogue& e) {
  using C = std::complex<R>;
  const C alpha = *reinterpret_cast<const C*>(e.alpha), beta = *reinterpret_cast<const C*>(e.beta);
  const C* bias = static_cast<const C*>(e.bias);
  const bool scales = alpha != C(1);
  for (int64_t i = 0; i < s.rows; ++i) {
    const R* re = static_cast<const R*>(sums_bytes) + 2 * i * s.sums_stride;
    const R* im = re + s.sums_stride;
    C* c = static_cast<C*>(c_bytes) + i * s.c_row_stride;
    for (int64_t j = 0; j < s.cols; ++j) {
      C& to = c[j * s.c_col_stride];
      C v(re[2 * j] - im[2 * j + 1], re[2 * j + 1] + im[2 * j]);
      if (scales) v = alpha * v;
      if (e.reads_c) v += beta * to;
      if (bias) v += bias[j];
      to = v;
    }
  }
}

#define MICA_CASE_COPY(T, Name) \
  case DType::Name:             \
    return copy<T>;
#define MICA_CASE_FINISH(T, Name) \
  case DType::Name:               \
    return finish<T>;

CopyFn choose_copy(DType dtype) {
  switch (dtype) {
    MICA_FORALL_INTEGRAL(MICA_CASE_COPY)
    MICA_CASE_COPY(uint16_t, UInt16)
    MICA_CASE_COPY(int32_t, UInt32)
    MICA_CASE_COPY(int64_t, UInt64)
    MICA_FORALL_FLOATING(MICA_CASE_COPY)
    case DType::Complex64:
      return copy<int64_t>;
    case DType::Complex128:
      return copy_16_bytes;
    default:
      return nullptr;
  }
}

FinishFn choose_finish(DType dtype) {
  switch (dtype) {
    MICA_FORALL_INTEGRAL(MICA_CASE_FINISH)
    MICA_CASE_FINISH(uint16_t, UInt16)
    MICA_CASE_FINISH(int32_t, UInt32)
    MICA_CASE_FINISH(int64_t, UInt64)
    MICA_FORALL_FLOATING(MICA_CASE_FINISH)
    case DType::Complex64:
      return finish_complex<float>;
    case DType::Complex128:
      return finish_complex<double>;
    default:
      return nullptr;
  }
}

#undef MICA_CASE_COPY
#undef MICA_CASE_FINISH

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::gemm_impl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu::gemm_impl {

HWY_EXPORT(choose_copy);
HWY_EXPORT(choose_finish);

CopyFn copy_to_sums(DType dtype) { return HWY_DYNAMIC_DISPATCH(choose_copy)(dtype); }
FinishFn finish_from_sums(DType dtype) { return HWY_DYNAMIC_DISPATCH(choose_finish)(dtype); }

}  // namespace mica::cpu::gemm_impl
#endif
