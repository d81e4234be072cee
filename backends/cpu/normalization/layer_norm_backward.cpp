// The gradients of layer_norm and rms_norm: those of the input row by row, those of the parameters as sums over rows,
// taken in parts.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/normalization/layer_norm_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "backends/cpu/reduce/wide_load-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/softmax/layout.h"
#include "backends/cpu/normalization/parameters-inl.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Sums over a row, with g = grad * weight and h = (x - mean) * rstd: of g and of g * h.
struct RowSums {
  double g, gh;
};

#if HWY_ARCH_ARM_A64
// For floats. Short sums are added up as doubles, of which a NEON vector holds only two.
HWY_INLINE RowSums row_sums(const float* grad, const float* x, const float* weight, int64_t n, double mean,
                            double rstd) {
  constexpr int64_t kShort = 128;
  const hn::ScalableTag<float> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V vmean = hn::Set(d, static_cast<float>(mean));
  RowSums sums{0, 0};
  for (int64_t i = 0; i < n;) {
    const int64_t end = std::min(n, i + kShort);
    V g_sum[2] = {hn::Zero(d), hn::Zero(d)}, gx_sum[2] = {hn::Zero(d), hn::Zero(d)};
    const auto add = [&](V g, V v, int k) HWY_ATTR {
      g_sum[k] = hn::Add(g_sum[k], g);
      gx_sum[k] = hn::MulAdd(g, hn::Sub(v, vmean), gx_sum[k]);
    };
    for (; i + 2 * lanes <= end; i += 2 * lanes) {
      for (int k = 0; k < 2; ++k) {
        const V g = hn::LoadU(d, grad + i + k * lanes);
        add(weight ? hn::Mul(g, hn::LoadU(d, weight + i + k * lanes)) : g, hn::LoadU(d, x + i + k * lanes), k);
      }
    }
    for (; i < end; i += lanes) {  // lanes behind the last gradient are zero
      const int64_t rest = std::min(lanes, end - i);
      const V g = load_first(d, grad + i, rest);
      add(weight ? hn::Mul(g, load_first(d, weight + i, rest)) : g, load_first(d, x + i, rest), 0);
    }
    i = end;
    sums.g += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(g_sum[0], g_sum[1]))));
    sums.gh += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(gx_sum[0], gx_sum[1]))));
  }
  sums.gh *= rstd;
  return sums;
}
#endif

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

// The same for four rows at a time, whose sums in float are added to the sums in double.
HWY_INLINE void add_parameter_gradients_of_four(const float* grad, const float* x, int64_t n, const float (&mean)[4],
                                                const float (&rstd)[4], double* weight_sum, double* bias_sum) {
  const float *g1 = grad + n, *g2 = g1 + n, *g3 = g2 + n, *x1 = x + n, *x2 = x1 + n, *x3 = x2 + n;
  if (weight_sum) {
    for (int64_t i = 0; i < n; ++i) {
      const float first = grad[i] * ((x[i] - mean[0]) * rstd[0]) + g1[i] * ((x1[i] - mean[1]) * rstd[1]);
      const float second = g2[i] * ((x2[i] - mean[2]) * rstd[2]) + g3[i] * ((x3[i] - mean[3]) * rstd[3]);
      weight_sum[i] += static_cast<double>(first + second);
    }
  }
  if (bias_sum) {
    for (int64_t i = 0; i < n; ++i) bias_sum[i] += static_cast<double>((grad[i] + g1[i]) + (g2[i] + g3[i]));
  }
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

// Layer norm; or rms norm, whose mean is zero and does not depend on the input.
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
        const int64_t begin = rows * p / nparts, end = rows * (p + 1) / nparts;
        [[maybe_unused]] float means[4], rstds[4];
        for (int64_t r = begin; r < end; ++r) {
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
          if constexpr (std::is_same_v<T, float>) {
            const int64_t place = (r - begin) % 4;
            if (r - place + 4 <= end) {
              means[place] = static_cast<float>(m);
              rstds[place] = static_cast<float>(s);
              if (place == 3)
                add_parameter_gradients_of_four(g - 3 * count, x - 3 * count, count, means, rstds, weight_sum,
                                                bias_sum);
              continue;
            }
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
