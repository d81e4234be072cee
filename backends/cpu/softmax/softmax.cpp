// softmax and log_softmax: a row is read from memory once and then stays in the cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/softmax/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "backends/cpu/reduce/exp_columns-inl.h"
#include "backends/cpu/reduce/exp_runs-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/softmax/layout.h"
#include "backends/cpu/softmax/row_io-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

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
      const double sum = sum_of_exponentials<false>(row, n, largest, result, result);
      subtract_run(row, n, largest, static_cast<C>(std::log(sum)), result, next);
    } else {
      const double sum = sum_of_exponentials<true>(row, n, largest, result, next);
      scale_run(result, n, static_cast<C>(1 / sum), kIsNarrow<T> || r + 1 == end ? result : result + n);
    }
    close_row(result, n, out + r * n);
  }
}

// Columns that lie side by side, over n rows `inner` apart: their largest elements, then the sums of their
// exponentials, then the results. Exponentials are kept in `out` meanwhile, unless that would round them.
template <bool kLog, class T>
class SoftmaxColumns {
 public:
  using C = Computed<T>;

  SoftmaxColumns(const T* x, T* out, int64_t n, int64_t inner, int64_t columns)
      : x_(x), out_(out), n_(n), inner_(inner), columns_(columns) {}

  void run() {
    std::fill_n(largest_, columns_, extreme_start<Extreme::Max, C>());
    std::fill_n(sum_, columns_, 0.0);
    for_each_block([&](const C* rows, int64_t stride, int64_t, int64_t count) {
      extreme_of_columns<Extreme::Max>(largest_, rows, columns_, stride, count);
    });
    for_each_block(
        [&](const C* rows, int64_t stride, int64_t first, int64_t count) { add_block(rows, stride, first, count); });
    // One operation per element remains: a factor for softmax, a term for log_softmax.
    for (int64_t j = 0; j < columns_; ++j) {
      const double sum = std::isfinite(largest_[j]) ? sum_[j] : std::numeric_limits<double>::quiet_NaN();
      rest_[j] = static_cast<C>(kLog ? std::log(sum) : 1 / sum);
    }
    for (int64_t r = 0; r < n_; ++r) finish_row(r);
  }

 private:
  static constexpr int64_t kRows = 8;  // whose sums fit C without harm
  static constexpr bool kKeeps = !kLog && !kIsNarrow<T>;

  template <class F>
  void for_each_block(const F& f) {
    for (int64_t r = 0; r < n_; r += kRows) {
      const int64_t count = std::min(kRows, n_ - r);
      if constexpr (kIsNarrow<T>) {
        for (int64_t i = 0; i < count; ++i) open_row(x_ + (r + i) * inner_, columns_, buffer_ + i * columns_);
        f(buffer_, columns_, r, count);
      } else {
        f(x_ + r * inner_, inner_, r, count);
      }
    }
  }

  HWY_INLINE void add_block(const C* rows, int64_t stride, int64_t first, int64_t count) {
    const hn::ScalableTag<C> d;
    using V = hn::VFromD<decltype(d)>;
    constexpr int64_t kTogether = 4;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    alignas(64) C part[kSoftmaxColumns];
    int64_t j = 0;
    for (; j + kTogether * lanes <= columns_; j += kTogether * lanes) {
      V total[kTogether], e[kTogether];
      for (V& t : total) t = hn::Zero(d);
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t k = 0; k < kTogether; ++k) {
          const int64_t at = j + k * lanes;
          e[k] = hn::Sub(hn::LoadU(d, rows + r * stride + at), hn::LoadU(d, largest_ + at));
        }
        if constexpr (MICA_SIMD_AVX512) {
          for (V& v : e) v = exp_nonpositive(d, v);
        } else {
          exp(d, e);
        }
        for (int64_t k = 0; k < kTogether; ++k) {
          if constexpr (kKeeps) hn::StoreU(e[k], d, out_ + (first + r) * inner_ + j + k * lanes);
          total[k] = hn::Add(total[k], e[k]);
        }
      }
      for (int64_t k = 0; k < kTogether; ++k) hn::StoreU(total[k], d, part + j + k * lanes);
    }
    for (; j < columns_; j += lanes) {
      const int64_t width = std::min(lanes, columns_ - j);
      const V top = load_first(d, largest_ + j, width);
      V total = hn::Zero(d);
      for (int64_t r = 0; r < count; ++r) {
        const V e = exp_nonpositive(d, hn::Sub(load_first(d, rows + r * stride + j, width), top));
        if constexpr (kKeeps) store_first(e, d, out_ + (first + r) * inner_ + j, width);
        total = hn::Add(total, e);
      }
      store_first(total, d, part + j, width);
    }
    for (j = 0; j < columns_; ++j) sum_[j] += static_cast<double>(part[j]);
  }

  HWY_INLINE void finish_row(int64_t r) {
    const hn::ScalableTag<C> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    C* result = result_row(out_ + r * inner_, buffer_);
    const C* row = nullptr;
    if constexpr (kKeeps) {
      row = result;
    } else {
      row = open_row(x_ + r * inner_, columns_, buffer_);
    }
    for (int64_t j = 0; j < columns_; j += lanes) {
      const int64_t count = std::min(lanes, columns_ - j);
      const auto v = load_first(d, row + j, count), last = load_first(d, rest_ + j, count);
      if constexpr (kKeeps) {
        store_first(hn::Mul(v, last), d, result + j, count);
      } else {
        const auto distance = hn::Sub(v, load_first(d, largest_ + j, count));
        store_first(kLog ? hn::Sub(distance, last) : hn::Mul(exp_nonpositive(d, distance), last), d, result + j, count);
      }
    }
    close_row(result, columns_, out_ + r * inner_);
  }

  const T* x_;
  T* out_;
  int64_t n_, inner_, columns_;
  alignas(64) C buffer_[kIsNarrow<T> ? kRows * kSoftmaxColumns : 1];
  alignas(64) C largest_[kSoftmaxColumns];
  alignas(64) double sum_[kSoftmaxColumns];
  alignas(64) C rest_[kSoftmaxColumns];
};

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
                     SoftmaxColumns<kLog, T>(x + at, y + at, n, inner, std::min(width, inner - column)).run();
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
