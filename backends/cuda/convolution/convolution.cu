// Convolutions and their gradients through cuDNN. A plan is kept for each problem: of the engines that its heuristic
// names first, the one that was fastest when the problem was first met. Weights in another order of memory than the
// images are brought into theirs first.
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
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
  int task, device, dtype, dims, groups, channels_last, tf32, alignment;
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
  cudnn::Descriptor plan = nullptr;
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
constexpr int kTried = 6;  // engines whose times are compared
constexpr int64_t kImageId = 1, kFilterId = 2, kResultId = 3;

// A description under construction, destroyed unless it is let go.
class Description {
 public:
  explicit Description(int kind) {
    cudnn::check(cudnn::api().create_descriptor(kind, &handle_), "cudnnBackendCreateDescriptor");
  }
  Description(Description&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Description() {
    if (handle_) cudnn::api().destroy_descriptor(handle_);
  }
  Description& set(int attribute, int type, int64_t count, const void* values) {
    cudnn::check(cudnn::api().set(handle_, attribute, type, count, values), "cudnnBackendSetAttribute");
    return *this;
  }
  template <class T>
  Description& set(int attribute, int type, const T& value) {
    return set(attribute, type, 1, &value);
  }
  Description& set(int attribute, const Description& other) {
    return set(attribute, cudnn::kTypeDescriptor, 1, &other.handle_);
  }
  Description& finish() {
    cudnn::check(cudnn::api().finalize(handle_), "cudnnBackendFinalize");
    return *this;
  }
  bool try_finish() { return cudnn::api().finalize(handle_) == 0; }
  cudnn::Descriptor get() const { return handle_; }
  cudnn::Descriptor release() { return std::exchange(handle_, nullptr); }

 private:
  cudnn::Descriptor handle_ = nullptr;
};

Description tensor(int64_t id, int type, int dims, const int64_t* sizes, const int64_t* strides, int64_t alignment) {
  Description d(cudnn::kTensorKind);
  const bool is_virtual = false;
  d.set(cudnn::kTensorDataType, cudnn::kTypeDataType, type)
      .set(cudnn::kTensorSizes, cudnn::kTypeInt64, dims, sizes)
      .set(cudnn::kTensorStrides, cudnn::kTypeInt64, dims, strides)
      .set(cudnn::kTensorId, cudnn::kTypeInt64, id)
      .set(cudnn::kTensorAlignment, cudnn::kTypeInt64, alignment)
      .set(cudnn::kTensorVirtual, cudnn::kTypeBoolean, is_virtual)
      .finish();
  return d;
}

Description operation_graph(const Key& k, int type, cudnn::Handle handle) {
  int64_t image[kMaxDims], image_strides[kMaxDims], result[kMaxDims], result_strides[kMaxDims], filter[kMaxDims],
      filter_strides[kMaxDims], stride[3], padding[3], dilation[3];
  for (int d = 0; d < k.dims; ++d) {
    image[d] = k.image.sizes[d], image_strides[d] = k.image.strides[d];
    result[d] = k.result.sizes[d], result_strides[d] = k.result.strides[d];
    filter[d] = k.filter[d];
  }
  int64_t step = k.channels_last ? filter[1] : 1;
  for (int d = k.dims - 1; d >= 2; --d) filter_strides[d] = step, step *= filter[d];
  filter_strides[1] = k.channels_last ? 1 : step;
  filter_strides[0] = k.channels_last ? step : step * filter[1];
  const int64_t dims = k.dims - 2;
  for (int d = 0; d < dims; ++d) stride[d] = k.stride[d], padding[d] = k.padding[d], dilation[d] = k.dilation[d];
  const Description x = tensor(kImageId, type, k.dims, image, image_strides, k.alignment),
                    w = tensor(kFilterId, type, k.dims, filter, filter_strides, k.alignment),
                    y = tensor(kResultId, type, k.dims, result, result_strides, k.alignment);
  const int compute = type == cudnn::kDouble ? cudnn::kDouble : cudnn::kFloat, mode = cudnn::kCrossCorrelation;
  Description convolution(cudnn::kConvolutionKind);
  convolution.set(cudnn::kConvolutionCompute, cudnn::kTypeDataType, compute)
      .set(cudnn::kConvolutionMode, cudnn::kTypeConvolutionMode, mode)
      .set(cudnn::kConvolutionDims, cudnn::kTypeInt64, dims)
      .set(cudnn::kConvolutionDilations, cudnn::kTypeInt64, dims, dilation)
      .set(cudnn::kConvolutionStrides, cudnn::kTypeInt64, dims, stride)
      .set(cudnn::kConvolutionPaddingBefore, cudnn::kTypeInt64, dims, padding)
      .set(cudnn::kConvolutionPaddingAfter, cudnn::kTypeInt64, dims, padding)
      .finish();
  const auto task = static_cast<Task>(k.task);
  Description operation(task == Task::Forward         ? cudnn::kForwardKind
                        : task == Task::InputGradient ? cudnn::kInputGradientKind
                                                      : cudnn::kWeightGradientKind);
  const int first = task == Task::Forward         ? cudnn::kForwardAlpha
                    : task == Task::InputGradient ? cudnn::kInputGradientAlpha
                                                  : cudnn::kWeightGradientAlpha;
  const double one = 1, zero = 0;
  const float one_f = 1, zero_f = 0;
  if (type == cudnn::kDouble) {
    operation.set(first, cudnn::kTypeDouble, one).set(first + 1, cudnn::kTypeDouble, zero);
  } else {
    operation.set(first, cudnn::kTypeFloat, one_f).set(first + 1, cudnn::kTypeFloat, zero_f);
  }
  operation.set(first + 2, convolution);
  if (task == Task::Forward) {
    operation.set(cudnn::kForwardX, x).set(cudnn::kForwardW, w).set(cudnn::kForwardY, y);
  } else if (task == Task::InputGradient) {
    operation.set(cudnn::kInputGradientDx, x).set(cudnn::kInputGradientW, w).set(cudnn::kInputGradientDy, y);
  } else {
    operation.set(cudnn::kWeightGradientX, x).set(cudnn::kWeightGradientDw, w).set(cudnn::kWeightGradientDy, y);
  }
  operation.finish();
  Description graph(cudnn::kGraphKind);
  graph.set(cudnn::kGraphHandle, cudnn::kTypeHandle, handle).set(cudnn::kGraphOperations, operation).finish();
  return graph;
}

// The engines that a heuristic names, the most promising first.
std::vector<Description> engines(const Description& graph, int mode) {
  Description heuristic(cudnn::kHeuristicKind);
  heuristic.set(cudnn::kHeuristicGraph, graph).set(cudnn::kHeuristicMode, cudnn::kTypeHeuristicMode, mode);
  if (!heuristic.try_finish()) return {};
  constexpr int kMost = 16;
  std::vector<Description> found;
  cudnn::Descriptor handles[kMost];
  for (auto& h : handles) {
    found.emplace_back(cudnn::kEngineConfigKind);
    h = found.back().get();
  }
  int64_t count = 0;
  if (cudnn::api().get(heuristic.get(), cudnn::kHeuristicResults, cudnn::kTypeDescriptor, kMost, &count, handles))
    count = 0;
  while (static_cast<int64_t>(found.size()) > count) found.pop_back();
  return found;
}

// Whether an engine rounds float32 inputs to TF32, which has to be allowed.
bool rounds_inputs(const Description& config) {
  Description engine(2);  // an engine
  cudnn::Descriptor handle = engine.get();
  int64_t count = 0;
  if (cudnn::api().get(config.get(), cudnn::kConfigEngine, cudnn::kTypeDescriptor, 1, &count, &handle) || count == 0)
    return false;
  int notes[16] = {};
  count = 0;
  if (cudnn::api().get(handle, cudnn::kEngineNumericalNotes, cudnn::kTypeNumericalNote, 16, &count, notes))
    return false;
  for (int64_t i = 0; i < count; ++i)
    if (notes[i] == cudnn::kNoteTensorCore || notes[i] == cudnn::kNoteDownConvertInputs) return true;
  return false;
}

void run_plan(const Plan& p, cudnn::Handle handle, const void* image, const void* filter, const void* result,
              void* workspace) {
  const void* pointers[3] = {image, filter, result};
  const int64_t ids[3] = {kImageId, kFilterId, kResultId};
  Description pack(cudnn::kVariantPackKind);
  pack.set(cudnn::kPackIds, cudnn::kTypeInt64, 3, ids)
      .set(cudnn::kPackPointers, cudnn::kTypePointer, 3, pointers)
      .set(cudnn::kPackWorkspace, cudnn::kTypePointer, workspace)
      .finish();
  cudnn::check(cudnn::api().execute(handle, p.plan, pack.get()), "cudnnBackendExecute");
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

Plan make_plan(const Key& k, cudnn::Handle handle, const void* image, const void* filter, const void* result) {
  const int type = cudnn_type(static_cast<DType>(k.dtype));
  const Description graph = operation_graph(k, type, handle);
  std::vector<Plan> candidates;
  for (int mode : {cudnn::kHeuristicA, cudnn::kHeuristicFallback}) {
    for (const Description& config : engines(graph, mode)) {
      if (static_cast<int>(candidates.size()) == kTried) break;
      if (type == cudnn::kFloat && !k.tf32 && rounds_inputs(config)) continue;
      Description plan(cudnn::kPlanKind);
      plan.set(cudnn::kPlanHandle, cudnn::kTypeHandle, handle).set(cudnn::kPlanConfig, config);
      if (!plan.try_finish()) continue;
      int64_t bytes = 0, count = 0;
      if (cudnn::api().get(plan.get(), cudnn::kPlanWorkspace, cudnn::kTypeInt64, 1, &count, &bytes)) continue;
      if (static_cast<size_t>(bytes) > kMostWorkspace) continue;
      candidates.push_back({plan.release(), static_cast<size_t>(bytes)});
    }
    if (!candidates.empty()) break;
  }
  MICA_CHECK(!candidates.empty(), "cuDNN has no engine for this convolution");
  const cudaStream_t stream = current_stream(k.device);
  size_t best = 0;
  if (candidates.size() > 1 && !is_capturing(stream)) {
    float shortest = INFINITY;
    cudaEvent_t from, to;
    MICA_CUDA(cudaEventCreate(&from));
    MICA_CUDA(cudaEventCreate(&to));
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Workspace workspace(std::max<size_t>(candidates[i].workspace, 16), k.device);
      // The second run of each is measured: the first loads the kernel.
      for (int turn = 0; turn < 2; ++turn) {
        MICA_CUDA(cudaEventRecord(from, stream));
        run_plan(candidates[i], handle, image, filter, result, workspace.data());
        MICA_CUDA(cudaEventRecord(to, stream));
      }
      MICA_CUDA(cudaEventSynchronize(to));
      float ms = 0;
      MICA_CUDA(cudaEventElapsedTime(&ms, from, to));
      if (ms < shortest) shortest = ms, best = i;
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
  }
  for (size_t i = 0; i < candidates.size(); ++i)
    if (i != best) cudnn::api().destroy_descriptor(candidates[i].plan);
  return candidates[best];
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
  uintptr_t bits = 16;
  for (const void* p : {static_cast<const void*>(image.data), static_cast<const void*>(ordered.data()),
                        static_cast<const void*>(result.data)})
    bits |= reinterpret_cast<uintptr_t>(p);
  key.alignment = static_cast<int>(bits & (~bits + 1));
  static std::mutex mutex;
  static auto* plans = new std::unordered_map<Key, Plan, KeyHash, KeyEqual>;
  {
    std::lock_guard lock(mutex);
    const cudnn::Handle handle = cudnn::handle(device, current_stream(device));
    auto found = plans->find(key);
    if (found == plans->end())
      found = plans->emplace(key, make_plan(key, handle, image.data, ordered.data(), result.data)).first;
    const Plan& plan = found->second;
    const Workspace workspace(std::max<size_t>(plan.workspace, 16), device);
    run_plan(plan, handle, image.data, ordered.data(), result.data, workspace.data());
  }
  if (task == Task::WeightGradient) ordered.write_back();
}

void clear(const TensorView& t) {
  MICA_CUDA(
      cudaMemsetAsync(t.data, 0, static_cast<size_t>(t.numel * element_size(t.dtype)), current_stream(t.device.index)));
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
