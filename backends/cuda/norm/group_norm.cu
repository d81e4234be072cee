// group_norm and its gradients: a run of memory for each sample and group.
#include "backends/cuda/norm/channels.cuh"

namespace mica::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(512)
    group_moments(const T* in, int64_t count, Statistic<T> mean, Statistic<T> rstd, double eps) {
  using C = compute_t<T>;
  const T* x = in + blockIdx.x * count;
  const C shift = convert<C>(x[0]);
  C sum = 0, squares = 0;
  for (int64_t i = threadIdx.x; i < count; i += 512) {
    const C v = convert<C>(x[i]) - shift;
    sum += v;
    squares += v * v;
  }
  sum = all_reduce<512>(sum, AddOp<C>{});
  squares = all_reduce<512>(squares, AddOp<C>{});
  if (threadIdx.x) return;
  const double n = static_cast<double>(count), off = static_cast<double>(sum) / n;
  const double deviation = static_cast<double>(squares) - static_cast<double>(sum) * off;
  mean.set(blockIdx.x, static_cast<C>(static_cast<double>(shift) + off));
  rstd.set(blockIdx.x, static_cast<C>(1 / ::sqrt((deviation > 0 || deviation != deviation ? deviation / n : 0) + eps)));
}
template <class T>
struct NormalizeGroups {
  using C = compute_t<T>;
  T* out;
  const T* in;
  Statistic<T> mean, rstd;
  Parameter<T> weight, bias;
  int64_t inner, channels, count;
  template <int V>
  __device__ void run(int64_t i, int64_t, bool) const {
    auto piece = *reinterpret_cast<const Vector<T, V>*>(in + i);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int64_t group = (i + j) / count, c = (i + j) / inner % channels;
      C y = (convert<C>(piece.item[j]) - mean.at(group)) * rstd.at(group);
      if (weight.given()) y *= weight.at(c);
      if (bias.given()) y += bias.at(c);
      piece.item[j] = convert<T>(y);
    }
    *reinterpret_cast<Vector<T, V>*>(out + i) = piece;
  }
};
template <class T>
struct GroupGradientSums {
  using C = compute_t<T>;
  const T *grad, *x;
  Statistic<T> mean;
  int64_t count;
  __device__ void operator()(int64_t i, int64_t, C& first, C& second) const {
    const C g = convert<C>(grad[i]);
    first += g;
    second += g * (convert<C>(x[i]) - mean.at(i / count));
  }
};
// Of each sample and group: what the gradient of the input has of (x - mean), and of one.
template <class T>
struct GroupNumbers {
  using C = compute_t<T>;
  const C* sums;
  Statistic<T> rstd;
  Parameter<T> weight;
  C* numbers;
  int64_t channels, per_group, groups, all, cuts, parts;
  double count;
  __device__ void operator()(int64_t group) const {
    const int64_t sample = group / groups, first_channel = group % groups * per_group;
    double sum = 0, product = 0;
    for (int64_t k = 0; k < per_group; ++k) {
      const double w = weight.given() ? static_cast<double>(weight.at(first_channel + k)) : 1;
      for (int64_t cut = 0; cut < cuts; ++cut) {
        const int64_t at = (sample * cuts + cut) * channels + first_channel + k;
        sum += w * static_cast<double>(sums[at]);
        product += w * static_cast<double>(sums[parts * channels + at]);
      }
    }
    const double r = static_cast<double>(rstd.at(group));
    numbers[group] = static_cast<C>(-product * r * r * r / count);
    numbers[all + group] = static_cast<C>(-sum * r / count);
  }
};
template <class T>
struct GroupParameterGradients {
  using C = compute_t<T>;
  const C* sums;
  Statistic<T> rstd, grad_weight, grad_bias;
  int64_t channels, per_group, groups, outer, cuts, parts;
  __device__ void operator()(int64_t c) const {
    double weight = 0, bias = 0;
    for (int64_t n = 0; n < outer; ++n)
      for (int64_t cut = 0; cut < cuts; ++cut) {
        const int64_t at = (n * cuts + cut) * channels + c;
        bias += static_cast<double>(sums[at]);
        weight +=
            static_cast<double>(sums[parts * channels + at]) * static_cast<double>(rstd.at(n * groups + c / per_group));
      }
    if (grad_weight.given()) grad_weight.set(c, static_cast<C>(weight));
    if (grad_bias.given()) grad_bias.set(c, static_cast<C>(bias));
  }
};
template <class T>
struct GroupInputGradient {
  using C = compute_t<T>;
  T* out;
  const T *grad, *in;
  Statistic<T> mean, rstd;
  Parameter<T> weight;
  const C* numbers;
  int64_t inner, channels, count, all;
  template <int V>
  __device__ void run(int64_t i, int64_t, bool) const {
    auto g = *reinterpret_cast<const Vector<T, V>*>(grad + i);
    const auto x = *reinterpret_cast<const Vector<T, V>*>(in + i);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int64_t group = (i + j) / count, c = (i + j) / inner % channels;
      C scale = rstd.at(group);
      if (weight.given()) scale *= weight.at(c);
      g.item[j] = convert<T>(scale * convert<C>(g.item[j]) + numbers[group] * (convert<C>(x.item[j]) - mean.at(group)) +
                             numbers[all + group]);
    }
    *reinterpret_cast<Vector<T, V>*>(out + i) = g;
  }
};

}  // namespace

void group_norm(const TensorView& out, const TensorView& mean, const TensorView& rstd, const TensorView& input,
                const TensorView& weight, const TensorView& bias, double eps) {
  if (input.numel == 0) return;
  const int device = input.device.index();
  DeviceGuard guard(device);
  const Shape s{input.sizes[0], input.sizes[1], input.sizes[2]};
  const int64_t count = input.numel / mean.numel;
  visit_floating("group_norm", input.dtype, [&]<class T>(Tag<T>) {
    const Statistic<T> m(mean), r(rstd);
    group_moments<T>
        <<<static_cast<unsigned>(mean.numel), 512, 0, current_stream(device)>>>(input.ptr<const T>(), count, m, r, eps);
    MICA_CUDA(cudaGetLastError());
    apply<T>(s,
             NormalizeGroups<T>{out.ptr<T>(), input.ptr<const T>(), m, r, Parameter<T>(weight), Parameter<T>(bias),
                                s.inner, s.channels, count},
             aligned16({out.data, input.data}), device);
  });
}

void group_norm_backward(const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad_bias,
                         const TensorView& grad, const TensorView& input, const TensorView& mean,
                         const TensorView& rstd, const TensorView& weight) {
  if (input.numel == 0) return;
  const int device = input.device.index();
  DeviceGuard guard(device);
  Shape s{input.sizes[0], input.sizes[1], input.sizes[2]};
  const int64_t all = mean.numel, groups = all / s.outer, per_group = s.channels / groups, count = input.numel / all;
  // Each sample needs its own sums, so that rows are not put together here.
  if (s.inner > 512) choose_parts(s, device);
  s.parts = s.outer * s.cuts;
  visit_floating("group_norm_backward", input.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const Workspace memory(static_cast<size_t>(2 * s.parts * s.channels + 2 * all) * sizeof(C), device);
    auto *numbers = static_cast<C*>(memory.data()), *sums = numbers + 2 * all;
    const Statistic<T> m(mean), r(rstd);
    const GroupGradientSums<T> terms{grad.ptr<const T>(), input.ptr<const T>(), m, count};
    if (s.inner > 512) {
      channel_sums(s, terms, sums, device);
    } else {
      sum_short_runs<<<blocks_for(s.outer * s.channels, kSumThreads / 32), kSumThreads, 0, current_stream(device)>>>(
          s, terms, sums);
      MICA_CUDA(cudaGetLastError());
    }
    for_each(device, s.channels,
             GroupParameterGradients<T>{sums, r, Statistic<T>(grad_weight), Statistic<T>(grad_bias), s.channels,
                                        per_group, groups, s.outer, s.cuts, s.parts});
    if (!grad_input.defined()) return;
    for_each(device, all,
             GroupNumbers<T>{sums, r, Parameter<T>(weight), numbers, s.channels, per_group, groups, all, s.cuts,
                             s.parts, static_cast<double>(count)});
    apply<T>(s,
             GroupInputGradient<T>{grad_input.ptr<T>(), grad.ptr<const T>(), input.ptr<const T>(), m, r,
                                   Parameter<T>(weight), numbers, s.inner, s.channels, count, all},
             aligned16({grad_input.data, grad.data, input.data}), device);
  });
}

}  // namespace mica::cuda
