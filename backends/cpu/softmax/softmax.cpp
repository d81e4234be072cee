// softmax and log_softmax: a row is read from memory once and then stays in the cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/softmax/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "backends/cpu/reduce/exp_columns-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/softmax/layout.h"
#include "backends/cpu/softmax/row_io-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The sum of exp(x - largest), which is also written to `out` if kWrite. Meanwhile the memory at `ahead` is fetched:
// arithmetic on this row then overlaps with waiting for what comes next.
template <bool kWrite, class C>
HWY_INLINE double exponentials(const C* x, int64_t n, C largest, C* out, const C* ahead) {
  const hn::ScalableTag<C> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kChunk = 4096;  // as many exponentials as a sum of C takes without harm
  const V shift = hn::Set(d, largest);
  double total = 0;
  for (int64_t i = 0; i < n;) {
    const int64_t end = std::min(n, i + kChunk);
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      for (int64_t k = 0; k < 4 * lanes; k += 64 / static_cast<int64_t>(sizeof(C))) __builtin_prefetch(ahead + i + k);
      const V e0 = exp_nonpositive(d, hn::Sub(hn::LoadU(d, x + i), shift));
      const V e1 = exp_nonpositive(d, hn::Sub(hn::LoadU(d, x + i + lanes), shift));
      const V e2 = exp_nonpositive(d, hn::Sub(hn::LoadU(d, x + i + 2 * lanes), shift));
      const V e3 = exp_nonpositive(d, hn::Sub(hn::LoadU(d, x + i + 3 * lanes), shift));
      if constexpr (kWrite) {
        hn::StoreU(e0, d, out + i);
        hn::StoreU(e1, d, out + i + lanes);
        hn::StoreU(e2, d, out + i + 2 * lanes);
        hn::StoreU(e3, d, out + i + 3 * lanes);
      }
      s0 = hn::Add(s0, e0);
      s1 = hn::Add(s1, e1);
      s2 = hn::Add(s2, e2);
      s3 = hn::Add(s3, e3);
    }
    for (; i < end; i += lanes) {
      const int64_t rest = std::min(lanes, end - i);
      const V e = exp_nonpositive(d, hn::Sub(load_first(d, x + i, rest), shift));
      if constexpr (kWrite) store_first(e, d, out + i, rest);
      s0 = hn::Add(s0, hn::IfThenElseZero(hn::FirstN(d, rest), e));
    }
    i = end;
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)))));
  }
  return total;
}

template <class C>
HWY_INLINE void scale_run(C* x, int64_t n, C factor, const C* ahead) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    __builtin_prefetch(ahead + i);
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, x + i);
  }
  if (i < n) store_first(hn::Mul(load_first(d, x + i, n - i), f), d, x + i, n - i);
}

// out = (x - a) - b: subtracting the largest first keeps the digits of what is left.
template <class C>
HWY_INLINE void subtract_run(const C* x, int64_t n, C a, C b, C* out, const C* ahead) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto va = hn::Set(d, a), vb = hn::Set(d, b);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    __builtin_prefetch(ahead + i);
    hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(d, x + i), va), vb), d, out + i);
  }
  if (i < n) store_first(hn::Sub(hn::Sub(load_first(d, x + i, n - i), va), vb), d, out + i, n - i);
}

template <bool kLog, class T>
void softmax_rows(const T* x, T* out, int64_t begin, int64_t end, int64_t n) {
  using C = Computed<T>;
  const auto in_buffer = row_buffer<T>(n), out_buffer = row_buffer<T>(n);
  for (int64_t r = begin; r < end; ++r) {
    const C* row = open_row(x + r * n, n, in_buffer.get());
    C* result = result_row(out + r * n, out_buffer.get());
    const C largest = extreme_of_run<Extreme::Max>(row, n);
    const C* next = kIsNarrow<T> || r + 1 == end ? row : reinterpret_cast<const C*>(x + (r + 1) * n);
    if constexpr (kLog) {
      const double sum = exponentials<false>(row, n, largest, result, result);
      subtract_run(row, n, largest, static_cast<C>(std::log(sum)), result, next);
    } else {
      const double sum = exponentials<true>(row, n, largest, result, next);
      scale_run(result, n, static_cast<C>(1 / sum), kIsNarrow<T> || r + 1 == end ? result : result + n);
    }
    close_row(result, n, out + r * n);
  }
}

// Columns that lie side by side, over n rows `inner` apart.
template <bool kLog, class T>
void softmax_columns(const T* x, T* out, int64_t n, int64_t inner, int64_t columns) {
  using C = Computed<T>;
  using Columns = ColumnExponentials<C>;
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  alignas(64) C buffer[kIsNarrow<T> ? Columns::kRows * kSoftmaxColumns : 1];
  Columns block;
  block.start(columns);
  for (int64_t r = 0; r < n; r += Columns::kRows) {
    const int64_t rows = std::min(Columns::kRows, n - r);
    if constexpr (kIsNarrow<T>) {
      for (int64_t i = 0; i < rows; ++i) open_row(x + (r + i) * inner, columns, buffer + i * columns);
      block.add_rows(buffer, columns, columns, rows);
    } else {
      block.add_rows(x + r * inner, columns, inner, rows);
    }
  }
  // What remains is one operation per element: a factor for softmax, a term for log_softmax.
  alignas(64) C rest_of[kSoftmaxColumns];
  for (int64_t j = 0; j < columns; ++j) {
    const double sum = std::isfinite(block.largest[j]) ? block.sum[j] : std::numeric_limits<double>::quiet_NaN();
    rest_of[j] = static_cast<C>(kLog ? std::log(sum) : 1 / sum);
  }
  for (int64_t r = 0; r < n; ++r) {
    const C* row = open_row(x + r * inner, columns, buffer);
    C* result = result_row(out + r * inner, buffer);
    for (int64_t j = 0; j < columns; j += lanes) {
      const int64_t count = std::min(lanes, columns - j);
      const auto distance = hn::Sub(load_first(d, row + j, count), load_first(d, block.largest + j, count));
      const auto last = load_first(d, rest_of + j, count);
      store_first(kLog ? hn::Sub(distance, last) : hn::Mul(exp_nonpositive(d, distance), last), d, result + j, count);
    }
    close_row(result, columns, out + r * inner);
  }
}

template <bool kLog>
void run(const char* op, const TensorView& out, const TensorView& self, int64_t dim) {
  const AroundDim around(self, dim);
  visit_floating(op, self.dtype, [&]<class T>(Tag<T>) {
    const T* x = self.ptr<T>();
    T* y = out.ptr<T>();
    const int64_t n = around.count, inner = around.inner;
    if (inner == 1) {
      parallel_for(0, around.outer, std::max<int64_t>(1, kSoftmaxGrain / n),
                   [&](int64_t begin, int64_t end) { softmax_rows<kLog>(x, y, begin, end, n); });
      return;
    }
    const int64_t width = around.block_width(), blocks = (inner + width - 1) / width;
    parallel_for(0, around.outer * blocks, std::max<int64_t>(1, kSoftmaxGrain / (n * width)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t column = i % blocks * width, at = i / blocks * n * inner + column;
                     softmax_columns<kLog>(x + at, y + at, n, inner, std::min(width, inner - column));
                   }
                 });
  });
}

void softmax_kernel(const TensorView& out, const TensorView& self, int64_t dim) {
  run<false>("softmax_kernel_impl", out, self, dim);
}
void log_softmax_kernel(const TensorView& out, const TensorView& self, int64_t dim) {
  run<true>("log_softmax_kernel_impl", out, self, dim);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(softmax_kernel);
HWY_EXPORT(log_softmax_kernel);
MICA_REGISTER_SIMD(softmax, softmax_kernel);
MICA_REGISTER_SIMD(log_softmax, log_softmax_kernel);
}  // namespace mica::cpu
#endif
