// Products of compressed rows with a dense matrix, and dense products taken at given places only.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/sparse/products.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>

#include "backends/cpu/simd_register.h"
#include "backends/cpu/visit_dtype.h"
#include "backends/shared/read_element.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The type in which sums are computed.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 2 && std::is_class_v<T>, float, T>;

template <class T>
inline constexpr bool kHasVectors = std::is_same_v<T, float> || std::is_same_v<T, double>;

// `count` vectors of one output row: the sum of the row's values times rows of the dense matrix, kept in registers.
template <int count, class T>
HWY_INLINE void row_block(T* HWY_RESTRICT out, const int64_t* HWY_RESTRICT plain, const T* HWY_RESTRICT values,
                          int64_t nnz, const T* HWY_RESTRICT dense, int64_t dense_step, bool accumulate) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sums[count];
#pragma GCC unroll 8
  for (int k = 0; k < count; ++k) sums[k] = accumulate ? hn::LoadU(d, out + k * lanes) : hn::Zero(d);
  for (int64_t i = 0; i < nnz; ++i) {
    const auto factor = hn::Set(d, values[i]);
    const T* from = dense + plain[i] * dense_step;
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k) sums[k] = hn::MulAdd(factor, hn::LoadU(d, from + k * lanes), sums[k]);
  }
#pragma GCC unroll 8
  for (int k = 0; k < count; ++k) hn::StoreU(sums[k], d, out + k * lanes);
}

template <class T>
void row_product(T* out, const int64_t* plain, const T* values, int64_t nnz, const T* dense, int64_t dense_step,
                 int64_t width, bool accumulate) {
  int64_t j = 0;
  if constexpr (kHasVectors<T>) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
    for (; j + 8 * lanes <= width; j += 8 * lanes)
      row_block<8>(out + j, plain, values, nnz, dense + j, dense_step, accumulate);
    for (; j + 2 * lanes <= width; j += 2 * lanes)
      row_block<2>(out + j, plain, values, nnz, dense + j, dense_step, accumulate);
    for (; j + lanes <= width; j += lanes) row_block<1>(out + j, plain, values, nnz, dense + j, dense_step, accumulate);
  }
  for (; j < width; ++j) {
    using C = Wide<T>;
    C sum = accumulate ? static_cast<C>(read_element(out[j])) : C(0);
    for (int64_t i = 0; i < nnz; ++i)
      sum = static_cast<C>(sum + static_cast<C>(read_element(values[i])) *
                                     static_cast<C>(read_element(dense[plain[i] * dense_step + j])));
    out[j] = static_cast<T>(sum);
  }
}

// Divides the rows into shares of about equal work, whatever their lengths.
void csr_mm(const TensorView& out, const TensorView& compressed, const TensorView& plain, const TensorView& values,
            const TensorView& dense, bool accumulate) {
  const int64_t rows = out.sizes[0], width = out.sizes[1];
  const int64_t* begins = compressed.ptr<const int64_t>();
  const int64_t* columns = plain.ptr<const int64_t>();
  const int64_t nnz = begins[rows];
  const int64_t work = (nnz + rows) * std::max<int64_t>(width, 1);
  const int64_t shares = std::clamp<int64_t>(work / 32768, 1, 4 * get_num_threads());
  const auto first_row = [&](int64_t share) {
    if (share == shares) return rows;
    // The first row whose begin, counting a unit for the row itself, reaches the share.
    const int64_t wanted = (nnz + rows) / shares * share;
    int64_t low = 0, high = rows;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (begins[middle] + middle < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  visit_number_bool("sparse_mm", out.dtype, [&]<class T>(Tag<T>) {
    parallel_for(0, shares, 1, [&](int64_t from, int64_t to) {
      const int64_t last = first_row(to);
      for (int64_t r = first_row(from); r < last; ++r)
        row_product<T>(out.ptr<T>() + r * out.strides[0], columns + begins[r], values.ptr<const T>() + begins[r],
                       begins[r + 1] - begins[r], dense.ptr<const T>(), dense.strides[0], width, accumulate);
    });
  });
}

template <class T>
T inner_product(const T* a, const T* b, int64_t n) {
  using C = Wide<T>;
  int64_t j = 0;
  C sum(0);
  if constexpr (kHasVectors<T>) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    auto s0 = hn::Zero(d), s1 = hn::Zero(d);
    for (; j + 2 * lanes <= n; j += 2 * lanes) {
      s0 = hn::MulAdd(hn::LoadU(d, a + j), hn::LoadU(d, b + j), s0);
      s1 = hn::MulAdd(hn::LoadU(d, a + j + lanes), hn::LoadU(d, b + j + lanes), s1);
    }
    sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
  }
  for (; j < n; ++j)
    sum = static_cast<C>(sum + static_cast<C>(read_element(a[j])) * static_cast<C>(read_element(b[j])));
  return static_cast<T>(sum);
}

void sampled_mm(const TensorView& out, const TensorView& rows, const TensorView& columns, const TensorView& a,
                const TensorView& b) {
  const int64_t *row = rows.ptr<const int64_t>(), *column = columns.ptr<const int64_t>();
  const int64_t inner = a.sizes[1];
  visit_number_bool("sampled_mm", out.dtype, [&]<class T>(Tag<T>) {
    T* to = out.ptr<T>();
    parallel_for(0, out.numel, std::max<int64_t>(1, 16384 / (inner + 1)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        to[i] =
            inner_product(a.ptr<const T>() + row[i] * a.strides[0], b.ptr<const T>() + column[i] * b.strides[0], inner);
    });
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(csr_mm);
HWY_EXPORT(sampled_mm);
MICA_REGISTER_SIMD(sparse_csr_mm, csr_mm);
MICA_REGISTER_SIMD(sparse_sampled_mm, sampled_mm);
}  // namespace mica::cpu
#endif
