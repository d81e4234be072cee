// Batch normalisation, forward: (outer, channels, inner). Where a channel's elements lie in runs, its statistics are
// taken and applied while they are in the cache; where channels lie side by side, sums go down the rows first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/normalization/batch_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "backends/cpu/normalization/columns-inl.h"
#include "backends/cpu/normalization/slabs-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/normalization/parameters-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "core/channel_line.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

template <class T>
struct BatchNorm {
  using C = Computed<T>;
  const TensorView &out, &mean, &rstd, &running_mean, &running_var, &input;
  Parameter<C> weight, bias;
  double momentum, eps;
  int64_t outer, channels, inner;

  ChannelLine line_of(int64_t c, double m, double r) const {
    return {weight.data ? static_cast<double>(weight.data[c]) : 1, bias.data ? static_cast<double>(bias.data[c]) : 0, m,
            r};
  }

  // Keeps the statistics of a channel of the batch; returns the reciprocal of its standard deviation.
  double keep(int64_t c, const Moments& m) const {
    const double r = reciprocal_deviation(m.squares / m.count, eps);
    put_statistic(mean, c, m.mean);
    put_statistic(rstd, c, r);
    if (running_mean.defined())
      put_statistic(running_mean, c, momentum * m.mean + (1 - momentum) * get_statistic(running_mean, c));
    if (running_var.defined()) {
      const double unbiased = m.squares / (m.count - 1);
      put_statistic(running_var, c, momentum * unbiased + (1 - momentum) * get_statistic(running_var, c));
    }
    return r;
  }

  double running_rstd(int64_t c) const { return reciprocal_deviation(get_statistic(running_var, c), eps); }

  void apply_run(int64_t at, const ChannelLine& line, C* in_buffer, C* out_buffer) const {
    const C scale = static_cast<C>(line.scale), shift = static_cast<C>(line.shift);
    C* to = result_row(out.ptr<T>() + at, out_buffer);
    scale_and_shift(open_row(input.ptr<const T>() + at, inner, in_buffer), inner, scale, shift, to);
    close_row(to, inner, out.ptr<T>() + at);
  }

  // Channel by channel.
  void runs_in_training() const {
    parallel_for(0, channels, std::max<int64_t>(1, kNormGrain / (outer * inner)), [&](int64_t begin, int64_t end) {
      const auto in_buffer = row_buffer<T>(inner), out_buffer = row_buffer<T>(inner);
      for (int64_t c = begin; c < end; ++c) {
        MomentSums<C> sums;
        for (int64_t o = 0; o < outer; ++o)
          sums.add(open_row(input.ptr<const T>() + (o * channels + c) * inner, inner, in_buffer.get()), inner);
        const Moments m = sums.finish();
        const double r = keep(c, m);
        const ChannelLine line = line_of(c, m.mean, r);
        for (int64_t o = 0; o < outer; ++o)
          apply_run((o * channels + c) * inner, line, in_buffer.get(), out_buffer.get());
      }
    });
  }

  // In the order of memory.
  void runs_in_evaluation() const {
    parallel_for(0, outer * channels, std::max<int64_t>(1, kNormGrain / inner), [&](int64_t begin, int64_t end) {
      const auto in_buffer = row_buffer<T>(inner), out_buffer = row_buffer<T>(inner);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t c = i % channels;
        const ChannelLine line = line_of(c, get_statistic(running_mean, c), running_rstd(c));
        apply_run(i * inner, line, in_buffer.get(), out_buffer.get());
      }
    });
  }

  // Moments of every channel, from sums around the channel's first element of each part of the rows.
  std::vector<Moments> column_moments() const {
    const RowParts parts(outer, channels);
    const size_t n = static_cast<size_t>(channels);
    std::vector<Moments> found(n * static_cast<size_t>(parts.count), Moments{0, 0, 0});
    parts.run([&](int64_t p, int64_t begin, int64_t end) {
      constexpr int64_t kMost = kIsNarrow<T> ? 256 : sizeof(C) == 4 ? 8192 : 512;
      std::vector<double> work(3 * n);
      double *shift = work.data(), *sum = shift + n, *squares = sum + n;
      Moments* moments = found.data() + static_cast<size_t>(p) * n;
      for (int64_t r = begin; r < end; r += kMost) {
        const OpenRows<T> x(input.ptr<const T>(), r, std::min(end, r + kMost), channels);
        const int64_t rows = std::min(end, r + kMost) - r;
        for (size_t c = 0; c < n; ++c) shift[c] = static_cast<double>(x.data[c]), sum[c] = squares[c] = 0;
        sum_columns(
            rows, channels, sum, squares, [&](int64_t at, int64_t c, int64_t lanes, DoubleVector& s, DoubleVector& q) {
              const Doubles d;
              const DoubleVector v = hn::Sub(load_wide_first(x.data + at, lanes), load_first(d, shift + c, lanes));
              s = hn::Add(s, v);
              q = hn::MulAdd(v, v, q);
            });
        for (size_t c = 0; c < n; ++c)
          moments[c].add(moments_from_sums(static_cast<double>(rows), shift[c], sum[c], squares[c]));
      }
    });
    for (int64_t p = 1; p < parts.count; ++p)
      for (size_t c = 0; c < n; ++c) found[c].add(found[static_cast<size_t>(p) * n + c]);
    found.resize(n);
    return found;
  }

  void columns(bool training) const {
    std::vector<C> numbers(static_cast<size_t>(2 * channels));
    C *scale = numbers.data(), *shift = scale + channels;
    const auto set = [&](int64_t c, double m, double r) {
      const ChannelLine line = line_of(c, m, r);
      scale[c] = static_cast<C>(line.scale);
      shift[c] = static_cast<C>(line.shift);
    };
    if (training) {
      const std::vector<Moments> moments = column_moments();
      for (int64_t c = 0; c < channels; ++c) {
        const Moments& m = moments[static_cast<size_t>(c)];
        set(c, m.mean, keep(c, m));
      }
    } else {
      for (int64_t c = 0; c < channels; ++c) set(c, get_statistic(running_mean, c), running_rstd(c));
    }
    parallel_for(0, outer, std::max<int64_t>(1, kNormGrain / channels), [&](int64_t begin, int64_t end) {
      const hn::ScalableTag<C> d;
      const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
      const auto in_buffer = row_buffer<T>(channels), out_buffer = row_buffer<T>(channels);
      for (int64_t r = begin; r < end; ++r) {
        const C* x = open_row(input.ptr<const T>() + r * channels, channels, in_buffer.get());
        C* to = result_row(out.ptr<T>() + r * channels, out_buffer.get());
        int64_t c = 0;
        for (; c + lanes <= channels; c += lanes)
          hn::StoreU(hn::MulAdd(hn::LoadU(d, x + c), hn::LoadU(d, scale + c), hn::LoadU(d, shift + c)), d, to + c);
        for (; c < channels; ++c) to[c] = x[c] * scale[c] + shift[c];
        close_row(to, channels, out.ptr<T>() + r * channels);
      }
    });
  }
};

void batch_norm_kernel(const TensorView& out, const TensorView& mean, const TensorView& rstd,
                       const TensorView& running_mean, const TensorView& running_var, const TensorView& input,
                       const TensorView& weight, const TensorView& bias, bool training, double momentum, double eps) {
  visit_floating("batch_norm", input.dtype, [&]<class T>(Tag<T>) {
    using C = Computed<T>;
    const BatchNorm<T> norm{
        out,      mean, rstd,           running_mean,   running_var,   input, Parameter<C>(weight), Parameter<C>(bias),
        momentum, eps,  input.sizes[0], input.sizes[1], input.sizes[2]};
    if (norm.inner == 1) {
      norm.columns(training);
    } else if (training) {
      norm.runs_in_training();
    } else {
      norm.runs_in_evaluation();
    }
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(batch_norm_kernel);
MICA_REGISTER_SIMD(batch_norm, batch_norm_kernel);
}  // namespace mica::cpu
#endif
