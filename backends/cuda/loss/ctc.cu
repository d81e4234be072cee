// The CTC loss by the forward-backward algorithm, in logarithms: a block for each sample, its threads over the states,
// one time after the other. See backends/cpu/loss/ctc_loss.cpp.
#include "backends/cuda/context.h"
#include "backends/cuda/bounds.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int kCtcThreads = 256;

template <class T>
__device__ T log_add(T a, T b, T c) {
  const T top = ::fmax(a, ::fmax(b, c));
  if (top == -static_cast<T>(INFINITY)) return top;
  return top + ::log(::exp(a - top) + ::exp(b - top) + ::exp(c - top));
}

template <class T>
struct Sample {
  const int64_t* labels;
  int64_t length, time, states, classes, time_stride, class_stride, blank;
  const T* values;

  __device__ int64_t label(int64_t i) const {
    const int64_t c = labels[i];
    return c >= 0 && c < classes ? c : 0;
  }
  __device__ int64_t class_of(int64_t state) const { return state % 2 ? label(state / 2) : blank; }
  __device__ bool may_skip_to(int64_t state) const { return state > 1 && class_of(state) != class_of(state - 2); }
  __device__ T log_prob(int64_t t, int64_t c) const { return values[t * time_stride + c * class_stride]; }
};

template <class T>
struct Samples {
  const int64_t *labels, *begins, *input_lengths, *target_lengths;
  const T* log_probs;
  int64_t strides[3], classes, blank;
  __device__ Sample<T> at(int64_t b) const {
    return {labels + begins[b],
            target_lengths[b],
            input_lengths[b],
            2 * target_lengths[b] + 1,
            classes,
            strides[0],
            strides[2],
            blank,
            log_probs + b * strides[1]};
  }
};

template <class T>
__global__ void __launch_bounds__(kCtcThreads)
    loss_kernel(Samples<T> samples, T* losses, T* alphas, int64_t alpha_stride, int64_t width, Bounds bounds) {
  const Sample<T> s = samples.at(blockIdx.x);
  const T never = -static_cast<T>(INFINITY);
  T* alpha = alphas + blockIdx.x * alpha_stride;
  for (int64_t i = threadIdx.x; i < s.length; i += kCtcThreads) bounds.checked(s.labels[i], s.classes, 2, false);
  if (s.time == 0) {
    if (threadIdx.x == 0) losses[blockIdx.x] = s.length == 0 ? T(0) : static_cast<T>(INFINITY);
    return;
  }
  for (int64_t i = threadIdx.x; i < width; i += kCtcThreads)
    alpha[i] = i == 0 ? s.log_prob(0, s.blank) : i == 1 && s.length > 0 ? s.log_prob(0, s.label(0)) : never;
  for (int64_t t = 1; t < s.time; ++t) {
    __syncthreads();
    const T* before = alpha + (t - 1) * width;
    T* now = alpha + t * width;
    for (int64_t i = threadIdx.x; i < s.states; i += kCtcThreads)
      now[i] = log_add(before[i], i > 0 ? before[i - 1] : never, s.may_skip_to(i) ? before[i - 2] : never) +
               s.log_prob(t, s.class_of(i));
  }
  __syncthreads();
  if (threadIdx.x) return;
  const T* end = alpha + (s.time - 1) * width;
  losses[blockIdx.x] = s.length == 0 ? -end[0] : -log_add(end[s.states - 1], end[s.states - 2], never);
}

template <class T>
__global__ void __launch_bounds__(kCtcThreads)
    gradient_kernel(Samples<T> samples, const T* losses, const T* grads, const T* alphas, int64_t alpha_stride,
                    int64_t width, T* betas, T* out, int64_t time_stride, int64_t batch_stride, int64_t class_stride,
                    bool zero_infinity) {
  const Sample<T> s = samples.at(blockIdx.x);
  const T loss = losses[blockIdx.x], factor = grads[blockIdx.x], never = -static_cast<T>(INFINITY);
  if (s.time == 0 || (zero_infinity && loss == static_cast<T>(INFINITY))) return;
  const T* alpha = alphas + blockIdx.x * alpha_stride;
  T* both_times = betas + blockIdx.x * 2 * width;
  out += blockIdx.x * batch_stride;
  for (int64_t t = s.time - 1; t >= 0; --t) {
    T* now = both_times + t % 2 * width;
    const T* next = both_times + (t + 1) % 2 * width;
    for (int64_t i = threadIdx.x; i < s.states; i += kCtcThreads) {
      if (t == s.time - 1) {
        now[i] = i == s.states - 1                   ? s.log_prob(t, s.blank)
                 : s.length > 0 && i == s.states - 2 ? s.log_prob(t, s.label(s.length - 1))
                                                     : never;
      } else {
        now[i] = log_add(next[i], i + 1 < s.states ? next[i + 1] : never,
                         i + 2 < s.states && s.may_skip_to(i + 2) ? next[i + 2] : never) +
                 s.log_prob(t, s.class_of(i));
      }
    }
    __syncthreads();
    for (int64_t c = threadIdx.x; c < s.classes; c += kCtcThreads) {
      T both = never;
      for (int64_t i = 0; i < s.states; ++i)
        if (s.class_of(i) == c) both = log_add(both, alpha[t * width + i] + now[i], never);
      const T lp = s.log_prob(t, c);
      out[t * time_stride + c * class_stride] = (::exp(lp) - ::exp(both + loss - lp)) * factor;
    }
    __syncthreads();
  }
}

// Lists of the host in memory of the device.
class Lists {
 public:
  Lists(std::initializer_list<IntArrayRef> lists, int device)
      : count_(lists.begin()->size()), memory_(std::max<size_t>(1, lists.size() * count_) * sizeof(int64_t), device) {
    size_t at = 0;
    for (const IntArrayRef& list : lists) {
      if (count_)
        MICA_CUDA(cudaMemcpyAsync(static_cast<int64_t*>(memory_.data()) + at, list.data(), count_ * sizeof(int64_t),
                                  cudaMemcpyHostToDevice, current_stream(device)));
      at += count_;
    }
  }
  const int64_t* operator[](size_t i) const { return static_cast<const int64_t*>(memory_.data()) + i * count_; }

 private:
  size_t count_;
  Workspace memory_;
};

template <class T>
Samples<T> samples_of(const TensorView& log_probs, const TensorView& targets, const Lists& lists, int64_t blank) {
  return {targets.ptr<const int64_t>(),
          lists[0],
          lists[1],
          lists[2],
          log_probs.ptr<const T>(),
          {log_probs.strides[0], log_probs.strides[1], log_probs.strides[2]},
          log_probs.sizes[2],
          blank};
}

template <class F>
void visit_wide(DType dtype, const F& f) {
  if (dtype == DType::Float32) return f(Tag<float>{});
  if (dtype == DType::Float64) return f(Tag<double>{});
  unsupported_dtype("ctc_loss", dtype);
}

}  // namespace

void ctc_loss(const TensorView& loss, const TensorView& alpha, const TensorView& log_probs, const TensorView& targets,
              IntArrayRef target_begins, IntArrayRef input_lengths, IntArrayRef target_lengths, int64_t blank) {
  const int device = loss.device.index();
  DeviceGuard guard(device);
  const Lists lists({target_begins, input_lengths, target_lengths}, device);
  visit_wide(log_probs.dtype, [&]<class T>(Tag<T>) {
    loss_kernel<T><<<static_cast<unsigned>(loss.numel), kCtcThreads, 0, current_stream(device)>>>(
        samples_of<T>(log_probs, targets, lists, blank), loss.ptr<T>(), alpha.ptr<T>(), alpha.strides[0],
        alpha.sizes[2], Bounds::of("ctc_loss", device));
  });
  MICA_CUDA(cudaGetLastError());
}

void ctc_loss_backward(const TensorView& grad_input, const TensorView& grad, const TensorView& log_probs,
                       const TensorView& targets, const TensorView& loss, const TensorView& alpha,
                       IntArrayRef target_begins, IntArrayRef input_lengths, IntArrayRef target_lengths, int64_t blank,
                       bool zero_infinity) {
  const int device = loss.device.index();
  DeviceGuard guard(device);
  const Lists lists({target_begins, input_lengths, target_lengths}, device);
  const int64_t width = alpha.sizes[2];
  visit_wide(log_probs.dtype, [&]<class T>(Tag<T>) {
    const Workspace betas(static_cast<size_t>(2 * width * loss.numel) * sizeof(T), device);
    gradient_kernel<T><<<static_cast<unsigned>(loss.numel), kCtcThreads, 0, current_stream(device)>>>(
        samples_of<T>(log_probs, targets, lists, blank), loss.ptr<const T>(), grad.ptr<const T>(), alpha.ptr<const T>(),
        alpha.strides[0], width, static_cast<T*>(betas.data()), grad_input.ptr<T>(), grad_input.strides[0],
        grad_input.strides[1], grad_input.strides[2], zero_infinity);
    MICA_CUDA(cudaGetLastError());
  });
}

}  // namespace mica::cuda
