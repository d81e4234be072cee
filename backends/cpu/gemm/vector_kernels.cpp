// Matrix times vector where the matrix is read once, in place, at the speed of memory.
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

// R rows with adjacent elements against x: R * U independent sums hide the latency of the multiply-add.
template <class S, int R, int U>
HWY_INLINE void dot_rows(const S* matrix, int64_t row_stride, const SumOf<S>* x, int64_t k, SumOf<S>* y) {
  using T = SumOf<S>;
  const hn::ScalableTag<T> d;
  using Vec = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec sums[R][U];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) sums[r][u] = hn::Zero(d);
  }
  int64_t p = 0;
  for (; p + U * lanes <= k; p += U * lanes) {
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) {
      const Vec xs = hn::LoadU(d, x + p + u * lanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sums[r][u] = multiply_add(d, load_as(d, matrix + r * row_stride + p + u * lanes), xs, sums[r][u]);
      }
    }
  }
  for (; p + lanes <= k; p += lanes) {
    const Vec xs = hn::LoadU(d, x + p);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r][0] = multiply_add(d, load_as(d, matrix + r * row_stride + p), xs, sums[r][0]);
  }
  using Wide = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Vec total = sums[r][0];
#pragma GCC unroll 8
    for (int u = 1; u < U; ++u) total = hn::Add(total, sums[r][u]);
    Wide sum = static_cast<Wide>(hn::GetLane(hn::SumOfLanes(d, total)));
    for (int64_t q = p; q < k; ++q) {
      sum += static_cast<Wide>(static_cast<T>(matrix[r * row_stride + q])) * static_cast<Wide>(x[q]);
    }
    y[r] = static_cast<T>(sum);
  }
}

// K columns with adjacent elements, scaled by x and added to y.
template <class S, int K>
HWY_INLINE void add_columns(const S* matrix, int64_t k_stride, const SumOf<S>* x, int64_t rows, SumOf<S>* y) {
  using T = SumOf<S>;
  using Wide = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= rows; i += lanes) {
    auto sum = hn::LoadU(d, y + i);
#pragma GCC unroll 8
    for (int q = 0; q < K; ++q) sum = multiply_add(d, load_as(d, matrix + q * k_stride + i), hn::Set(d, x[q]), sum);
    hn::StoreU(sum, d, y + i);
  }
  for (; i < rows; ++i) {
    Wide sum = static_cast<Wide>(y[i]);
    for (int q = 0; q < K; ++q)
      sum += static_cast<Wide>(static_cast<T>(matrix[q * k_stride + i])) * static_cast<Wide>(x[q]);
    y[i] = static_cast<T>(sum);
  }
}

template <class S>
void gemv(const void* matrix_bytes, const void* x_bytes, void* y_bytes, const GemvShape& s) {
  using T = SumOf<S>;
  const S* matrix = static_cast<const S*>(matrix_bytes);
  const T* x = static_cast<const T*>(x_bytes);
  T* y = static_cast<T*>(y_bytes);
  if (s.k_stride == 1) {
    int64_t i = 0;
    for (; i + 4 <= s.rows; i += 4) dot_rows<S, 4, 2>(matrix + i * s.row_stride, s.row_stride, x, s.k, y + i);
    for (; i < s.rows; ++i) dot_rows<S, 1, 6>(matrix + i * s.row_stride, s.row_stride, x, s.k, y + i);
    return;
  }
  constexpr int64_t kBlock = 2048;  // sums that stay in the first cache while the columns pass
  for (int64_t i = 0; i < s.rows; i += kBlock) {
    const int64_t rows = HWY_MIN(kBlock, s.rows - i);
    for (int64_t r = 0; r < rows; ++r) y[i + r] = T{0};
    int64_t p = 0;
    for (; p + 4 <= s.k; p += 4) add_columns<S, 4>(matrix + p * s.k_stride + i, s.k_stride, x + p, rows, y + i);
    for (; p < s.k; ++p) add_columns<S, 1>(matrix + p * s.k_stride + i, s.k_stride, x + p, rows, y + i);
  }
}

GemvFn choose_gemv(DType dtype) {
  switch (dtype) {
#define MICA_CASE(T, Name) \
  case DType::Name:        \
    return gemv<T>;
    MICA_FORALL_INTEGRAL(MICA_CASE)
    MICA_FORALL_UNSIGNED(MICA_CASE)
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
