// The steps of optimizers: many parameters in one launch, each element read and written once. The rules are those of
// backends/cpu/optim.
#include <memory>

#include "backends/cuda/places.cuh"
#include "mica/optim/fused_step.h"

namespace mica::cuda {

namespace {

constexpr int kStepThreads = 256;
constexpr int64_t kChunk = 8192;  // elements of a block
constexpr int kParameters = 24;   // of a launch: they travel with it

struct Batch {
  int count;
  unsigned first_block[kParameters + 1];
  FusedParameter parameters[kParameters];
};

// What a rule needs of a parameter, in the type that it computes in, once for each thread.
template <class C>
struct Lerp {
  C weight;
  bool from_start;
  __device__ explicit Lerp(double w) : from_start(w < 0.5) {
    const C rounded = static_cast<C>(w);
    weight = from_start ? rounded : rounded - C(1);
  }
  __device__ C operator()(C from, C to) const { return ::fma(weight, to - from, from_start ? from : to); }
};
template <class C>
__device__ C larger(C a, C b) {
  return a != a || a > b ? a : b;
}

template <class C>
struct Adam {
  static constexpr int kTensors = 5;  // the last with amsgrad
  Lerp<C> first;
  C beta2, weight2, root, eps, size;
  bool amsgrad;
  __device__ explicit Adam(const FusedParameter& p)
      : first(p.adam.weight1),
        beta2(static_cast<C>(p.adam.beta2)),
        weight2(static_cast<C>(p.adam.weight2)),
        root(static_cast<C>(p.adam.correction2_root)),
        eps(static_cast<C>(p.adam.eps)),
        size(static_cast<C>(-p.adam.step_size)),
        amsgrad(p.flags & FusedParameter::kAmsgrad) {
    if (!p.step) return;
    // The count lives on the device: the corrections are worked out here.
    const double t = static_cast<double>(*p.step), lr = p.lr ? static_cast<double>(*p.lr) : p.adam.step_size;
    root = static_cast<C>(::sqrt(1 - ::pow(p.adam.beta2, t)));
    size = static_cast<C>(-lr / (1 - ::pow(1 - p.adam.weight1, t)));
  }
  __device__ bool uses(int k) const { return k < 4 || amsgrad; }
  __device__ void operator()(C* t) const {
    t[2] = first(t[2], t[1]);
    t[3] = ::fma(weight2 * t[1], t[1], t[3] * beta2);
    C square = t[3];
    if (amsgrad) square = t[4] = larger(t[4], t[3]);
    t[0] += size * t[2] / (::sqrt(square) / root + eps);
  }
};
template <class C>
struct Adamax {
  static constexpr int kTensors = 4;
  Lerp<C> first;
  C beta2, eps, size;
  __device__ explicit Adamax(const FusedParameter& p)
      : first(p.adamax.weight1),
        beta2(static_cast<C>(p.adamax.beta2)),
        eps(static_cast<C>(p.adamax.eps)),
        size(static_cast<C>(-p.adamax.step_size)) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[2] = first(t[2], t[1]);
    t[3] = larger(t[3] * beta2, ::fabs(t[1]) + eps);
    t[0] += size * t[2] / t[3];
  }
};
template <class C>
struct Nadam {
  static constexpr int kTensors = 4;
  Lerp<C> first;
  C beta2, weight2, correction2, eps, gradient_factor, average_factor;
  __device__ explicit Nadam(const FusedParameter& p)
      : first(p.nadam.weight1),
        beta2(static_cast<C>(p.nadam.beta2)),
        weight2(static_cast<C>(p.nadam.weight2)),
        correction2(static_cast<C>(p.nadam.correction2)),
        eps(static_cast<C>(p.nadam.eps)),
        gradient_factor(static_cast<C>(p.nadam.gradient_factor)),
        average_factor(static_cast<C>(p.nadam.average_factor)) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[2] = first(t[2], t[1]);
    t[3] = ::fma(weight2 * t[1], t[1], t[3] * beta2);
    const C divisor = ::sqrt(t[3] / correction2) + eps;
    t[0] += gradient_factor * t[1] / divisor;
    t[0] += average_factor * t[2] / divisor;
  }
};
template <class C>
struct Radam {
  static constexpr int kTensors = 4;
  Lerp<C> first;
  C beta2, weight2, correction1, root, eps, lr, rectification;
  bool rectified;
  __device__ explicit Radam(const FusedParameter& p)
      : first(p.radam.weight1),
        beta2(static_cast<C>(p.radam.beta2)),
        weight2(static_cast<C>(p.radam.weight2)),
        correction1(static_cast<C>(p.radam.correction1)),
        root(static_cast<C>(p.radam.correction2_root)),
        eps(static_cast<C>(p.radam.eps)),
        lr(static_cast<C>(p.radam.lr)),
        rectification(static_cast<C>(p.radam.rectification)),
        rectified(p.flags & FusedParameter::kRectified) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[2] = first(t[2], t[1]);
    t[3] = ::fma(weight2 * t[1], t[1], t[3] * beta2);
    C update = t[2] / correction1 * lr;
    if (rectified) update = update * (root / (::sqrt(t[3]) + eps)) * rectification;
    t[0] -= update;
  }
};
template <class C>
struct Rmsprop {
  static constexpr int kTensors = 5;
  C alpha, weight, eps, momentum, size;
  Lerp<C> mean;
  bool has_momentum, centered;
  __device__ explicit Rmsprop(const FusedParameter& p)
      : alpha(static_cast<C>(p.rmsprop.alpha)),
        weight(static_cast<C>(p.rmsprop.weight)),
        eps(static_cast<C>(p.rmsprop.eps)),
        momentum(static_cast<C>(p.rmsprop.momentum)),
        size(static_cast<C>(-p.rmsprop.lr)),
        mean(p.rmsprop.weight),
        has_momentum(p.flags & FusedParameter::kMomentum),
        centered(p.flags & FusedParameter::kCentered) {}
  __device__ bool uses(int k) const { return k < 3 + has_momentum + centered; }
  __device__ void operator()(C* t) const {
    t[2] = ::fma(weight * t[1], t[1], t[2] * alpha);
    C square = t[2];
    if (centered) {
      t[3] = mean(t[3], t[1]);
      square = ::fma(-t[3], t[3], square);
    }
    const C divisor = ::sqrt(square) + eps;
    if (has_momentum) {
      C& buffer = centered ? t[4] : t[3];
      buffer = buffer * momentum + t[1] / divisor;
      t[0] = ::fma(buffer, size, t[0]);
    } else {
      t[0] += size * t[1] / divisor;
    }
  }
};
template <class C>
struct Adagrad {
  static constexpr int kTensors = 3;
  C size, eps;
  __device__ explicit Adagrad(const FusedParameter& p)
      : size(static_cast<C>(-p.adagrad.lr)), eps(static_cast<C>(p.adagrad.eps)) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[2] = ::fma(t[1], t[1], t[2]);
    t[0] += size * t[1] / (::sqrt(t[2]) + eps);
  }
};
template <class C>
struct Adadelta {
  static constexpr int kTensors = 4;
  C rho, weight, eps, size;
  __device__ explicit Adadelta(const FusedParameter& p)
      : rho(static_cast<C>(p.adadelta.rho)),
        weight(static_cast<C>(p.adadelta.weight)),
        eps(static_cast<C>(p.adadelta.eps)),
        size(static_cast<C>(-p.adadelta.lr)) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[2] = ::fma(weight * t[1], t[1], t[2] * rho);
    const C delta = ::sqrt(t[3] + eps) / ::sqrt(t[2] + eps) * t[1];
    t[3] = ::fma(weight * delta, delta, t[3] * rho);
    t[0] = ::fma(delta, size, t[0]);
  }
};
template <class C>
struct Sgd {
  static constexpr int kTensors = 3;
  C size, momentum, undamped;
  bool has_momentum, nesterov, first;
  __device__ explicit Sgd(const FusedParameter& p)
      : size(static_cast<C>(-p.sgd.lr)),
        momentum(static_cast<C>(p.sgd.momentum)),
        undamped(static_cast<C>(p.sgd.undamped)),
        has_momentum(p.flags & FusedParameter::kMomentum),
        nesterov(p.flags & FusedParameter::kNesterov),
        first(p.flags & FusedParameter::kFirst) {}
  __device__ bool uses(int k) const { return k < 2 || has_momentum; }
  __device__ void operator()(C* t) const {
    C direction = t[1];
    if (has_momentum) {
      t[2] = first ? direction : ::fma(direction, undamped, t[2] * momentum);
      direction = nesterov ? ::fma(t[2], momentum, direction) : t[2];
    }
    t[0] = ::fma(direction, size, t[0]);
  }
};
template <class C>
struct Asgd {
  static constexpr int kTensors = 3;
  C shrinkage, size, mu;
  bool averaging;
  __device__ explicit Asgd(const FusedParameter& p)
      : shrinkage(static_cast<C>(p.asgd.shrinkage)),
        size(static_cast<C>(-p.asgd.eta)),
        mu(static_cast<C>(p.asgd.mu)),
        averaging(p.flags & FusedParameter::kAveraging) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    t[0] = ::fma(t[1], size, t[0] * shrinkage);
    t[2] = averaging ? t[2] + (t[0] - t[2]) * mu : t[0];
  }
};
template <class C>
struct Rprop {
  static constexpr int kTensors = 4;
  C minus, plus, smallest, largest;
  __device__ explicit Rprop(const FusedParameter& p)
      : minus(static_cast<C>(p.rprop.eta_minus)),
        plus(static_cast<C>(p.rprop.eta_plus)),
        smallest(static_cast<C>(p.rprop.smallest)),
        largest(static_cast<C>(p.rprop.largest)) {}
  __device__ bool uses(int) const { return true; }
  __device__ void operator()(C* t) const {
    const C agreement = t[1] * t[2];
    const bool turned = agreement < C(0);
    const C size = t[3] * (agreement > C(0) ? plus : turned ? minus : C(1));
    t[3] = size != size ? size : size < smallest ? smallest : size > largest ? largest : size;
    t[2] = turned ? C(0) : t[1];
    t[0] += ((t[2] < C(0) ? C(1) : C(0)) - (t[2] > C(0) ? C(1) : C(0))) * t[3];
  }
};

template <int V, class T, class C, class Rule>
__device__ void step_elements(const FusedParameter& p, const Rule& rule, int64_t i, C decay) {
  Vector<T, V> pieces[Rule::kTensors];
#pragma unroll
  for (int k = 0; k < Rule::kTensors; ++k)
    if (rule.uses(k)) pieces[k] = *reinterpret_cast<const Vector<T, V>*>(static_cast<const T*>(p.tensors[k]) + i);
  const bool maximize = p.flags & FusedParameter::kMaximize, decays = p.flags & FusedParameter::kDecay,
             shrinks = p.flags & FusedParameter::kShrink;
#pragma unroll
  for (int j = 0; j < V; ++j) {
    C t[Rule::kTensors];
#pragma unroll
    for (int k = 0; k < Rule::kTensors; ++k) t[k] = rule.uses(k) ? convert<C>(pieces[k].item[j]) : C(0);
    if (maximize) t[1] = -t[1];
    if (decays) t[1] = ::fma(t[0], decay, t[1]);
    if (shrinks) t[0] *= decay;
    rule(t);
#pragma unroll
    for (int k = 0; k < Rule::kTensors; ++k) pieces[k].item[j] = convert<T>(t[k]);
  }
#pragma unroll
  for (int k = 0; k < Rule::kTensors; ++k)
    if (k != 1 && rule.uses(k)) *reinterpret_cast<Vector<T, V>*>(static_cast<T*>(p.tensors[k]) + i) = pieces[k];
}

template <class T, template <class> class Rule>
__global__ void __launch_bounds__(kStepThreads) step_kernel(const __grid_constant__ Batch batch) {
  using C = compute_t<T>;
  int k = 0;
  while (blockIdx.x >= batch.first_block[k + 1]) ++k;
  const FusedParameter& p = batch.parameters[k];
  const Rule<C> rule(p);
  C decay = static_cast<C>(p.decay);
  if (p.lr && p.flags & FusedParameter::kShrink) decay = static_cast<C>(1 - static_cast<double>(*p.lr) * p.decay);
  const int64_t begin = static_cast<int64_t>(blockIdx.x - batch.first_block[k]) * kChunk;
  const int64_t end = begin + kChunk < p.numel ? begin + kChunk : p.numel;
  constexpr int V = sizeof(T) == 8 ? 2 : 4;
  uintptr_t bits = 0;
#pragma unroll
  for (int i = 0; i < Rule<C>::kTensors; ++i)
    if (rule.uses(i)) bits |= reinterpret_cast<uintptr_t>(p.tensors[i]);
  if (bits % (sizeof(T) * V) == 0) {
    int64_t i = begin + static_cast<int64_t>(threadIdx.x) * V;
    for (; i + V <= end; i += kStepThreads * V) step_elements<V, T, C>(p, rule, i, decay);
    // One thread meets the end of the parameter.
    for (; i < end; ++i) step_elements<1, T, C>(p, rule, i, decay);
  } else {
    for (int64_t i = begin + threadIdx.x; i < end; i += kStepThreads) step_elements<1, T, C>(p, rule, i, decay);
  }
}

template <template <class> class Rule>
void run_step(const char* name, const FusedStep& step) {
  if (step.count == 0) return;
  const int device = step.device.index;
  DeviceGuard guard(device);
  visit_floating(name, step.dtype, [&]<class T>(Tag<T>) {
    Batch batch;
    batch.count = 0;
    batch.first_block[0] = 0;
    auto launch = [&] {
      const unsigned blocks = batch.first_block[batch.count];
      if (blocks) step_kernel<T, Rule><<<blocks, kStepThreads, 0, current_stream(device)>>>(batch);
      MICA_CUDA(cudaGetLastError());
      batch.count = 0;
    };
    for (int64_t i = 0; i < step.count; ++i) {
      const FusedParameter& p = step.parameters[i];
      if (p.numel == 0) continue;
      batch.parameters[batch.count] = p;
      batch.first_block[batch.count + 1] = batch.first_block[batch.count] + blocks_for(p.numel, kChunk);
      ++batch.count;
      // Parameters that share memory go one after the other.
      if (batch.count == kParameters || step.in_order) launch();
    }
    launch();
  });
}

// ---- scaled losses, counters

constexpr int kTensors = 48;
struct Tensors {
  int count;
  unsigned first_block[kTensors + 1];
  void* data[kTensors];
  int64_t numel[kTensors];
};

template <class T>
__global__ void __launch_bounds__(kStepThreads)
    unscale_kernel(const __grid_constant__ Tensors tensors, const float* inv_scale, float* found_inf) {
  using C = compute_t<T>;
  int k = 0;
  while (blockIdx.x >= tensors.first_block[k + 1]) ++k;
  auto* x = static_cast<T*>(tensors.data[k]);
  const int64_t begin = static_cast<int64_t>(blockIdx.x - tensors.first_block[k]) * kChunk;
  const int64_t end = begin + kChunk < tensors.numel[k] ? begin + kChunk : tensors.numel[k];
  const C factor = static_cast<C>(*inv_scale);
  bool bad = false;
  for (int64_t i = begin + threadIdx.x; i < end; i += kStepThreads) {
    const C v = convert<C>(x[i]);
    bad |= !::isfinite(v);
    if (factor != C(1)) x[i] = convert<T>(v * factor);
  }
  if (bad) *found_inf = 1.0f;
}

struct UpdateScale {
  float *scale, *found_inf;
  int32_t* tracker;
  double growth, backoff;
  int64_t interval;
  __device__ void operator()(int64_t) const {
    if (*found_inf != 0) {
      *scale = static_cast<float>(static_cast<double>(*scale) * backoff);
      *tracker = 0;
      return;
    }
    const int64_t successes = static_cast<int64_t>(*tracker) + 1;
    if (successes == interval) {
      const float grown = *scale * static_cast<float>(growth);
      if (::isfinite(grown)) *scale = grown;
      *tracker = 0;
    } else {
      *tracker = static_cast<int32_t>(successes);
    }
  }
};

__global__ void advance_kernel(const __grid_constant__ Tensors counters) {
  if (threadIdx.x < counters.count) *static_cast<float*>(counters.data[threadIdx.x]) += 1.0f;
}

}  // namespace

void adadelta_step(const FusedStep& step) { run_step<Adadelta>("adadelta_step", step); }
void adagrad_step(const FusedStep& step) { run_step<Adagrad>("adagrad_step", step); }
void adam_step(const FusedStep& step) { run_step<Adam>("adam_step", step); }
void adamax_step(const FusedStep& step) { run_step<Adamax>("adamax_step", step); }
void asgd_step(const FusedStep& step) { run_step<Asgd>("asgd_step", step); }
void nadam_step(const FusedStep& step) { run_step<Nadam>("nadam_step", step); }
void radam_step(const FusedStep& step) { run_step<Radam>("radam_step", step); }
void rmsprop_step(const FusedStep& step) { run_step<Rmsprop>("rmsprop_step", step); }
void rprop_step(const FusedStep& step) { run_step<Rprop>("rprop_step", step); }
void sgd_step(const FusedStep& step) { run_step<Sgd>("sgd_step", step); }

void unscale_on_device(TensorViewList gradients, const TensorView& found_inf, const TensorView& inv_scale) {
  if (gradients.empty()) return;
  const int device = gradients[0]->device.index;
  DeviceGuard guard(device);
  visit_floating("_amp_foreach_non_finite_check_and_unscale_", gradients[0]->dtype, [&]<class T>(Tag<T>) {
    Tensors tensors;
    tensors.count = 0;
    tensors.first_block[0] = 0;
    auto launch = [&] {
      const unsigned blocks = tensors.first_block[tensors.count];
      if (blocks)
        unscale_kernel<T><<<blocks, kStepThreads, 0, current_stream(device)>>>(tensors, inv_scale.ptr<const float>(),
                                                                               found_inf.ptr<float>());
      MICA_CUDA(cudaGetLastError());
      tensors.count = 0;
    };
    for (const TensorView* g : gradients) {
      if (g->numel == 0) continue;
      tensors.data[tensors.count] = g->data;
      tensors.numel[tensors.count] = g->numel;
      tensors.first_block[tensors.count + 1] = tensors.first_block[tensors.count] + blocks_for(g->numel, kChunk);
      if (++tensors.count == kTensors) launch();
    }
    launch();
  });
}

void update_scale_on_device(const TensorView& scale, const TensorView& growth_tracker, const TensorView& found_inf,
                            double growth_factor, double backoff_factor, int64_t growth_interval) {
  DeviceGuard guard(scale.device.index);
  for_each(scale.device.index, 1,
           UpdateScale{scale.ptr<float>(), found_inf.ptr<float>(), growth_tracker.ptr<int32_t>(), growth_factor,
                       backoff_factor, growth_interval});
}

void advance_counters(TensorViewList counters) {
  if (counters.empty()) return;
  const int device = counters[0]->device.index;
  DeviceGuard guard(device);
  for (size_t first = 0; first < counters.size(); first += kTensors) {
    Tensors tensors;
    tensors.count = static_cast<int>(std::min<size_t>(kTensors, counters.size() - first));
    for (int i = 0; i < tensors.count; ++i) tensors.data[i] = counters[first + static_cast<size_t>(i)]->data;
    advance_kernel<<<1, 64, 0, current_stream(device)>>>(tensors);
    MICA_CUDA(cudaGetLastError());
  }
}

}  // namespace mica::cuda
