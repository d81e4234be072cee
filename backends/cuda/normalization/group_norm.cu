// group_norm and its gradients: a run of memory for each sample and group.
#include "backends/cuda/normalization/channels.cuh"

namespace mica::cuda {

namespace {

// visit(element) for a thread's share of a run that a group of threads walks over, in vectors where they are aligned.
template <int kGroup, class T, class Visit>
__device__ void each_of_run(const T* run, int64_t count, const Visit& visit) {
  constexpr int V = kVector<T>;
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
  int64_t done = 0;
  if (reinterpret_cast<uintptr_t>(run) % alignof(Vector<T, V>) == 0) {
    const int64_t vectors = count / V;
#pragma unroll 4
    for (int64_t i = lane; i < vectors; i += kGroup) {
      const auto piece = reinterpret_cast<const Vector<T, V>*>(run)[i];
#pragma unroll
      for (int j = 0; j < V; ++j) visit(piece.item[j]);
    }
    done = vectors * V;
  }
  for (int64_t i = done + lane; i < count; i += kGroup) visit(run[i]);
}

template <class T>
__global__ void __launch_bounds__(512)
    group_moments(const T* in, int64_t count, Statistic<T> mean, Statistic<T> rstd, double eps) {
  using C = compute_t<T>;
  const T* x = in + blockIdx.x * count;
  const C shift = convert<C>(x[0]);
  C sum = 0, squares = 0;
  each_of_run<512>(x, count, [&](const T& item) {
    const C v = convert<C>(item) - shift;
    sum += v;
    squares += v * v;
  });
  sum = all_reduce<512>(sum, AddOp<C>{});
  squares = all_reduce<512>(squares, AddOp<C>{});
  if (threadIdx.x) return;
  const double n = static_cast<double>(count), off = static_cast<double>(sum) / n;
  const double deviation = static_cast<double>(squares) - static_cast<double>(sum) * off;
  mean.set(blockIdx.x, static_cast<C>(static_cast<double>(shift) + off));
  rstd.set(blockIdx.x, static_cast<C>(1 / ::sqrt((deviation > 0 || deviation != deviation ? deviation / n : 0) + eps)));
}
// i / n, by 32 bits where that is possible.
__device__ inline int64_t quotient(int64_t i, int64_t n) {
  return (i | n) >> 32 ? i / n : static_cast<uint32_t>(i) / static_cast<uint32_t>(n);
}

// Numbers of a group and of a channel for the elements of a vector: one for all where the vector lies in a plane.
template <class T>
struct NormalizeGroups {
  using C = compute_t<T>;
  T* out;
  const T* in;
  Statistic<T> mean, rstd;
  Parameter<T> weight, bias;
  int64_t count;
  __device__ C value(C x, int64_t group, int64_t c) const {
    C y = (x - mean.at(group)) * rstd.at(group);
    if (weight.given()) y *= weight.at(c);
    if (bias.given()) y += bias.at(c);
    return y;
  }
  template <int V>
  __device__ void run(int64_t i, int64_t c, bool side_by_side) const {
    auto piece = *reinterpret_cast<const Vector<T, V>*>(in + i);
    if (side_by_side) {
#pragma unroll
      for (int j = 0; j < V; ++j)
        piece.item[j] = convert<T>(value(convert<C>(piece.item[j]), quotient(i + j, count), c + j));
    } else {
      const int64_t group = quotient(i, count);
#pragma unroll
      for (int j = 0; j < V; ++j) piece.item[j] = convert<T>(value(convert<C>(piece.item[j]), group, c));
    }
    *reinterpret_cast<Vector<T, V>*>(out + i) = piece;
  }
};

// For each run of a channel in a sample, or each cut of one: the sum of the gradient, and of the gradient times the
// input's distance from its group's mean. `kGroup` threads for a run.
template <int kGroup, class T>
__global__ void __launch_bounds__(kSumThreads)
    group_gradient_sums(Shape s, const T* grad, const T* x, Statistic<T> mean, int64_t per_group, compute_t<T>* sums) {
  using C = compute_t<T>;
  constexpr int V = kVector<T>;
  const int64_t task = (static_cast<int64_t>(blockIdx.x) * kSumThreads + threadIdx.x) / kGroup;
  if (task >= s.outer * s.channels * s.cuts) return;
  const int64_t run = task / s.cuts, cut = task % s.cuts, c = run % s.channels;
  const int64_t vectors = (s.inner + V - 1) / V, begin = vectors * cut / s.cuts * V,
                end = min(vectors * (cut + 1) / s.cuts * V, s.inner);
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
  const C middle = mean.at(run / per_group);
  grad += run * s.inner + begin;
  x += run * s.inner + begin;
  C first = 0, second = 0;
  const auto add = [&](const T& g, const T& v) {
    first += convert<C>(g);
    second += convert<C>(g) * (convert<C>(v) - middle);
  };
  int64_t done = 0;
  if ((reinterpret_cast<uintptr_t>(grad) | reinterpret_cast<uintptr_t>(x)) % alignof(Vector<T, V>) == 0) {
    done = (end - begin) / V * V;
#pragma unroll 2
    for (int64_t i = lane * V; i < done; i += kGroup * V) {
      const auto g = *reinterpret_cast<const Vector<T, V>*>(grad + i);
      const auto v = *reinterpret_cast<const Vector<T, V>*>(x + i);
#pragma unroll
      for (int j = 0; j < V; ++j) add(g.item[j], v.item[j]);
    }
  }
  for (int64_t i = done + lane; i < end - begin; i += kGroup) add(grad[i], x[i]);
  first = all_reduce<kGroup>(first, AddOp<C>{});
  second = all_reduce<kGroup>(second, AddOp<C>{});
  if (lane) return;
  const int64_t at = (run / s.channels * s.cuts + cut) * s.channels + c;
  sums[at] = first;
  sums[s.parts * s.channels + at] = second;
}

// From the sums, a warp for each result: of each sample and group, what the gradient of the input has of (x - mean) and
// of one; after them, of each channel, the gradients of weight and bias.
template <class T>
struct GroupResults {
  using C = compute_t<T>;
  Shape s;
  const C* sums;
  Statistic<T> rstd, grad_weight, grad_bias;
  Parameter<T> weight;
  C* numbers;
  int64_t per_group, groups, all;  // all: groups of all samples, none where no input wants a gradient
  double count;

  __device__ double first(int64_t at) const { return static_cast<double>(sums[at]); }
  __device__ double second(int64_t at) const { return static_cast<double>(sums[s.parts * s.channels + at]); }
  __device__ void run(int64_t task, int lane) const {
    double one = 0, two = 0;
    if (task < all) {
      const int64_t sample = task / groups, channel = task % groups * per_group;
      for (int64_t i = lane; i < per_group * s.cuts; i += 32) {
        const int64_t c = channel + i % per_group, at = (sample * s.cuts + i / per_group) * s.channels + c;
        const double w = weight.given() ? static_cast<double>(weight.at(c)) : 1;
        one += w * first(at);
        two += w * second(at);
      }
    } else {
      const int64_t c = task - all, group = c / per_group;
      for (int64_t i = lane; i < s.parts; i += 32) {
        one += first(i * s.channels + c);
        two += second(i * s.channels + c) * static_cast<double>(rstd.at(i / s.cuts * groups + group));
      }
    }
    one = all_reduce<32>(one, AddOp<double>{});
    two = all_reduce<32>(two, AddOp<double>{});
    if (lane) return;
    if (task < all) {
      const double r = static_cast<double>(rstd.at(task));
      numbers[task] = static_cast<C>(-two * r * r * r / count);
      numbers[all + task] = static_cast<C>(-one * r / count);
    } else {
      if (grad_weight.given()) grad_weight.set(task - all, static_cast<C>(two));
      if (grad_bias.given()) grad_bias.set(task - all, static_cast<C>(one));
    }
  }
};
template <class T>
__global__ void __launch_bounds__(kSumThreads) group_results(GroupResults<T> results) {
  wait_for_predecessors();
  const int64_t task = static_cast<int64_t>(blockIdx.x) * (kSumThreads / 32) + threadIdx.x / 32;
  if (task < results.all + results.s.channels) results.run(task, static_cast<int>(threadIdx.x) % 32);
}

template <class T>
struct GroupInputGradient {
  using C = compute_t<T>;
  T* out;
  const T *grad, *in;
  Statistic<T> mean, rstd;
  Parameter<T> weight;
  const C* numbers;
  int64_t count, all;
  __device__ C value(C g, C x, int64_t group, int64_t c) const {
    C scale = rstd.at(group);
    if (weight.given()) scale *= weight.at(c);
    return scale * g + numbers[group] * (x - mean.at(group)) + numbers[all + group];
  }
  template <int V>
  __device__ void run(int64_t i, int64_t c, bool side_by_side) const {
    auto g = *reinterpret_cast<const Vector<T, V>*>(grad + i);
    const auto x = *reinterpret_cast<const Vector<T, V>*>(in + i);
    if (side_by_side) {
#pragma unroll
      for (int j = 0; j < V; ++j)
        g.item[j] = convert<T>(value(convert<C>(g.item[j]), convert<C>(x.item[j]), quotient(i + j, count), c + j));
    } else {
      const int64_t group = quotient(i, count);
#pragma unroll
      for (int j = 0; j < V; ++j) g.item[j] = convert<T>(value(convert<C>(g.item[j]), convert<C>(x.item[j]), group, c));
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
    apply<T>(
        s,
        NormalizeGroups<T>{out.ptr<T>(), input.ptr<const T>(), m, r, Parameter<T>(weight), Parameter<T>(bias), count},
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
    const auto run = [&](auto kernel, int group) {
      kernel<<<blocks_for(s.outer * s.channels * s.cuts, kSumThreads / group), kSumThreads, 0,
               current_stream(device)>>>(s, grad.ptr<const T>(), input.ptr<const T>(), m, per_group, sums);
      MICA_CUDA(cudaGetLastError());
    };
    s.inner > 512 ? run(group_gradient_sums<kSumThreads, T>, kSumThreads) : run(group_gradient_sums<32, T>, 32);
    const int64_t wanted = grad_input.defined() ? all : 0;
    launch<group_results<T>>(
        device, blocks_for(wanted + s.channels, kSumThreads / 32), kSumThreads,
        GroupResults<T>{s, sums, r, Statistic<T>(grad_weight), Statistic<T>(grad_bias), Parameter<T>(weight), numbers,
                        per_group, groups, wanted, static_cast<double>(count)});
    if (!grad_input.defined()) return;
    apply<T>(s,
             GroupInputGradient<T>{grad_input.ptr<T>(), grad.ptr<const T>(), input.ptr<const T>(), m, r,
                                   Parameter<T>(weight), numbers, count, all},
             aligned16({grad_input.data, grad.data, input.data}), device);
  });
}

}  // namespace mica::cuda
