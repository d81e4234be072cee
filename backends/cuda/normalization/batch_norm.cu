// batch_norm and its gradients.
#include "backends/cuda/normalization/columns.cuh"

namespace mica::cuda {

namespace {

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
  template <int V>
  __device__ Vector<C, V> known(int64_t c) const {
    Vector<C, V> shift;
#pragma unroll
    for (int j = 0; j < V; ++j) shift.item[j] = convert<C>(x[c + j]);
    return shift;
  }
  template <int V>
  __device__ void add(int64_t i, const Vector<C, V>& shift, C (&first)[V], C (&second)[V]) const {
    const auto piece = *reinterpret_cast<const Vector<T, V>*>(x + i);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C v = convert<C>(piece.item[j]) - shift.item[j];
      first[j] += v;
      second[j] = fma(v, v, second[j]);
    }
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
  static constexpr int kAtOnce = 4;
  template <int V>
  using Piece = Vector<T, V>;
  template <int V>
  struct Known {
    C mean[V], scale[V], bias[V];
  };
  template <int V>
  __device__ Known<V> known(int64_t c) const {
    Known<V> k;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      k.mean[j] = numbers[c + j];
      k.scale[j] = numbers[channels + c + j] * (weight.given() ? weight.at(c + j) : C(1));
      k.bias[j] = bias.given() ? bias.at(c + j) : C(0);
    }
    return k;
  }
  template <int V>
  __device__ Vector<T, V> load(int64_t i) const {
    return *reinterpret_cast<const Vector<T, V>*>(in + i);
  }
  template <int V>
  __device__ void store(int64_t i, const Known<V>& k, Vector<T, V> piece) const {
#pragma unroll
    for (int j = 0; j < V; ++j)
      piece.item[j] = convert<T>(fma(convert<C>(piece.item[j]) - k.mean[j], k.scale[j], k.bias[j]));
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
  template <int V>
  __device__ Vector<C, V> known(int64_t c) const {
    Vector<C, V> centre;
#pragma unroll
    for (int j = 0; j < V; ++j) centre.item[j] = mean.at(c + j);
    return centre;
  }
  template <int V>
  __device__ void add(int64_t i, const Vector<C, V>& centre, C (&first)[V], C (&second)[V]) const {
    const auto g = *reinterpret_cast<const Vector<T, V>*>(grad + i);
    const auto in = *reinterpret_cast<const Vector<T, V>*>(x + i);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C up = convert<C>(g.item[j]);
      first[j] += up;
      second[j] = fma(up, convert<C>(in.item[j]) - centre.item[j], second[j]);
    }
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
  static constexpr int kAtOnce = 2;
  template <int V>
  struct Piece {
    Vector<T, V> grad, in;
  };
  template <int V>
  struct Known {
    C mean[V], of_grad[V], of_input[V], always[V];
  };
  template <int V>
  __device__ Known<V> known(int64_t c) const {
    Known<V> k;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      k.mean[j] = mean.at(c + j);
      k.of_grad[j] = numbers[c + j];
      k.of_input[j] = numbers[channels + c + j];
      k.always[j] = numbers[2 * channels + c + j];
    }
    return k;
  }
  template <int V>
  __device__ Piece<V> load(int64_t i) const {
    return {*reinterpret_cast<const Vector<T, V>*>(grad + i), *reinterpret_cast<const Vector<T, V>*>(in + i)};
  }
  template <int V>
  __device__ void store(int64_t i, const Known<V>& k, Piece<V> piece) const {
#pragma unroll
    for (int j = 0; j < V; ++j)
      piece.grad.item[j] = convert<T>(fma(k.of_grad[j], convert<C>(piece.grad.item[j]),
                                          fma(k.of_input[j], convert<C>(piece.in.item[j]) - k.mean[j], k.always[j])));
    *reinterpret_cast<Vector<T, V>*>(out + i) = piece.grad;
  }
};

}  // namespace

void batch_norm(const TensorView& out, const TensorView& mean, const TensorView& rstd, const TensorView& running_mean,
                const TensorView& running_var, const TensorView& input, const TensorView& weight,
                const TensorView& bias, bool training, double momentum, double eps) {
  if (input.numel == 0) return;
  const int device = input.device.index();
  DeviceGuard guard(device);
  Shape s{input.sizes[0], input.sizes[1], input.sizes[2]};
  choose_parts(s, device);
  visit_floating("batch_norm", input.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const auto* x = input.ptr<const T>();
    const bool aligned = aligned16({out.data, input.data}), columns = in_columns<T>(s, aligned);
    if (columns) s.parts = column_parts<T>(s, device);
    const Workspace memory(static_cast<size_t>((2 * s.parts + 2) * s.channels) * sizeof(C), device);
    auto *numbers = static_cast<C*>(memory.data()), *sums = numbers + 2 * s.channels;
    if (training) {
      const ShiftedSums<T> terms{x, s.inner};
      if (columns) {
        column_sums<T>(s, terms, sums, device);
      } else {
        channel_sums(s, terms, sums, device);
      }
      finish(s, sums,
             KeepMoments<T>{x, Statistic<T>(mean), Statistic<T>(rstd), Statistic<T>(running_mean),
                            Statistic<T>(running_var), numbers, s.inner, s.channels,
                            static_cast<double>(s.outer * s.inner), momentum, eps},
             device);
    } else {
      for_each(device, s.channels,
               RunningNumbers<T>{Statistic<T>(running_mean), Statistic<T>(running_var), numbers, s.channels, eps});
    }
    const Normalize<T> body{out.ptr<T>(), x, numbers, s.channels, Parameter<T>(weight), Parameter<T>(bias)};
    if (columns) return column_apply<T>(s, body, device);
    apply<T>(s, body, aligned, device);
  });
}

void batch_norm_backward(const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad_bias,
                         const TensorView& grad, const TensorView& input, const TensorView& weight,
                         const TensorView& mean, const TensorView& rstd, bool training) {
  if (input.numel == 0) return;
  const int device = input.device.index();
  DeviceGuard guard(device);
  Shape s{input.sizes[0], input.sizes[1], input.sizes[2]};
  choose_parts(s, device);
  visit_floating("batch_norm_backward", input.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const bool aligned = aligned16({grad_input.data, grad.data, input.data}), columns = in_columns<T>(s, aligned);
    if (columns) s.parts = column_parts<T>(s, device);
    const Workspace memory(static_cast<size_t>((2 * s.parts + 3) * s.channels) * sizeof(C), device);
    auto *numbers = static_cast<C*>(memory.data()), *sums = numbers + 3 * s.channels;
    const Statistic<T> m(mean);
    const GradientSums<T> terms{grad.ptr<const T>(), input.ptr<const T>(), m};
    if (columns) {
      column_sums<T>(s, terms, sums, device);
    } else {
      channel_sums(s, terms, sums, device);
    }
    finish(s, sums,
           KeepGradients<T>{m, Statistic<T>(rstd), Parameter<T>(weight), Statistic<T>(grad_weight),
                            Statistic<T>(grad_bias), numbers, s.channels, static_cast<double>(s.outer * s.inner),
                            training},
           device);
    if (!grad_input.defined()) return;
    const InputGradient<T> body{grad_input.ptr<T>(), grad.ptr<const T>(), input.ptr<const T>(), m, numbers, s.channels};
    if (columns) return column_apply<T>(s, body, device);
    apply<T>(s, body, aligned, device);
  });
}

}  // namespace mica::cuda
