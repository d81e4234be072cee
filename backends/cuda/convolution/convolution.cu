// Convolutions and their gradients through cuDNN. Descriptions and the algorithm that its heuristic names are kept for
// each problem; weights in another order of memory than the images are brought into theirs first.
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backends/cuda/allocator.h"
#include "backends/cuda/convolution/cudnn.h"
#include "backends/cuda/flags.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

enum class Task : int { Forward, InputGradient, WeightGradient };

constexpr int kMaxDims = 5;

// A tensor as cuDNN sees it: at least two spatial dimensions.
struct Shape {
  int sizes[kMaxDims], strides[kMaxDims];
};
Shape shape_of(const TensorView& t, int dims) {
  Shape s{};
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

struct Key {
  int task, device, dtype, dims, groups, channels_last, tf32;
  Shape image, result;
  int filter[kMaxDims], stride[3], padding[3], dilation[3];
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    const auto* words = reinterpret_cast<const uint32_t*>(&k);
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < sizeof(Key) / 4; ++i) h = (h ^ words[i]) * 1099511628211ull;
    return h ^ h >> 32;
  }
};
struct KeyEqual {
  bool operator()(const Key& a, const Key& b) const { return std::memcmp(&a, &b, sizeof(Key)) == 0; }
};

struct Plan {
  cudnn::Tensor image = nullptr, result = nullptr;
  cudnn::Filter filter = nullptr;
  cudnn::Convolution convolution = nullptr;
  int algorithm = 0;
  size_t workspace = 0;
};

int cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return cudnn::kFloat;
    case DType::Float64:
      return cudnn::kDouble;
    case DType::Float16:
      return cudnn::kHalf;
    case DType::BFloat16:
      return cudnn::kBFloat16;
    default:
      unsupported_dtype("convolution", dtype);
  }
}

constexpr size_t kMostWorkspace = size_t{2} << 30;

Plan make_plan(const Key& k, cudnn::Handle handle) {
  const cudnn::Api& api = cudnn::api();
  Plan p;
  const int type = cudnn_type(static_cast<DType>(k.dtype));
  cudnn::check(api.create_tensor(&p.image), "cudnnCreateTensorDescriptor");
  cudnn::check(api.create_tensor(&p.result), "cudnnCreateTensorDescriptor");
  cudnn::check(api.create_filter(&p.filter), "cudnnCreateFilterDescriptor");
  cudnn::check(api.create_convolution(&p.convolution), "cudnnCreateConvolutionDescriptor");
  cudnn::check(api.set_tensor(p.image, type, k.dims, k.image.sizes, k.image.strides), "cudnnSetTensorNdDescriptor");
  cudnn::check(api.set_tensor(p.result, type, k.dims, k.result.sizes, k.result.strides), "cudnnSetTensorNdDescriptor");
  cudnn::check(api.set_filter(p.filter, type, k.channels_last ? cudnn::kChannelsLast : cudnn::kChannelsFirst, k.dims,
                              k.filter),
               "cudnnSetFilterNdDescriptor");
  cudnn::check(api.set_convolution(p.convolution, k.dims - 2, k.padding, k.stride, k.dilation,
                                   cudnn::kCrossCorrelation, type == cudnn::kDouble ? cudnn::kDouble : cudnn::kFloat),
               "cudnnSetConvolutionNdDescriptor");
  cudnn::check(api.set_groups(p.convolution, k.groups), "cudnnSetConvolutionGroupCount");
  const int math = type == cudnn::kFloat    ? (k.tf32 ? cudnn::kDefaultMath : cudnn::kFmaOnly)
                   : type == cudnn::kDouble ? cudnn::kDefaultMath
                                            : cudnn::kTensorOps;
  cudnn::check(api.set_math(p.convolution, math), "cudnnSetConvolutionMathType");
  cudnn::AlgorithmChoice found[8];
  int count = 0;
  if (k.task == static_cast<int>(Task::Forward)) {
    cudnn::check(api.choose_forward(handle, p.image, p.filter, p.convolution, p.result, 8, &count, found),
                 "cudnnGetConvolutionForwardAlgorithm_v7");
  } else if (k.task == static_cast<int>(Task::InputGradient)) {
    cudnn::check(api.choose_input(handle, p.filter, p.result, p.convolution, p.image, 8, &count, found),
                 "cudnnGetConvolutionBackwardDataAlgorithm_v7");
  } else {
    cudnn::check(api.choose_weight(handle, p.image, p.result, p.convolution, p.filter, 8, &count, found),
                 "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
  }
  int chosen = -1;
  for (int i = 0; i < count && chosen < 0; ++i)
    if (found[i].status == 0 && found[i].memory <= kMostWorkspace) chosen = i;
  MICA_CHECK(chosen >= 0, "cuDNN has no algorithm for this convolution");
  p.algorithm = found[chosen].algorithm;
  p.workspace = found[chosen].memory;
  cudnn::check(api.set_math(p.convolution, found[chosen].math), "cudnnSetConvolutionMathType");
  return p;
}

bool channels_innermost(const TensorView& t) {
  return t.ndim >= 4 && t.strides[1] == 1 && (t.sizes[1] > 1 || t.strides[t.ndim - 1] == t.sizes[1]);
}

template <class T>
struct CopyElements {
  Places<2> places;
  T* to;
  const T* from;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    places.at(i, at);
    to[at[0]] = from[at[1]];
  }
};
void copy_elements(const TensorView& to, const TensorView& from) {
  visit_size(element_size(to.dtype), [&]<class T>(Tag<T>) {
    for_each(to.device.index, to.numel, CopyElements<T>{places_of(to, from), to.ptr<T>(), from.ptr<const T>()});
  });
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
    memory_.emplace(static_cast<size_t>(given.numel * element_size(given.dtype)), given.device.index);
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
  Places<2> places;  // of the result, and which channel
  T* out;
  const T* bias;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    places.at(i, at);
    out[at[0]] = convert<T>(convert<compute_t<T>>(out[at[0]]) + convert<compute_t<T>>(bias[at[1]]));
  }
};
void add_bias(const TensorView& out, const TensorView& bias) {
  if (!bias.defined()) return;
  Places<2> places;
  int order[kMaxDims];
  for (int d = 0; d < out.ndim; ++d) order[d] = out.ndim - 1 - d;
  std::stable_sort(order, order + out.ndim, [&](int a, int b) { return out.strides[a] < out.strides[b]; });
  for (int o = 0; o < out.ndim; ++o) places.add(out.sizes[order[o]], {out.strides[order[o]], order[o] == 1 ? 1 : 0});
  places.finish();
  visit_floating("convolution", out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index, out.numel, AddBias<T>{places, out.ptr<T>(), bias.ptr<const T>()});
  });
}

void run(Task task, const TensorView& image, const TensorView& filter, const TensorView& result, IntArrayRef stride,
         IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  const int device = image.device.index;
  DeviceGuard guard(device);
  const int dims = std::max(image.ndim, 4);
  Key key;
  std::memset(static_cast<void*>(&key), 0, sizeof key);
  key.task = static_cast<int>(task);
  key.device = device;
  key.dtype = static_cast<int>(image.dtype);
  key.dims = dims;
  key.groups = static_cast<int>(groups);
  key.channels_last = channels_innermost(image) || channels_innermost(result);
  key.tf32 = flag(Flag::ConvolutionTf32);
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
  if (task != Task::WeightGradient) ordered.read();
  static std::mutex mutex;
  static auto* plans = new std::unordered_map<Key, Plan, KeyHash, KeyEqual>;
  {
    std::lock_guard lock(mutex);
    const cudnn::Handle handle = cudnn::handle(device, current_stream(device));
    auto found = plans->find(key);
    if (found == plans->end()) found = plans->emplace(key, make_plan(key, handle)).first;
    const Plan& plan = found->second;
    const cudnn::Api& api = cudnn::api();
    const Workspace workspace(std::max<size_t>(plan.workspace, 16), device);
    const double one = 1, zero = 0;
    const float one_f = 1, zero_f = 0;
    const bool wide = image.dtype == DType::Float64;
    const void *alpha = wide ? static_cast<const void*>(&one) : &one_f,
               *beta = wide ? static_cast<const void*>(&zero) : &zero_f;
    if (task == Task::Forward) {
      cudnn::check(api.forward(handle, alpha, plan.image, image.data, plan.filter, ordered.data(), plan.convolution,
                               plan.algorithm, workspace.data(), plan.workspace, beta, plan.result, result.data),
                   "cudnnConvolutionForward");
    } else if (task == Task::InputGradient) {
      cudnn::check(
          api.input_gradient(handle, alpha, plan.filter, ordered.data(), plan.result, result.data, plan.convolution,
                             plan.algorithm, workspace.data(), plan.workspace, beta, plan.image, image.data),
          "cudnnConvolutionBackwardData");
    } else {
      cudnn::check(
          api.weight_gradient(handle, alpha, plan.image, image.data, plan.result, result.data, plan.convolution,
                              plan.algorithm, workspace.data(), plan.workspace, beta, plan.filter, ordered.data()),
          "cudnnConvolutionBackwardFilter");
    }
  }
  if (task == Task::WeightGradient) ordered.write_back();
}

void clear(const TensorView& t) {
  MICA_CUDA(cudaMemsetAsync(t.data, 0, static_cast<size_t>(t.numel * element_size(t.dtype)),
                            current_stream(t.device.index)));
}

}  // namespace

void convolution(const TensorView& out, const TensorView& input, const TensorView& weight, const TensorView& bias,
                 IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  if (out.numel == 0) return;
  if (input.numel == 0 || weight.numel == 0) {
    clear(out);
  } else {
    run(Task::Forward, input, weight, out, stride, padding, dilation, groups);
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
    run(Task::InputGradient, grad_input, weight, grad, stride, padding, dilation, groups);
  }
  add_bias(grad_input, bias);
}

void convolution_weight_gradient(const TensorView& grad_weight, const TensorView& grad, const TensorView& input,
                                 IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  if (grad_weight.numel == 0) return;
  if (grad.numel == 0 || input.numel == 0) return clear(grad_weight);
  run(Task::WeightGradient, input, grad_weight, grad, stride, padding, dilation, groups);
}

}  // namespace mica::cuda
