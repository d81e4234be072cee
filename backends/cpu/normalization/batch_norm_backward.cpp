// The gradients of batch normalisation: two sums per channel, then one linear map of the gradient and the input.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/normalization/batch_norm_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "backends/cpu/normalization/columns-inl.h"
#include "backends/cpu/normalization/slabs-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/normalization/parameters-inl.h"
#include "backends/cpu/visit_dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

constexpr int64_t kRowsAtOnce = 256;  // rows of 16-bit floats that are converted together

// grad_input = grad * a + (input - mean) * b + c
template <class C>
struct Coefficients {
  C mean, a, b, c;
};

template <class T>
struct BatchNormBackward {
  using C = Computed<T>;
  const TensorView &grad_input, &grad_weight, &grad_bias, &grad, &input, &mean, &rstd;
  Parameter<C> weight;
  bool training;
  int64_t outer, channels, inner;

  // Writes a channel's gradients of the parameters. Returns the coefficients of the input's gradient.
  Coefficients<C> finish(int64_t c, double sum, double product) const {
    const double m = get_statistic(mean, c), r = get_statistic(rstd, c), n = static_cast<double>(outer * inner);
    if (grad_weight.defined()) put_statistic(grad_weight, c, product * r);
    if (grad_bias.defined()) put_statistic(grad_bias, c, sum);
    const double scale = r * (weight.data ? static_cast<double>(weight.data[c]) : 1);
    if (!training) return {C(0), static_cast<C>(scale), C(0), C(0)};
    return {static_cast<C>(m), static_cast<C>(scale), static_cast<C>(-scale * product * r * r / n),
            static_cast<C>(-scale * sum / n)};
  }

  bool needs_sums() const { return training || grad_weight.defined() || grad_bias.defined(); }

  void runs() const {
    parallel_for(0, channels, std::max<int64_t>(1, kNormGrain / (outer * inner)), [&](int64_t begin, int64_t end) {
      const auto g_buffer = row_buffer<T>(inner), x_buffer = row_buffer<T>(inner), out_buffer = row_buffer<T>(inner);
      const T *g = grad.ptr<const T>(), *x = input.ptr<const T>();
      for (int64_t c = begin; c < end; ++c) {
        GradientSums sums;
        const double m = get_statistic(mean, c);
        for (int64_t o = 0; o < outer && needs_sums(); ++o) {
          const int64_t at = (o * channels + c) * inner;
          sums.add(open_row(g + at, inner, g_buffer.get()), open_row(x + at, inner, x_buffer.get()), inner, m);
        }
        const Coefficients<C> k = finish(c, sums.sum(), sums.product());
        for (int64_t o = 0; o < outer && grad_input.defined(); ++o) {
          const int64_t at = (o * channels + c) * inner;
          C* to = result_row(grad_input.ptr<T>() + at, out_buffer.get());
          combine_gradient(open_row(g + at, inner, g_buffer.get()), open_row(x + at, inner, x_buffer.get()), inner,
                           k.mean, k.a, k.b, k.c, to);
          close_row(to, inner, grad_input.ptr<T>() + at);
        }
      }
    });
  }

  // The sums of every channel: first those of the gradient, then those of gradient times (input - mean).
  std::vector<double> column_sums() const {
    const size_t n = static_cast<size_t>(channels);
    if (!needs_sums()) return std::vector<double>(2 * n);
    const RowParts parts(outer, channels);
    std::vector<double> centre(n), sums(2 * n * static_cast<size_t>(parts.count));
    for (size_t c = 0; c < n; ++c) centre[c] = get_statistic(mean, static_cast<int64_t>(c));
    parts.run([&](int64_t p, int64_t begin, int64_t end) {
      double* sum = sums.data() + 2 * n * static_cast<size_t>(p);
      for (int64_t r = begin; r < end; r += kRowsAtOnce) {
        const int64_t to = std::min(end, r + kRowsAtOnce);
        const OpenRows<T> g(grad.ptr<const T>(), r, to, channels), x(input.ptr<const T>(), r, to, channels);
        sum_columns(to - r, channels, sum, sum + n,
                    [&](int64_t at, int64_t c, int64_t lanes, DoubleVector& s, DoubleVector& q) {
                      const Doubles d;
                      const DoubleVector gv = load_wide_first(g.data + at, lanes);
                      s = hn::Add(s, gv);
                      q = hn::MulAdd(
                          gv, hn::Sub(load_wide_first(x.data + at, lanes), load_first(d, centre.data() + c, lanes)), q);
                    });
      }
    });
    for (int64_t p = 1; p < parts.count; ++p)
      for (size_t i = 0; i < 2 * n; ++i) sums[i] += sums[2 * n * static_cast<size_t>(p) + i];
    return sums;
  }

  void columns() const {
    const std::vector<double> sums = column_sums();
    std::vector<C> numbers(static_cast<size_t>(4 * channels));
    C *m = numbers.data(), *a = m + channels, *b = a + channels, *k = b + channels;
    for (int64_t c = 0; c < channels; ++c) {
      const auto found = finish(c, sums[static_cast<size_t>(c)], sums[static_cast<size_t>(channels + c)]);
      m[c] = found.mean, a[c] = found.a, b[c] = found.b, k[c] = found.c;
    }
    if (!grad_input.defined()) return;
    parallel_for(0, outer, std::max<int64_t>(1, kNormGrain / channels), [&](int64_t begin, int64_t end) {
      const auto g_buffer = row_buffer<T>(channels), x_buffer = row_buffer<T>(channels),
                 out_buffer = row_buffer<T>(channels);
      const hn::ScalableTag<C> d;
      const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
      for (int64_t r = begin; r < end; ++r) {
        const C* g = open_row(grad.ptr<const T>() + r * channels, channels, g_buffer.get());
        const C* x = open_row(input.ptr<const T>() + r * channels, channels, x_buffer.get());
        C* to = result_row(grad_input.ptr<T>() + r * channels, out_buffer.get());
        int64_t c = 0;
        for (; c + lanes <= channels; c += lanes) {
          const auto centred = hn::Sub(hn::LoadU(d, x + c), hn::LoadU(d, m + c));
          const auto rest = hn::MulAdd(centred, hn::LoadU(d, b + c), hn::LoadU(d, k + c));
          hn::StoreU(hn::MulAdd(hn::LoadU(d, g + c), hn::LoadU(d, a + c), rest), d, to + c);
        }
        for (; c < channels; ++c) to[c] = g[c] * a[c] + ((x[c] - m[c]) * b[c] + k[c]);
        close_row(to, channels, grad_input.ptr<T>() + r * channels);
      }
    });
  }
};

void batch_norm_backward_kernel(const TensorView& grad_input, const TensorView& grad_weight,
                                const TensorView& grad_bias, const TensorView& grad, const TensorView& input,
                                const TensorView& weight, const TensorView& mean, const TensorView& rstd,
                                bool training) {
  visit_floating("batch_norm_backward", input.dtype, [&]<class T>(Tag<T>) {
    const BatchNormBackward<T> norm{grad_input, grad_weight,    grad_bias,      grad,
                                    input,      mean,           rstd,           Parameter<Computed<T>>(weight),
                                    training,   input.sizes[0], input.sizes[1], input.sizes[2]};
    if (norm.inner == 1) {
      norm.columns();
    } else {
      norm.runs();
    }
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(batch_norm_backward_kernel);
MICA_REGISTER_SIMD(batch_norm_backward, batch_norm_backward_kernel);
}  // namespace mica::cpu
#endif
