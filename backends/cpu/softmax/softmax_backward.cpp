// The gradients of softmax and log_softmax, from the gradient and the output of the forward pass.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/softmax/softmax_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/reduce/wide_load-inl.h"
#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/softmax/layout.h"
#include "backends/cpu/softmax/row_io-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The sum of g * y for softmax, of g for log_softmax.
template <bool kLog, class C>
HWY_INLINE double gradient_sum(const C* g, const C* y, int64_t n) {
  const Doubles d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  DoubleVector s0 = hn::Zero(d), s1 = s0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    s0 = kLog ? hn::Add(s0, load_wide(g + i)) : hn::MulAdd(load_wide(g + i), load_wide(y + i), s0);
    s1 = kLog ? hn::Add(s1, load_wide(g + i + lanes))
              : hn::MulAdd(load_wide(g + i + lanes), load_wide(y + i + lanes), s1);
  }
  for (; i < n; i += lanes) {
    const int64_t rest = std::min(lanes, n - i);
    const DoubleVector gi = load_wide_first(g + i, rest);
    s0 = kLog ? hn::Add(s0, gi) : hn::MulAdd(gi, load_wide_first(y + i, rest), s0);
  }
  return sum_lanes(hn::Add(s0, s1));
}

// softmax: y (g - sum); log_softmax: g - exp(y) sum.
template <bool kLog, class D, class V>
HWY_INLINE V gradient_of(D d, V g, V y, V sum) {
  if constexpr (kLog) {
    return hn::NegMulAdd(exp(d, y), sum, g);
  } else {
    return hn::Mul(y, hn::Sub(g, sum));
  }
}

template <bool kLog, class T>
void backward_rows(const T* grad, const T* output, T* result, int64_t begin, int64_t end, int64_t n) {
  using C = Computed<T>;
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto g_buffer = row_buffer<T>(n), y_buffer = row_buffer<T>(n);
  for (int64_t r = begin; r < end; ++r) {
    const C* g = open_row(grad + r * n, n, g_buffer.get());
    const C* y = open_row(output + r * n, n, y_buffer.get());
    C* to = result_row(result + r * n, g_buffer.get());
    const auto sum = hn::Set(d, static_cast<C>(gradient_sum<kLog>(g, y, n)));
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(gradient_of<kLog>(d, hn::LoadU(d, g + i), hn::LoadU(d, y + i), sum), d, to + i);
    if (i < n)
      store_first(gradient_of<kLog>(d, load_first(d, g + i, n - i), load_first(d, y + i, n - i), sum), d, to + i,
                  n - i);
    close_row(to, n, result + r * n);
  }
}

template <bool kLog, class T>
void backward_columns(const T* grad, const T* output, T* result, int64_t n, int64_t inner, int64_t columns) {
  using C = Computed<T>;
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  alignas(64) C g_buffer[kSoftmaxColumns], y_buffer[kSoftmaxColumns], sum[kSoftmaxColumns];
  alignas(64) double total[kSoftmaxColumns] = {};
  for (int64_t r = 0; r < n; ++r) {
    const C* g = open_row(grad + r * inner, columns, g_buffer);
    const C* y = open_row(output + r * inner, columns, y_buffer);
    for (int64_t j = 0; j < columns; ++j) total[j] += kLog ? double(g[j]) : double(g[j]) * double(y[j]);
  }
  for (int64_t j = 0; j < kSoftmaxColumns; ++j) sum[j] = static_cast<C>(total[j]);
  for (int64_t r = 0; r < n; ++r) {
    const C* g = open_row(grad + r * inner, columns, g_buffer);
    const C* y = open_row(output + r * inner, columns, y_buffer);
    C* to = result_row(result + r * inner, g_buffer);
    for (int64_t j = 0; j < columns; j += lanes) {
      const int64_t rest = std::min(lanes, columns - j);
      const auto v = gradient_of<kLog>(d, load_first(d, g + j, rest), load_first(d, y + j, rest), hn::Load(d, sum + j));
      store_first(v, d, to + j, rest);
    }
    close_row(to, columns, result + r * inner);
  }
}

template <bool kLog>
void run(const char* op, const TensorView& grad_self, const TensorView& grad, const TensorView& output, int64_t dim) {
  const AroundDim around(output, dim);
  visit_floating(op, output.dtype, [&]<class T>(Tag<T>) {
    const T *g = grad.ptr<T>(), *y = output.ptr<T>();
    T* result = grad_self.ptr<T>();
    const int64_t n = around.count, inner = around.inner;
    if (inner == 1) {
      parallel_for(0, around.outer, std::max<int64_t>(1, kSoftmaxGrain / n),
                   [&](int64_t begin, int64_t end) { backward_rows<kLog>(g, y, result, begin, end, n); });
      return;
    }
    const int64_t width = around.block_width(), blocks = (inner + width - 1) / width;
    parallel_for(0, around.outer * blocks, std::max<int64_t>(1, kSoftmaxGrain / (n * width)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t column = i % blocks * width, at = i / blocks * n * inner + column;
                     backward_columns<kLog>(g + at, y + at, result + at, n, inner, std::min(width, inner - column));
                   }
                 });
  });
}

void softmax_backward_kernel(const TensorView& grad_self, const TensorView& grad, const TensorView& output,
                             int64_t dim) {
  run<false>("softmax_backward", grad_self, grad, output, dim);
}
void log_softmax_backward_kernel(const TensorView& grad_self, const TensorView& grad, const TensorView& output,
                                 int64_t dim) {
  run<true>("log_softmax_backward", grad_self, grad, output, dim);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(softmax_backward_kernel);
HWY_EXPORT(log_softmax_backward_kernel);
MICA_REGISTER_SIMD(softmax_backward, softmax_backward_kernel);
MICA_REGISTER_SIMD(log_softmax_backward, log_softmax_backward_kernel);
}  // namespace mica::cpu
#endif
