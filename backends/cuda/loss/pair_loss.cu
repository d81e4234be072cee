// Losses that are a function of one number and its target.
#include "backends/cuda/bounds.h"
#include "backends/cuda/loss/finish.cuh"

namespace mica::cuda {

namespace {

constexpr const char* kInput = "all elements of input should be between 0 and 1";
constexpr const char* kTarget = "all elements of target should be between 0 and 1";

template <PairLoss K, class C>
__device__ C loss_of(C x, C y, C a) {
  const C d = x - y, size = ::fabs(d);
  if constexpr (K == PairLoss::Squared) return d * d;
  if constexpr (K == PairLoss::Absolute) return size;
  if constexpr (K == PairLoss::SmoothAbsolute) return size >= a ? size - C(0.5) * a : C(0.5) * size * size / a;
  if constexpr (K == PairLoss::Huber) return size > a ? a * (size - C(0.5) * a) : C(0.5) * size * size;
  if constexpr (K == PairLoss::BinaryCrossEntropy) {
    C with = ::log(x), without = ::log1p(-x);
    with = with < C(-100) ? C(-100) : with;
    without = without < C(-100) ? C(-100) : without;
    return (y - C(1)) * without - y * with;
  }
  // (1 - y) x - log(sigmoid(x))
  const C low = x < C(0) || x != x ? x : C(0);
  return (C(1) - y) * x - (low - ::log1p(::exp(-::fabs(x))));
}

template <PairLoss K, class C>
__device__ C slope_of(C x, C y, C a) {
  const C d = x - y;
  if constexpr (K == PairLoss::Squared) return d + d;
  if constexpr (K == PairLoss::Absolute) return d == C(0) ? C(0) : ::copysign(C(1), d);
  if constexpr (K == PairLoss::SmoothAbsolute) return ::fabs(d) >= a ? ::copysign(C(1), d) : d / a;
  if constexpr (K == PairLoss::Huber) return ::fabs(d) > a ? ::copysign(a, d) : d;
  if constexpr (K == PairLoss::BinaryCrossEntropy) {
    const C spread = (C(1) - x) * x;
    return d / (spread < C(1e-12) ? C(1e-12) : spread);
  }
  return C(1) / (C(1) + ::exp(-x)) - y;
}

template <class T, PairLoss K>
struct Element {
  using C = compute_t<T>;
  const T *x, *y;
  C a;
  Bounds input, target;
  __device__ C at(int64_t i) const {
    const C u = convert<C>(x[i]), v = convert<C>(y[i]);
    if constexpr (K == PairLoss::BinaryCrossEntropy) {
      if (!(u >= C(0) && u <= C(1))) input.complain();
      if (!(v >= C(0) && v <= C(1))) target.complain();
    }
    return loss_of<K>(u, v, a);
  }
};
template <class T, PairLoss K>
struct Each {
  Element<T, K> element;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = convert<T>(element.at(i)); }
};
template <class T, PairLoss K>
__global__ void __launch_bounds__(kThreads) sum_losses(int64_t n, Element<T, K> element, double* parts) {
  double total = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step)
    total += static_cast<double>(element.at(i));
  total = all_reduce<kThreads>(total, AddOp<double>{});
  if (threadIdx.x == 0) parts[blockIdx.x] = total;
}
template <class T, PairLoss K>
struct Gradient {
  using C = compute_t<T>;
  T* out;
  const T *grad, *x, *y;
  C a, scale;
  bool one;
  __device__ void operator()(int64_t i) const {
    const C upstream = convert<C>(grad[one ? 0 : i]) * scale;
    out[i] = convert<T>(slope_of<K>(convert<C>(x[i]), convert<C>(y[i]), a) * upstream);
  }
};

template <class F>
void visit_kind(int64_t kind, const F& f) {
  switch (static_cast<PairLoss>(kind)) {
#define MICA_PAIR_LOSS(K) \
  case PairLoss::K:       \
    return f(std::integral_constant<PairLoss, PairLoss::K>{});
    MICA_PAIR_LOSS(Squared)
    MICA_PAIR_LOSS(Absolute)
    MICA_PAIR_LOSS(SmoothAbsolute)
    MICA_PAIR_LOSS(Huber)
    MICA_PAIR_LOSS(BinaryCrossEntropy)
    MICA_PAIR_LOSS(BinaryCrossEntropyOfLogit)
#undef MICA_PAIR_LOSS
  }
}

}  // namespace

void pair_loss(const TensorView& out, const TensorView& input, const TensorView& target, int64_t kind, double parameter,
               int64_t reduction) {
  const int device = input.device.index();
  DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device);
  const int64_t n = input.numel;
  visit_floating(kernel_name(static_cast<PairLoss>(kind)), input.dtype, [&]<class T>(Tag<T>) {
    visit_kind(kind, [&](auto k) {
      const Element<T, k()> element{input.ptr<const T>(), target.ptr<const T>(), static_cast<compute_t<T>>(parameter),
                                    Bounds::of(kInput, device), Bounds::of(kTarget, device)};
      if (reduction == kNone) return for_each(device, n, Each<T, k()>{element, out.ptr<T>()});
      const auto blocks = static_cast<unsigned>(
          std::clamp<int64_t>((n + kThreads * 8 - 1) / (kThreads * 8), 1, 8 * properties(device).multiProcessorCount));
      const Workspace parts(blocks * sizeof(double), device);
      auto* sums = static_cast<double*>(parts.data());
      sum_losses<T, k()><<<blocks, kThreads, 0, stream>>>(n, element, sums);
      MICA_CUDA(cudaGetLastError());
      finish_loss<T, T><<<1, 1024, 0, stream>>>(sums, nullptr, blocks, out.ptr<T>(), nullptr, static_cast<double>(n),
                                                reduction == kMean);
      MICA_CUDA(cudaGetLastError());
    });
  });
}

void pair_loss_backward(const TensorView& grad_input, const TensorView& grad, const TensorView& input,
                        const TensorView& target, int64_t kind, double parameter, double scale) {
  const int device = input.device.index();
  DeviceGuard guard(device);
  visit_floating(kernel_name(static_cast<PairLoss>(kind)), input.dtype, [&]<class T>(Tag<T>) {
    visit_kind(kind, [&](auto k) {
      for_each(
          device, input.numel,
          Gradient<T, k()>{grad_input.ptr<T>(), grad.ptr<const T>(), input.ptr<const T>(), target.ptr<const T>(),
                           static_cast<compute_t<T>>(parameter), static_cast<compute_t<T>>(scale), grad.numel == 1});
    });
  });
}

}  // namespace mica::cuda
