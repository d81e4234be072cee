// Group normalisation of (batch, channels, inner): a group of a sample is one run, normalised while it is in the cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/normalization/group_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <vector>

#include "backends/cpu/normalization/slabs-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/normalization/parameters-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

struct GroupShape {
  GroupShape(const TensorView& input, const TensorView& mean)
      : batch(input.sizes[0]),
        channels(input.sizes[1]),
        inner(input.sizes[2]),
        groups(mean.sizes[1]),
        per_group(channels / groups),
        count(per_group * inner) {}
  int64_t grain() const { return std::max<int64_t>(1, 16384 / std::max<int64_t>(count, 1)); }
  int64_t batch, channels, inner, groups, per_group, count;  // `count` is the number of elements of a group
};

void group_norm_kernel(const TensorView& out, const TensorView& mean, const TensorView& rstd, const TensorView& input,
                       const TensorView& weight, const TensorView& bias, double eps) {
  const GroupShape shape(input, mean);
  visit_floating("GroupNormKernelImpl", input.dtype, [&]<class T>(Tag<T>) {
    using C = Computed<T>;
    const Parameter<C> w(weight), b(bias);
    parallel_for(0, shape.batch * shape.groups, shape.grain(), [&](int64_t begin, int64_t end) {
      const auto in_buffer = row_buffer<T>(shape.count), out_buffer = row_buffer<T>(shape.count);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % shape.groups * shape.per_group;
        const C* x = open_row(input.ptr<const T>() + i * shape.count, shape.count, in_buffer.get());
        Moments m{0, 0, 0};
        add_run(m, x, shape.count);
        const double r = 1 / std::sqrt(m.squares / static_cast<double>(shape.count) + eps);
        put_statistic(mean, i, m.mean);
        put_statistic(rstd, i, r);
        C* to = result_row(out.ptr<T>() + i * shape.count, out_buffer.get());
        for (int64_t c = 0; c < shape.per_group; ++c) {
          const double scale = r * (w.data ? static_cast<double>(w.data[first + c]) : 1);
          const double shift = (b.data ? static_cast<double>(b.data[first + c]) : 0) - m.mean * scale;
          scale_and_shift(x + c * shape.inner, shape.inner, static_cast<C>(scale), static_cast<C>(shift),
                          to + c * shape.inner);
        }
        close_row(to, shape.count, out.ptr<T>() + i * shape.count);
      }
    });
  });
}

// The sum over the batch of one number per sample and channel.
void store_channel_sums(const TensorView& out, const std::vector<double>& numbers, int64_t batch, int64_t channels) {
  if (!out.defined()) return;
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (int64_t n = 0; n < batch; ++n) sum += numbers[static_cast<size_t>(n * channels + c)];
    put_statistic(out, c, sum);
  }
}

void group_norm_backward_kernel(const TensorView& grad_input, const TensorView& grad_weight,
                                const TensorView& grad_bias, const TensorView& grad, const TensorView& input,
                                const TensorView& mean, const TensorView& rstd, const TensorView& weight) {
  const GroupShape shape(input, mean);
  visit_floating("GroupNormBackwardKernelImpl", input.dtype, [&]<class T>(Tag<T>) {
    using C = Computed<T>;
    const Parameter<C> w(weight);
    const size_t places = static_cast<size_t>(shape.batch * shape.channels);
    std::vector<double> weight_sums(places), bias_sums(places);
    parallel_for(0, shape.batch * shape.groups, shape.grain(), [&](int64_t begin, int64_t end) {
      const auto g_buffer = row_buffer<T>(shape.count), x_buffer = row_buffer<T>(shape.count),
                 out_buffer = row_buffer<T>(shape.count);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % shape.groups * shape.per_group;
        const size_t place = static_cast<size_t>(i / shape.groups * shape.channels + first);
        const C* g = open_row(grad.ptr<const T>() + i * shape.count, shape.count, g_buffer.get());
        const C* x = open_row(input.ptr<const T>() + i * shape.count, shape.count, x_buffer.get());
        const double m = get_statistic(mean, i), r = get_statistic(rstd, i), n = static_cast<double>(shape.count);
        double sum = 0, product = 0;  // sums of the gradient with respect to the normalised input
        for (int64_t c = 0; c < shape.per_group; ++c) {
          GradientSums sums;
          sums.add(g + c * shape.inner, x + c * shape.inner, shape.inner, m);
          const double scale = w.data ? static_cast<double>(w.data[first + c]) : 1;
          sum += sums.sum() * scale;
          product += sums.product() * scale;
          weight_sums[place + static_cast<size_t>(c)] = sums.product() * r;
          bias_sums[place + static_cast<size_t>(c)] = sums.sum();
        }
        if (!grad_input.defined()) continue;
        C* to = result_row(grad_input.ptr<T>() + i * shape.count, out_buffer.get());
        for (int64_t c = 0; c < shape.per_group; ++c) {
          const double scale = r * (w.data ? static_cast<double>(w.data[first + c]) : 1);
          combine_gradient(g + c * shape.inner, x + c * shape.inner, shape.inner, static_cast<C>(m),
                           static_cast<C>(scale), static_cast<C>(-product * r * r * r / n),
                           static_cast<C>(-sum * r / n), to + c * shape.inner);
        }
        close_row(to, shape.count, grad_input.ptr<T>() + i * shape.count);
      }
    });
    store_channel_sums(grad_weight, weight_sums, shape.batch, shape.channels);
    store_channel_sums(grad_bias, bias_sums, shape.batch, shape.channels);
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(group_norm_kernel);
HWY_EXPORT(group_norm_backward_kernel);
MICA_REGISTER_SIMD(group_norm, group_norm_kernel);
MICA_REGISTER_SIMD(group_norm_backward, group_norm_backward_kernel);
}  // namespace mica::cpu
#endif
