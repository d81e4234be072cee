// batch_norm, group_norm and their gradients, over contiguous tensors [outer, channels, inner]. Sums are taken in parts
// that are laid out [part, channel], and then over the parts.
#include "backends/cuda/norm/rows.cuh"

namespace mica::cuda {

namespace {

constexpr int kSumThreads = 128;
constexpr int kLanes = 32, kRows = 8;

struct Shape {
  int64_t outer, channels, inner;
  int64_t parts = 1, cuts = 1;  // parts = outer * cuts of a run, or parts of the rows where inner is 1
};

// Sums of first(i, c) and second(i, c) over the elements of each channel.
template <class C, class Terms>
__global__ void __launch_bounds__(kSumThreads) sum_runs(Shape s, Terms terms, C* sums) {
  const int64_t run = blockIdx.x / s.cuts, cut = blockIdx.x % s.cuts, c = run % s.channels;
  const int64_t begin = s.inner * cut / s.cuts, end = s.inner * (cut + 1) / s.cuts;
  C first = 0, second = 0;
  for (int64_t i = run * s.inner + begin + threadIdx.x; i < run * s.inner + end; i += kSumThreads)
    terms(i, c, first, second);
  first = all_reduce<kSumThreads>(first, AddOp<C>{});
  second = all_reduce<kSumThreads>(second, AddOp<C>{});
  if (threadIdx.x) return;
  const int64_t at = (run / s.channels * s.cuts + cut) * s.channels + c;
  sums[at] = first;
  sums[s.parts * s.channels + at] = second;
}

// Short runs: a warp for each.
template <class C, class Terms>
__global__ void __launch_bounds__(kSumThreads) sum_short_runs(Shape s, Terms terms, C* sums) {
  const int64_t run = static_cast<int64_t>(blockIdx.x) * (kSumThreads / 32) + threadIdx.x / 32, c = run % s.channels;
  if (run >= s.outer * s.channels) return;
  C first = 0, second = 0;
  for (int64_t i = threadIdx.x % 32; i < s.inner; i += 32) terms(run * s.inner + i, c, first, second);
  first = all_reduce<32>(first, AddOp<C>{});
  second = all_reduce<32>(second, AddOp<C>{});
  if (threadIdx.x % 32) return;
  sums[run] = first;
  sums[s.parts * s.channels + run] = second;
}

// Channels side by side.
template <class C, class Terms>
__global__ void __launch_bounds__(kLanes* kRows) sum_columns(Shape s, Terms terms, C* sums) {
  __shared__ C shared[2][kRows][kLanes];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  C first = 0, second = 0;
  if (c < s.channels)
    for (int64_t r = blockIdx.y * kRows + threadIdx.y; r < s.outer; r += s.parts * kRows)
      terms(r * s.channels + c, c, first, second);
  shared[0][threadIdx.y][threadIdx.x] = first;
  shared[1][threadIdx.y][threadIdx.x] = second;
  __syncthreads();
  if (threadIdx.y || c >= s.channels) return;
  for (int r = 1; r < kRows; ++r) {
    first += shared[0][r][threadIdx.x];
    second += shared[1][r][threadIdx.x];
  }
  sums[blockIdx.y * s.channels + c] = first;
  sums[(s.parts + blockIdx.y) * s.channels + c] = second;
}

void choose_parts(Shape& s, int device) {
  const int64_t wanted = 8 * properties(device).multiProcessorCount;
  if (s.inner == 1) {
    s.parts = std::clamp<int64_t>(std::min(wanted * kLanes / s.channels, s.outer / (kRows * 4)), 1, 1024);
  } else {
    if (s.inner > 512)
      s.cuts = std::clamp<int64_t>(std::min(wanted / (s.outer * s.channels), s.inner / (kSumThreads * 8)), 1, 256);
    s.parts = s.outer * s.cuts;
  }
}

template <class C, class Terms>
void channel_sums(const Shape& s, const Terms& terms, C* sums, int device) {
  const cudaStream_t stream = current_stream(device);
  if (s.inner == 1) {
    sum_columns<<<dim3(blocks_for(s.channels, kLanes), static_cast<unsigned>(s.parts)), dim3(kLanes, kRows), 0,
                  stream>>>(s, terms, sums);
  } else if (s.inner <= 512) {
    sum_short_runs<<<blocks_for(s.outer * s.channels, kSumThreads / 32), kSumThreads, 0, stream>>>(s, terms, sums);
  } else {
    sum_runs<<<static_cast<unsigned>(s.outer * s.channels * s.cuts), kSumThreads, 0, stream>>>(s, terms, sums);
  }
  MICA_CUDA(cudaGetLastError());
}

// body(channel, first, second) with the sums of all parts: a warp for each channel.
template <class C, class Body>
__global__ void __launch_bounds__(kSumThreads) finish_kernel(Shape s, const C* sums, Body body) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * (kSumThreads / 32) + threadIdx.x / 32;
  if (c >= s.channels) return;
  double first = 0, second = 0;
  for (int64_t p = threadIdx.x % 32; p < s.parts; p += 32) {
    first += static_cast<double>(sums[p * s.channels + c]);
    second += static_cast<double>(sums[(s.parts + p) * s.channels + c]);
  }
  first = all_reduce<32>(first, AddOp<double>{});
  second = all_reduce<32>(second, AddOp<double>{});
  if (threadIdx.x % 32 == 0) body(c, first, second);
}
template <class C, class Body>
void finish(const Shape& s, const C* sums, const Body& body, int device) {
  finish_kernel<<<blocks_for(s.channels, kSumThreads / 32), kSumThreads, 0, current_stream(device)>>>(s, sums, body);
  MICA_CUDA(cudaGetLastError());
}

// Walks over all elements, in vectors of one run or of neighbouring channels where shapes allow it: f(loads and stores
// element i of channel c).
template <int V, class F>
__global__ void __launch_bounds__(kThreads) apply_kernel(int64_t vectors, Shape s, F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t v = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; v < vectors; v += step) {
    const int64_t i = v * V;
    int64_t c;
    if (i >> 32 == 0) {
      c = static_cast<uint32_t>(i) / static_cast<uint32_t>(s.inner) % static_cast<uint32_t>(s.channels);
    } else {
      c = i / s.inner % s.channels;
    }
    f.template run<V>(i, c, s.inner == 1);
  }
}
template <class T, class F>
void apply(const Shape& s, const F& f, bool aligned, int device) {
  const int64_t n = s.outer * s.channels * s.inner;
  constexpr int V = kVector<T>;
  const bool wide = aligned && (s.inner == 1 ? s.channels % V == 0 : s.inner % V == 0);
  const int64_t vectors = wide ? n / V : n;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((vectors + kThreads - 1) / kThreads, 1 << 20));
  if (wide) {
    apply_kernel<V><<<blocks, kThreads, 0, current_stream(device)>>>(vectors, s, f);
  } else {
    apply_kernel<1><<<blocks, kThreads, 0, current_stream(device)>>>(vectors, s, f);
  }
  MICA_CUDA(cudaGetLastError());
}

// ---- batch norm

template <class T>
struct ShiftedSums {
  using C = compute_t<T>;
  const T* x;
  int64_t inner;
  __device__ void operator()(int64_t i, int64_t c, C& first, C& second) const {
    const C v = convert<C>(x[i]) - convert<C>(x[c * inner]);
    first += v;
    second += v * v;
  }
};

template <class T>
struct KeepMoments {
  using C = compute_t<T>;
  const T* x;
  Statistic<T> mean, rstd, running_mean, running_var;
  C* numbers;  // mean and rstd of every channel
  int64_t inner, channels;
  double count, momentum, eps;
  __device__ void operator()(int64_t c, double sum, double squares) const {
    const double shift = static_cast<double>(convert<C>(x[c * inner])), off = sum / count;
    const double m = shift + off, deviation = squares - sum * off;
    const double variance = deviation > 0 || deviation != deviation ? deviation / count : 0;
    const double r = 1 / ::sqrt(variance + eps);
    mean.set(c, static_cast<C>(m));
    rstd.set(c, static_cast<C>(r));
    numbers[c] = static_cast<C>(m);
    numbers[channels + c] = static_cast<C>(r);
    if (running_mean.given())
      running_mean.set(c, static_cast<C>((1 - momentum) * static_cast<double>(running_mean.at(c)) + momentum * m));
    if (running_var.given())
      running_var.set(c, static_cast<C>((1 - momentum) * static_cast<double>(running_var.at(c)) +
                                        momentum * variance * count / (count - 1)));
  }
};
template <class T>
struct RunningNumbers {
  using C = compute_t<T>;
  Statistic<T> mean, var;
  C* numbers;
  int64_t channels;
  double eps;
  __device__ void operator()(int64_t c) const {
    numbers[c] = mean.at(c);
    numbers[channels + c] = static_cast<C>(1 / ::sqrt(static_cast<double>(var.at(c)) + eps));
  }
};
template <class T>
struct Normalize {
  using C = compute_t<T>;
  T* out;
  const T* in;
  const C* numbers;
  int64_t channels;
  Parameter<T> weight, bias;
  template <int V>
  __device__ void run(int64_t i, int64_t c, bool side_by_side) const {
    auto piece = *reinterpret_cast<const Vector<T, V>*>(in + i);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int64_t at = side_by_side ? c + j : c;
      C y = (convert<C>(piece.item[j]) - numbers[at]) * numbers[channels + at];
      if (weight.given()) y *= weight.at(at);
      if (bias.given()) y += bias.at(at);
      piece.item[j] = convert<T>(y);
    }
    *reinterpret_cast<Vector<T, V>*>(out + i) = piece;
  }
};

template <class T>
struct GradientSums {
  using C = compute_t<T>;
  const T *grad, *x;
  Statistic<T> mean;
  __device__ void operator()(int64_t i, int64_t c, C& first, C& second) const {
    const C g = convert<C>(grad[i]);
    first += g;
    second += g * (convert<C>(x[i]) - mean.at(c));
  }
};
// grad_input = a g + b (x - mean) + k, with numbers of each channel.
template <class T>
struct KeepGradients {
  using C = compute_t<T>;
  Statistic<T> mean, rstd;
  Parameter<T> weight;
  Statistic<T> grad_weight, grad_bias;
  C* numbers;
  int64_t channels;
  double count;
  bool training;
  __device__ void operator()(int64_t c, double sum, double product) const {
    const double r = static_cast<double>(rstd.at(c));
    const double scale = r * (weight.given() ? static_cast<double>(weight.at(c)) : 1);
    if (grad_weight.given()) grad_weight.set(c, static_cast<C>(product * r));
    if (grad_bias.given()) grad_bias.set(c, static_cast<C>(sum));
    numbers[c] = static_cast<C>(scale);
    numbers[channels + c] = training ? static_cast<C>(-scale * product * r * r / count) : C(0);
    numbers[2 * channels + c] = training ? static_cast<C>(-scale * sum / count) : C(0);
  }
};
template <class T>
struct InputGradient {
  using C = compute_t<T>;
  T* out;
  const T *grad, *in;
  Statistic<T> mean;
  const C* numbers;
  int64_t channels;
  template <int V>
  __device__ void run(int64_t i, int64_t c, bool side_by_side) const {
    auto g = *reinterpret_cast<const Vector<T, V>*>(grad + i);
    const auto x = *reinterpret_cast<const Vector<T, V>*>(in + i);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int64_t at = side_by_side ? c + j : c;
      const C centred = convert<C>(x.item[j]) - mean.at(at);
      g.item[j] = convert<T>(numbers[at] * convert<C>(g.item[j]) + numbers[channels + at] * centred +
                             numbers[2 * channels + at]);
    }
    *reinterpret_cast<Vector<T, V>*>(out + i) = g;
  }
};

// ---- group norm: a run of memory for each sample and group

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

bool aligned16(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 0;
  for (const void* p : pointers) bits |= reinterpret_cast<uintptr_t>(p);
  return bits % 16 == 0;
}

}  // namespace

void batch_norm(const TensorView& out, const TensorView& mean, const TensorView& rstd, const TensorView& running_mean,
                const TensorView& running_var, const TensorView& input, const TensorView& weight,
                const TensorView& bias, bool training, double momentum, double eps) {
  if (input.numel == 0) return;
  const int device = input.device.index;
  DeviceGuard guard(device);
  Shape s{input.sizes[0], input.sizes[1], input.sizes[2]};
  choose_parts(s, device);
  visit_floating("batch_norm", input.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const auto* x = input.ptr<const T>();
    const Workspace memory(static_cast<size_t>((2 * s.parts + 2) * s.channels) * sizeof(C), device);
    auto *numbers = static_cast<C*>(memory.data()), *sums = numbers + 2 * s.channels;
    if (training) {
      channel_sums(s, ShiftedSums<T>{x, s.inner}, sums, device);
      finish(s, sums,
             KeepMoments<T>{x, Statistic<T>(mean), Statistic<T>(rstd), Statistic<T>(running_mean),
                            Statistic<T>(running_var), numbers, s.inner, s.channels,
                            static_cast<double>(s.outer * s.inner), momentum, eps},
             device);
    } else {
      for_each(device, s.channels,
               RunningNumbers<T>{Statistic<T>(running_mean), Statistic<T>(running_var), numbers, s.channels, eps});
    }
    apply<T>(s, Normalize<T>{out.ptr<T>(), x, numbers, s.channels, Parameter<T>(weight), Parameter<T>(bias)},
             aligned16({out.data, input.data}), device);
  });
}

void batch_norm_backward(const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad_bias,
                         const TensorView& grad, const TensorView& input, const TensorView& weight,
                         const TensorView& mean, const TensorView& rstd, bool training) {
  if (input.numel == 0) return;
  const int device = input.device.index;
  DeviceGuard guard(device);
  Shape s{input.sizes[0], input.sizes[1], input.sizes[2]};
  choose_parts(s, device);
  visit_floating("batch_norm_backward", input.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const Workspace memory(static_cast<size_t>((2 * s.parts + 3) * s.channels) * sizeof(C), device);
    auto *numbers = static_cast<C*>(memory.data()), *sums = numbers + 3 * s.channels;
    const Statistic<T> m(mean);
    channel_sums(s, GradientSums<T>{grad.ptr<const T>(), input.ptr<const T>(), m}, sums, device);
    finish(s, sums,
           KeepGradients<T>{m, Statistic<T>(rstd), Parameter<T>(weight), Statistic<T>(grad_weight),
                            Statistic<T>(grad_bias), numbers, s.channels, static_cast<double>(s.outer * s.inner),
                            training},
           device);
    if (!grad_input.defined()) return;
    apply<T>(s,
             InputGradient<T>{grad_input.ptr<T>(), grad.ptr<const T>(), input.ptr<const T>(), m, numbers, s.channels},
             aligned16({grad_input.data, grad.data, input.data}), device);
  });
}

void group_norm(const TensorView& out, const TensorView& mean, const TensorView& rstd, const TensorView& input,
                const TensorView& weight, const TensorView& bias, double eps) {
  if (input.numel == 0) return;
  const int device = input.device.index;
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
  const int device = input.device.index;
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
