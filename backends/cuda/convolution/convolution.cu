// Convolutions and their gradients through cuDNN. Weights whose order of memory differs from that of the images are
// brought into that order first.
#include <cstring>
#include <optional>

#include "backends/cuda/context.h"
#include "backends/cuda/convolution/plan.h"
#include "backends/cuda/copy_elements.h"
#include "backends/cuda/flags.h"
#include "backends/cuda/normalization/channels.cuh"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

// A tensor as cuDNN sees it: at least two spatial dimensions.
ConvolutionShape shape_of(const TensorView& t, int dims) {
  ConvolutionShape s{};
  for (int d = 0; d < dims; ++d) {
    // A sequence is an image of one row.
    const int from = t.ndim == dims ? d : d < 2 ? d : d == 2 ? -1 : d - 1;
    MICA_CHECK(from < 0 || (t.sizes[from] <= INT32_MAX && t.strides[from] <= INT32_MAX),
               "a convolution on CUDA takes fewer than 2^31 elements along a dimension");
    s.sizes[d] = from < 0 ? 1 : static_cast<int>(t.sizes[from]);
    s.strides[d] = from < 0 ? static_cast<int>(t.sizes[2]) * static_cast<int>(std::max<int64_t>(t.strides[2], 1))
                            : static_cast<int>(t.strides[from]);
  }
  return s;
}

bool channels_innermost(const TensorView& t) {
  return t.ndim >= 4 && t.strides[1] == 1 && (t.sizes[1] > 1 || t.strides[t.ndim - 1] == t.sizes[1]);
}

// A filter in the order that the images have: itself, or memory of its own.
class OrderedFilter {
 public:
  OrderedFilter(const TensorView& given, bool channels_last) : given_(given), view_(given) {
    int64_t step = 1;
    strides_[0] = given.numel / std::max<int64_t>(given.sizes[0], 1);
    if (channels_last) {
      strides_[1] = 1;
      step = given.sizes[1];
    }
    for (int d = given.ndim - 1; d >= 2; --d) strides_[d] = step, step *= given.sizes[d];
    if (!channels_last) strides_[1] = step;
    bool same = true;
    for (int d = 0; d < given.ndim; ++d) same = same && (given.sizes[d] == 1 || given.strides[d] == strides_[d]);
    if (same) return;
    memory_.emplace(static_cast<size_t>(given.numel * element_size(given.dtype)), given.device.index());
    view_.strides = strides_;
    view_.data = memory_->data();
  }
  OrderedFilter(const OrderedFilter&) = delete;
  void read() const {
    if (memory_) copy_elements(view_, given_);
  }
  void write_back() const {
    if (memory_) copy_elements(given_, view_);
  }
  void* data() const { return view_.data; }

 private:
  TensorView given_, view_;
  int64_t strides_[kMaxDims];
  std::optional<Workspace> memory_;
};

template <class T>
struct AddBias {
  Places<2> places;  // places of the result, and its channels
  T* out;
  const T* bias;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    places.at(i, at);
    out[at[0]] = convert<T>(convert<compute_t<T>>(out[at[0]]) + convert<compute_t<T>>(bias[at[1]]));
  }
};
// The same in vectors, of a plane or of neighbouring channels, which have a bias each.
template <class T>
struct AddBiasToRuns {
  T* out;
  const T* bias;
  template <int V>
  __device__ void run(int64_t i, int64_t channel, bool side_by_side) const {
    auto piece = *reinterpret_cast<const Vector<T, V>*>(out + i);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const auto b = convert<compute_t<T>>(bias[side_by_side ? channel + j : channel]);
      piece.item[j] = convert<T>(convert<compute_t<T>>(piece.item[j]) + b);
    }
    *reinterpret_cast<Vector<T, V>*>(out + i) = piece;
  }
};
void add_bias(const TensorView& out, const TensorView& bias) {
  if (!bias.defined()) return;
  const bool last = channels_innermost(out);
  if ((last || is_contiguous(out)) && !is_complex(out.dtype)) {
    const int64_t channels = out.sizes[1], batch = out.sizes[0], places = out.numel / (batch * channels);
    const Shape shape = last ? Shape{batch * places, channels, 1} : Shape{batch, channels, places};
    return visit_floating("convolution", out.dtype, [&]<class T>(Tag<T>) {
      apply<T>(shape, AddBiasToRuns<T>{out.ptr<T>(), bias.ptr<const T>()}, aligned16({out.data}), out.device.index());
    });
  }
  Places<2> places;
  int order[kMaxDims];
  for (int d = 0; d < out.ndim; ++d) order[d] = out.ndim - 1 - d;
  std::stable_sort(order, order + out.ndim, [&](int a, int b) { return out.strides[a] < out.strides[b]; });
  for (int o = 0; o < out.ndim; ++o) places.add(out.sizes[order[o]], {out.strides[order[o]], order[o] == 1 ? 1 : 0});
  places.finish();
  visit_floating_complex("convolution", out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel, AddBias<T>{places, out.ptr<T>(), bias.ptr<const T>()});
  });
}

void clear(const TensorView& t) {
  MICA_CUDA(cudaMemsetAsync(t.data, 0, static_cast<size_t>(t.numel * element_size(t.dtype)),
                            current_stream(t.device.index())));
}

// A tensor of its own for the time of a call, dense.
class OwnTensor {
 public:
  OwnTensor(const TensorView& like, const int64_t* sizes, DType dtype, bool channels_last) : view(like) {
    int64_t step = channels_last ? sizes[1] : 1;
    view.numel = 1;
    for (int d = like.ndim - 1; d >= 0; --d) {
      sizes_[d] = sizes[d];
      view.numel *= sizes[d];
      if (d == 1 && channels_last) {
        strides_[d] = 1;
      } else {
        strides_[d] = step;
        step *= sizes[d];
      }
    }
    view.dtype = dtype;
    view.sizes = sizes_;
    view.strides = strides_;
    memory_.emplace(static_cast<size_t>(view.numel * element_size(dtype)), like.device.index());
    view.data = memory_->data();
  }
  OwnTensor(const OwnTensor&) = delete;
  TensorView view;

 private:
  int64_t sizes_[kMaxDims], strides_[kMaxDims];
  std::optional<Workspace> memory_;
};

void run(ConvolutionTask task, const TensorView& image, const TensorView& filter, const TensorView& result,
         IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups);

// A transposed convolution may have more padding behind its result than a stride. Then the convolution whose gradient
// it is has results beyond the given ones; they are zeros, or are left out. Returns false where there are none.
bool run_padded(ConvolutionTask task, const TensorView& image, const TensorView& filter, const TensorView& result,
                IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  int64_t sizes[kMaxDims];
  bool differs = false;
  for (int d = 0; d < image.ndim; ++d) {
    sizes[d] = result.sizes[d];
    if (d < 2) continue;
    const auto k = static_cast<size_t>(d - 2);
    sizes[d] = (image.sizes[d] + 2 * padding[k] - dilation[k] * (filter.sizes[d] - 1) - 1) / stride[k] + 1;
    differs = differs || sizes[d] > result.sizes[d];
  }
  if (!differs) return false;
  const OwnTensor whole(result, sizes, result.dtype, channels_innermost(image));
  TensorView there = whole.view;
  there.sizes = result.sizes;
  there.numel = result.numel;
  if (task != ConvolutionTask::Forward) {
    clear(whole.view);
    copy_elements(there, result);
  }
  run(task, image, filter, whole.view, stride, padding, dilation, groups);
  if (task == ConvolutionTask::Forward) copy_elements(result, there);
  return true;
}

// The real or the imaginary parts of a tensor, dense.
class Parts {
 public:
  Parts(const TensorView& of, bool imaginary, bool read)
      : own_(of, of.sizes, of.dtype == DType::Complex64 ? DType::Float32 : DType::Float64, false) {
    if (!read) return;
    TensorView from = of;
    int64_t strides[kMaxDims];
    for (int d = 0; d < of.ndim; ++d) strides[d] = 2 * of.strides[d];
    from.dtype = own_.view.dtype;
    from.strides = strides;
    from.data = static_cast<char*>(of.data) + (imaginary ? element_size(from.dtype) : 0);
    copy_elements(own_.view, from);
  }
  const TensorView& view() const { return own_.view; }

 private:
  OwnTensor own_;
};

template <class R>
struct JoinParts {
  Complex<R>* out;
  const R *both_real, *both_imaginary, *first, *second;
  __device__ void operator()(int64_t i) const {
    out[i] = Complex<R>(both_real[i] - both_imaginary[i], first[i] + second[i]);
  }
};

// Four convolutions of real numbers, because a convolution and its gradients are linear in both inputs.
void run_complex(ConvolutionTask task, const TensorView& image, const TensorView& filter, const TensorView& result,
                 IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  const bool to_image = task == ConvolutionTask::InputGradient, to_filter = task == ConvolutionTask::WeightGradient;
  const TensorView &a = to_image ? result : image, &b = to_filter ? result : filter,
                   &out = to_image    ? image
                          : to_filter ? filter
                                      : result;
  const Parts a_real(a, false, true), a_imaginary(a, true, true), b_real(b, false, true), b_imaginary(b, true, true);
  const Parts rr(out, false, false), ii(out, false, false), ri(out, false, false), ir(out, false, false);
  const auto product = [&](const Parts& x, const Parts& y, const Parts& to) {
    const TensorView &i = to_image ? to.view() : x.view(), &f = to_filter ? to.view() : y.view(),
                     &r = to_image    ? x.view()
                          : to_filter ? y.view()
                                      : to.view();
    run(task, i, f, r, stride, padding, dilation, groups);
  };
  product(a_real, b_real, rr);
  product(a_imaginary, b_imaginary, ii);
  product(a_real, b_imaginary, ri);
  product(a_imaginary, b_real, ir);
  const OwnTensor joined(out, out.sizes, out.dtype, false);
  const auto join = [&]<class R>(R) {
    for_each(out.device.index(), out.numel,
             JoinParts<R>{static_cast<Complex<R>*>(joined.view.data), rr.view().ptr<const R>(),
                          ii.view().ptr<const R>(), ri.view().ptr<const R>(), ir.view().ptr<const R>()});
  };
  out.dtype == DType::Complex64 ? join(0.0f) : join(0.0);
  copy_elements(out, joined.view);
}

void run(ConvolutionTask task, const TensorView& image, const TensorView& filter, const TensorView& result,
         IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  const int device = image.device.index();
  DeviceGuard guard(device);
  if (is_complex(image.dtype)) return run_complex(task, image, filter, result, stride, padding, dilation, groups);
  if (run_padded(task, image, filter, result, stride, padding, dilation, groups)) return;
  const int dims = std::max(image.ndim, 4);
  ConvolutionKey key;
  std::memset(static_cast<void*>(&key), 0, sizeof key);
  key.task = static_cast<int>(task);
  key.device = device;
  key.dtype = static_cast<int>(image.dtype);
  key.dims = dims;
  key.groups = static_cast<int>(groups);
  key.channels_last = channels_innermost(image) || channels_innermost(result);
  key.tf32 = flag(Flag::ConvolutionTf32);
  key.repeatable = flag(Flag::Deterministic) || flag(Flag::CudnnDeterministic);
  key.benchmark = flag(Flag::CudnnBenchmark);
  key.image = shape_of(image, dims);
  key.result = shape_of(result, dims);
  for (int d = 0; d < dims; ++d) key.filter[d] = shape_of(filter, dims).sizes[d];
  for (int d = 0; d < dims - 2; ++d) {
    const bool added = image.ndim == 3 && d == 0;
    const auto from = static_cast<size_t>(image.ndim == 3 ? d - 1 : d);
    key.stride[d] = added ? 1 : static_cast<int>(stride[from]);
    key.padding[d] = added ? 0 : static_cast<int>(padding[from]);
    key.dilation[d] = added ? 1 : static_cast<int>(dilation[from]);
  }
  const OrderedFilter ordered(filter, key.channels_last);
  if (task != ConvolutionTask::WeightGradient) ordered.read();
  uintptr_t bits = 16;
  for (const void* p : {static_cast<const void*>(image.data), static_cast<const void*>(ordered.data()),
                        static_cast<const void*>(result.data)})
    bits |= reinterpret_cast<uintptr_t>(p);
  key.alignment = static_cast<int>(bits & (~bits + 1));
  run_convolution(key, image.data, ordered.data(), result.data);
  if (task == ConvolutionTask::WeightGradient) ordered.write_back();
}

}  // namespace

void convolution(const TensorView& out, const TensorView& input, const TensorView& weight, const TensorView& bias,
                 IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  if (out.numel == 0) return;
  if (input.numel == 0 || weight.numel == 0) {
    clear(out);
  } else {
    run(ConvolutionTask::Forward, input, weight, out, stride, padding, dilation, groups);
  }
  add_bias(out, bias);
}

void convolution_input_gradient(const TensorView& grad_input, const TensorView& grad, const TensorView& weight,
                                const TensorView& bias, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                int64_t groups) {
  if (grad_input.numel == 0) return;
  if (grad.numel == 0 || weight.numel == 0) {
    clear(grad_input);
  } else {
    run(ConvolutionTask::InputGradient, grad_input, weight, grad, stride, padding, dilation, groups);
  }
  add_bias(grad_input, bias);
}

void convolution_weight_gradient(const TensorView& grad_weight, const TensorView& grad, const TensorView& input,
                                 IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  if (grad_weight.numel == 0) return;
  if (grad.numel == 0 || input.numel == 0) return clear(grad_weight);
  run(ConvolutionTask::WeightGradient, input, grad_weight, grad, stride, padding, dilation, groups);
}

}  // namespace mica::cuda
