// Plans of convolutions: descriptions, the engines that cuDNN's heuristic names, and which of them is fastest.
#include "backends/cuda/convolution/plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cuda/allocator.h"
#include "backends/cuda/convolution/cudnn.h"
#include "backends/cuda/runtime.h"

namespace mica::cuda {

namespace {

struct KeyHash {
  size_t operator()(const ConvolutionKey& k) const {
    const auto* words = reinterpret_cast<const uint32_t*>(&k);
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < sizeof(ConvolutionKey) / 4; ++i) h = (h ^ words[i]) * 1099511628211ull;
    return h ^ h >> 32;
  }
};
struct KeyEqual {
  bool operator()(const ConvolutionKey& a, const ConvolutionKey& b) const {
    return std::memcmp(&a, &b, sizeof(ConvolutionKey)) == 0;
  }
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

Description operation_graph(const ConvolutionKey& k, int type, cudnn::Handle handle) {
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
  const auto task = static_cast<ConvolutionTask>(k.task);
  Description operation(task == ConvolutionTask::Forward         ? cudnn::kForwardKind
                        : task == ConvolutionTask::InputGradient ? cudnn::kInputGradientKind
                                                                 : cudnn::kWeightGradientKind);
  const int first = task == ConvolutionTask::Forward         ? cudnn::kForwardAlpha
                    : task == ConvolutionTask::InputGradient ? cudnn::kInputGradientAlpha
                                                             : cudnn::kWeightGradientAlpha;
  const double one = 1, zero = 0;
  const float one_f = 1, zero_f = 0;
  if (type == cudnn::kDouble) {
    operation.set(first, cudnn::kTypeDouble, one).set(first + 1, cudnn::kTypeDouble, zero);
  } else {
    operation.set(first, cudnn::kTypeFloat, one_f).set(first + 1, cudnn::kTypeFloat, zero_f);
  }
  operation.set(first + 2, convolution);
  if (task == ConvolutionTask::Forward) {
    operation.set(cudnn::kForwardX, x).set(cudnn::kForwardW, w).set(cudnn::kForwardY, y);
  } else if (task == ConvolutionTask::InputGradient) {
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

Plan make_plan(const ConvolutionKey& k, cudnn::Handle handle, const void* image, const void* filter,
               const void* result) {
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

}  // namespace

void run_convolution(const ConvolutionKey& key, void* image, void* filter, void* result) {
  static std::mutex mutex;
  static auto* plans = new std::unordered_map<ConvolutionKey, Plan, KeyHash, KeyEqual>;
  std::lock_guard lock(mutex);
  const cudnn::Handle handle = cudnn::handle(key.device, current_stream(key.device));
  auto found = plans->find(key);
  if (found == plans->end()) found = plans->emplace(key, make_plan(key, handle, image, filter, result)).first;
  const Plan& plan = found->second;
  const Workspace workspace(std::max<size_t>(plan.workspace, 16), key.device);
  run_plan(plan, handle, image, filter, result, workspace.data());
}

}  // namespace mica::cuda
