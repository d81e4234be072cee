// The steps of optimizers: many parameters in one launch, each element read and written once.
#include "backends/cuda/optim/rules.cuh"
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
  const int device = step.device.index();
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
  const int device = gradients[0]->device.index();
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
  DeviceGuard guard(scale.device.index());
  for_each(scale.device.index(), 1,
           UpdateScale{scale.ptr<float>(), found_inf.ptr<float>(), growth_tracker.ptr<int32_t>(), growth_factor,
                       backoff_factor, growth_interval});
}

void advance_counters(TensorViewList counters) {
  if (counters.empty()) return;
  const int device = counters[0]->device.index();
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
