// The gradients of layer_norm and rms_norm: those of the input row by row, those of the parameters as sums over rows,
// taken in parts.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/softmax/layer_norm_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "backends/cpu/reduce/wide_load-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/softmax/layout.h"
#include "backends/cpu/softmax/parameters-inl.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Of a row with g = grad * weight and h = (x - mean) * rstd: the sums of g and of g * h.
struct RowSums {
  double g, gh;
};

template <class C>
HWY_INLINE RowSums row_sums(const C* grad, const C* x, const C* weight, int64_t n, double mean, double rstd) {
  const Doubles d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const DoubleVector vmean = hn::Set(d, mean);
  DoubleVector g_sum = hn::Zero(d), gx_sum = g_sum;
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t rest = std::min(lanes, n - i);
    DoubleVector g = load_wide_first(grad + i, rest);
    if (weight) g = hn::Mul(g, load_wide_first(weight + i, rest));
    g_sum = hn::Add(g_sum, g);
    gx_sum = hn::MulAdd(g, hn::Sub(load_wide_first(x + i, rest), vmean), gx_sum);
  }
  return {sum_lanes(g_sum), sum_lanes(gx_sum) * rstd};
}

// out = rstd (g - a - b h), with the letters of RowSums.
template <class C>
HWY_INLINE void input_gradient(const C* grad, const C* x, const C* weight, int64_t n, C mean, C rstd, C a, C b,
                               C* out) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vmean = hn::Set(d, mean), vrstd = hn::Set(d, rstd), va = hn::Set(d, a), vb = hn::Set(d, b);
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t rest = std::min(lanes, n - i);
    auto g = load_first(d, grad + i, rest);
    if (weight) g = hn::Mul(g, load_first(d, weight + i, rest));
    const auto h = hn::Mul(hn::Sub(load_first(d, x + i, rest), vmean), vrstd);
    store_first(hn::Mul(hn::NegMulAdd(h, vb, hn::Sub(g, va)), vrstd), d, out + i, rest);
  }
}

template <class C>
HWY_INLINE void add_parameter_gradients(const C* grad, const C* x, int64_t n, C mean, C rstd, double* weight_sum,
                                        double* bias_sum) {
  if (weight_sum)
    for (int64_t i = 0; i < n; ++i) weight_sum[i] += static_cast<double>(grad[i] * ((x[i] - mean) * rstd));
  if (bias_sum)
    for (int64_t i = 0; i < n; ++i) bias_sum[i] += static_cast<double>(grad[i]);
}

void store_sums(const std::vector<double>& parts, int64_t count, int64_t nparts, const TensorView& out) {
  visit_floating("layer_norm_backward", out.dtype, [&]<class T>(Tag<T>) {
    for (int64_t i = 0; i < count; ++i) {
      double total = 0;
      for (int64_t p = 0; p < nparts; ++p) total += parts[p * count + i];
      out.ptr<T>()[i] = static_cast<T>(static_cast<Computed<T>>(total));
    }
  });
}

// Layer norm; or rms norm, where the mean is zero and is not a function of the input.
template <bool kCentred>
void backward(const char* op, const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad_bias,
              const TensorView& grad, const TensorView& input, const TensorView& mean, const TensorView& rstd,
              const TensorView& weight, int64_t count) {
  visit_floating(op, input.dtype, [&]<class T>(Tag<T>) {
    using C = Computed<T>;
    const int64_t rows = count ? input.numel / count : 0;
    const Parameter<C> w(weight);
    // The number of parts follows from the shape alone, and with it the rounding of their sums.
    const int64_t nparts = std::clamp<int64_t>(rows * count / 16384, 1, 16);
    std::vector<double> weight_parts(grad_weight.defined() ? nparts * count : 0),
        bias_parts(grad_bias.defined() ? nparts * count : 0);
    parallel_for(0, nparts, 1, [&](int64_t first, int64_t last) {
      const auto g_buffer = row_buffer<T>(count), x_buffer = row_buffer<T>(count), out_buffer = row_buffer<T>(count);
      for (int64_t p = first; p < last; ++p) {
        double* weight_sum = grad_weight.defined() ? weight_parts.data() + p * count : nullptr;
        double* bias_sum = grad_bias.defined() ? bias_parts.data() + p * count : nullptr;
        for (int64_t r = rows * p / nparts; r < rows * (p + 1) / nparts; ++r) {
          const C* g = open_row(grad.ptr<T>() + r * count, count, g_buffer.get());
          const C* x = open_row(input.ptr<T>() + r * count, count, x_buffer.get());
          const double m = kCentred ? get_statistic(mean, r) : 0, s = get_statistic(rstd, r);
          if (grad_input.defined()) {
            const RowSums sums = row_sums(g, x, w.data, count, m, s);
            C* to = result_row(grad_input.ptr<T>() + r * count, out_buffer.get());
            const double n = static_cast<double>(count);
            input_gradient(g, x, w.data, count, static_cast<C>(m), static_cast<C>(s),
                           static_cast<C>(kCentred ? sums.g / n : 0), static_cast<C>(sums.gh / n), to);
            close_row(to, count, grad_input.ptr<T>() + r * count);
          }
          add_parameter_gradients(g, x, count, static_cast<C>(m), static_cast<C>(s), weight_sum, bias_sum);
        }
      }
    });
    if (grad_weight.defined()) store_sums(weight_parts, count, nparts, grad_weight);
    if (grad_bias.defined()) store_sums(bias_parts, count, nparts, grad_bias);
  });
}

void layer_norm_backward_kernel(const TensorView& grad_input, const TensorView& grad_weight,
                                const TensorView& grad_bias, const TensorView& grad, const TensorView& input,
                                const TensorView& mean, const TensorView& rstd, const TensorView& weight,
                                int64_t count) {
  backward<true>("LayerNormBackwardKernelImpl", grad_input, grad_weight, grad_bias, grad, input, mean, rstd, weight,
                 count);
}

void rms_norm_backward_kernel(const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad,
                              const TensorView& input, const TensorView& rstd, const TensorView& weight,
                              int64_t count) {
  backward<false>("rms_norm_backward", grad_input, grad_weight, TensorView(), grad, input, TensorView(), rstd, weight,
                  count);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(layer_norm_backward_kernel);
HWY_EXPORT(rms_norm_backward_kernel);
MICA_REGISTER_SIMD(layer_norm_backward, layer_norm_backward_kernel);
MICA_REGISTER_SIMD(rms_norm_backward, rms_norm_backward_kernel);
}  // namespace mica::cpu
#endif
