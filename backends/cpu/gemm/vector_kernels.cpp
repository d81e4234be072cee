// A matrix times a few vectors: the matrix is read once from memory, in place.
#include "backends/cpu/gemm/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/vector_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/gemm/element_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::gemm_impl {
namespace HWY_NAMESPACE {
namespace {

template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;

// Sums of integers wrap around. Highway's own sum leaves that undefined.
template <class D>
HWY_INLINE Wrapping<hn::TFromD<D>> sum_lanes(D d, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  if constexpr (hwy::IsFloat<T>()) {
    return hn::GetLane(hn::SumOfLanes(d, v));
  } else {
    HWY_ALIGN T lanes[hn::MaxLanes(d)];
    hn::Store(v, d, lanes);
    Wrapping<T> sum = 0;
    for (size_t i = 0; i < hn::Lanes(d); ++i) sum += static_cast<Wrapping<T>>(lanes[i]);
    return sum;
  }
}

// Whether rows of 16-bit elements are fetched four ahead: x86-64 does not foresee four short rows at once. Long rows it
// foresees, and few rows end before it pays.
constexpr int64_t kFetchedBytes = 256 * 1024, kFetchedRows = 256, kFetchedDepth = 4096;

template <class S>
bool fetches_rows(const GemvShape& s) {
  return HWY_ARCH_X86 && sizeof(S) == 2 && s.vectors == 1 && s.rows >= kFetchedRows && s.k <= kFetchedDepth &&
         s.rows * s.k * static_cast<int64_t>(sizeof(S)) >= kFetchedBytes;
}

// Multiplies R rows with adjacent elements by X vectors, U registers of depth at a time. R * X * U independent sums
// hide the latency of the multiply-add.
template <class S, int R, int X, int U, bool kFetches = false>
HWY_INLINE void dot_rows(const S* matrix, const SumOf<S>* x, SumOf<S>* y, const GemvShape& s) {
  using T = SumOf<S>;
  const hn::ScalableTag<T> d;
  using Vec = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec sums[R][X][U];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < X; ++v) {
#pragma GCC unroll 8
      for (int u = 0; u < U; ++u) sums[r][v][u] = hn::Zero(d);
    }
  }
  const auto step = [&](int64_t p, int u) HWY_ATTR {
    Vec xs[X];
#pragma GCC unroll 8
    for (int v = 0; v < X; ++v) xs[v] = hn::LoadU(d, x + v * s.x_stride + p);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if (kFetches && u == 0) __builtin_prefetch(matrix + (r + R) * s.row_stride + p);
      const Vec row = load_as(d, matrix + r * s.row_stride + p);
#pragma GCC unroll 8
      for (int v = 0; v < X; ++v) sums[r][v][u] = multiply_add(d, row, xs[v], sums[r][v][u]);
    }
  };
  int64_t p = 0;
  for (; p + U * lanes <= s.k; p += U * lanes) {
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) step(p + u * lanes, u);
  }
  for (; p + lanes <= s.k; p += lanes) step(p, 0);
#if HWY_ARCH_ARM_A64
  // Three sums of neighbours make one vector of four rows' sums.
  if constexpr (std::is_same_v<T, float> && R == 4) {
    if (p == s.k) {
#pragma GCC unroll 8
      for (int v = 0; v < X; ++v) {
        Vec total[4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) total[r] = U == 2 ? hn::Add(sums[r][v][0], sums[r][v][U - 1]) : sums[r][v][0];
        const float32x4_t near = vpaddq_f32(total[0].raw, total[1].raw), far = vpaddq_f32(total[2].raw, total[3].raw);
        hn::StoreU(Vec(vpaddq_f32(near, far)), d, y + v * s.y_stride);
      }
      return;
    }
  }
#endif
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < X; ++v) {
      Vec total = sums[r][v][0];
#pragma GCC unroll 8
      for (int u = 1; u < U; ++u) total = add(d, total, sums[r][v][u]);
      Wrapping<T> sum = sum_lanes(d, total);
      for (int64_t q = p; q < s.k; ++q) {
        sum += static_cast<Wrapping<T>>(static_cast<T>(matrix[r * s.row_stride + q])) *
               static_cast<Wrapping<T>>(x[v * s.x_stride + q]);
      }
      y[v * s.y_stride + r] = static_cast<T>(sum);
    }
  }
}

// Multiplies K columns with adjacent elements by elements of X vectors, and adds them to the sums of these.
template <class S, int K, int X>
HWY_INLINE void add_columns(const S* matrix, const SumOf<S>* x, SumOf<S>* y, int64_t rows, const GemvShape& s) {
  using T = SumOf<S>;
  const hn::ScalableTag<T> d;
  using Vec = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= rows; i += lanes) {
    Vec columns[K];
#pragma GCC unroll 8
    for (int q = 0; q < K; ++q) columns[q] = load_as(d, matrix + q * s.k_stride + i);
#pragma GCC unroll 8
    for (int v = 0; v < X; ++v) {
      Vec sum = hn::LoadU(d, y + v * s.y_stride + i);
#pragma GCC unroll 8
      for (int q = 0; q < K; ++q) sum = multiply_add(d, columns[q], hn::Set(d, x[v * s.x_stride + q]), sum);
      hn::StoreU(sum, d, y + v * s.y_stride + i);
    }
  }
  for (; i < rows; ++i) {
    for (int v = 0; v < X; ++v) {
      Wrapping<T> sum = static_cast<Wrapping<T>>(y[v * s.y_stride + i]);
      for (int q = 0; q < K; ++q) {
        sum += static_cast<Wrapping<T>>(static_cast<T>(matrix[q * s.k_stride + i])) *
               static_cast<Wrapping<T>>(x[v * s.x_stride + q]);
      }
      y[v * s.y_stride + i] = static_cast<T>(sum);
    }
  }
}

// The sums of V vectors of rows for X vectors: they stay in registers while all columns pass.
template <class S, int V, int X>
HWY_INLINE void sum_columns(const S* matrix, const SumOf<S>* x, SumOf<S>* y, const GemvShape& s) {
  using T = SumOf<S>;
  const hn::ScalableTag<T> d;
  using Vec = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec sums[X][V];
#pragma GCC unroll 8
  for (int v = 0; v < X; ++v)
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) sums[v][i] = hn::Zero(d);
  for (int64_t p = 0; p < s.k; ++p, matrix += s.k_stride) {
    Vec xs[X];
#pragma GCC unroll 8
    for (int v = 0; v < X; ++v) xs[v] = hn::Set(d, x[v * s.x_stride + p]);
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) {
      const Vec column = load_as(d, matrix + i * lanes);
#pragma GCC unroll 8
      for (int v = 0; v < X; ++v) sums[v][i] = multiply_add(d, column, xs[v], sums[v][i]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < X; ++v)
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) hn::StoreU(sums[v][i], d, y + v * s.y_stride + i * lanes);
}

// Calls run(first, integral_constant<count>) for groups of 4, 2 and 1 vectors. Integers are multiplied by one vector at
// a time.
template <class T, class Run>
HWY_INLINE void for_vector_groups(int64_t vectors, const Run& run) {
  int64_t v = 0;
  if constexpr (hwy::IsFloat<T>()) {
    for (; v + 4 <= vectors; v += 4) run(v, std::integral_constant<int, 4>());
    for (; v + 2 <= vectors; v += 2) run(v, std::integral_constant<int, 2>());
  }
  for (; v < vectors; ++v) run(v, std::integral_constant<int, 1>());
}

template <class S>
void gemv(const void* matrix_bytes, const void* x_bytes, void* y_bytes, const GemvShape& s) {
  using T = SumOf<S>;
  const S* matrix = static_cast<const S*>(matrix_bytes);
  const T* x = static_cast<const T*>(x_bytes);
  T* y = static_cast<T*>(y_bytes);
  if (s.k_stride == 1) {
    int64_t i = 0;
    if constexpr (hwy::IsFloat<T>() && sizeof(S) == 2)
      if (fetches_rows<S>(s))
        for (; i + 4 <= s.rows; i += 4) dot_rows<S, 4, 1, 2, true>(matrix + i * s.row_stride, x, y + i, s);
    for (; i + 4 <= s.rows; i += 4) {
      for_vector_groups<T>(s.vectors, [&](int64_t v, auto count) HWY_ATTR {
        dot_rows<S, 4, count, count == 1 ? 2 : 1>(matrix + i * s.row_stride, x + v * s.x_stride, y + v * s.y_stride + i,
                                                  s);
      });
    }
    for (; i < s.rows; ++i) {
      for_vector_groups<T>(s.vectors, [&](int64_t v, auto count) HWY_ATTR {
        dot_rows<S, 1, count, 6 / count>(matrix + i * s.row_stride, x + v * s.x_stride, y + v * s.y_stride + i, s);
      });
    }
    return;
  }
  // Few sums stay in registers. With more vectors than are multiplied at a time, the matrix must stay in a cache for
  // it.
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  if (hwy::IsFloat<T>() && s.rows <= 32 * lanes && s.rows % lanes == 0 && (s.vectors <= 4 || s.k <= 256)) {
    for_vector_groups<T>(s.vectors, [&](int64_t v, auto count) HWY_ATTR {
      constexpr int kTogether = count == 1 ? 8 : 4;
      int64_t i = 0;
      for (; i + kTogether * lanes <= s.rows; i += kTogether * lanes)
        sum_columns<S, kTogether, count>(matrix + i, x + v * s.x_stride, y + v * s.y_stride + i, s);
      for (; i < s.rows; i += lanes)
        sum_columns<S, 1, count>(matrix + i, x + v * s.x_stride, y + v * s.y_stride + i, s);
    });
    return;
  }
  // As many sums are made at a time as stay in the first cache while the columns pass.
  const int64_t block = HWY_MAX(int64_t{128}, 8192 / (s.vectors * static_cast<int64_t>(sizeof(T)) / 4) / 4);
  for (int64_t i = 0; i < s.rows; i += block) {
    const int64_t rows = HWY_MIN(block, s.rows - i);
    for (int64_t v = 0; v < s.vectors; ++v) {
      for (int64_t r = 0; r < rows; ++r) y[v * s.y_stride + i + r] = T{0};
    }
    int64_t p = 0;
    const auto add = [&](auto columns) HWY_ATTR {
      for_vector_groups<T>(s.vectors, [&](int64_t v, auto count) HWY_ATTR {
        add_columns<S, columns, count>(matrix + p * s.k_stride + i, x + v * s.x_stride + p, y + v * s.y_stride + i,
                                       rows, s);
      });
      p += columns;
    };
    while (p + 4 <= s.k) add(std::integral_constant<int, 4>());
    while (p < s.k) add(std::integral_constant<int, 1>());
  }
}

GemvFn choose_gemv(DType dtype) {
  switch (dtype) {
#define MICA_CASE(T, Name) \
  case DType::Name:        \
    return gemv<T>;
    MICA_FORALL_INTEGRAL(MICA_CASE)
    MICA_CASE(uint16_t, UInt16)
    MICA_CASE(int32_t, UInt32)
    MICA_CASE(int64_t, UInt64)
    MICA_FORALL_FLOATING(MICA_CASE)
#undef MICA_CASE
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::gemm_impl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu::gemm_impl {
HWY_EXPORT(choose_gemv);
GemvFn gemv_kernel(DType dtype) { return HWY_DYNAMIC_DISPATCH(choose_gemv)(dtype); }
}  // namespace mica::cpu::gemm_impl
#endif
