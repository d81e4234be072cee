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
#include "backends/cuda/cudnn/description.h"
#include "backends/cuda/runtime.h"

namespace mica::cuda {

namespace {

using cudnn::Description;
using cudnn::Plan;

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
constexpr int kTried = 10;  // engines whose times are compared
constexpr int64_t kImageId = 1, kFilterId = 2, kResultId = 3;

Description convolution_graph(const ConvolutionKey& k, int type, cudnn::Handle handle) {
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
  const Description x = cudnn::tensor({kImageId, type, k.dims, image, image_strides, k.alignment}),
                    w = cudnn::tensor({kFilterId, type, k.dims, filter, filter_strides, k.alignment}),
                    y = cudnn::tensor({kResultId, type, k.dims, result, result_strides, k.alignment});
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
  std::vector<Description> operations;
  operations.push_back(std::move(operation));
  return cudnn::operation_graph(handle, operations);
}

// What cuDNN says of an engine's numbers: its notes as bits.
unsigned notes_of(const Description& config) {
  Description engine(cudnn::kEngineKind);
  cudnn::Descriptor handle = engine.get();
  int64_t count = 0;
  if (cudnn::api().get(config.get(), cudnn::kConfigEngine, cudnn::kTypeDescriptor, 1, &count, &handle) || count == 0)
    return 0;
  int notes[16] = {};
  count = 0;
  if (cudnn::api().get(handle, cudnn::kEngineNumericalNotes, cudnn::kTypeNumericalNote, 16, &count, notes)) return 0;
  unsigned bits = 0;
  for (int64_t i = 0; i < count; ++i) bits |= 1u << notes[i];
  return bits;
}

// Whether an engine may compute this convolution. Rounding of float32 inputs to TF32 has to be allowed.
bool is_allowed(const ConvolutionKey& k, const Description& config) {
  const unsigned notes = notes_of(config);
  if (k.repeatable && (notes & (1u << cudnn::kNoteNotRepeatable))) return false;
  const bool rounds = notes & (1u << cudnn::kNoteTensorCore | 1u << cudnn::kNoteDownConvertInputs);
  return k.tf32 || !rounds || static_cast<DType>(k.dtype) != DType::Float32;
}

void run_plan(const Plan& p, cudnn::Handle handle, void* image, void* filter, void* result, void* workspace) {
  void* const pointers[3] = {image, filter, result};
  const int64_t ids[3] = {kImageId, kFilterId, kResultId};
  cudnn::execute(p, handle, 3, ids, pointers, workspace);
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

Plan make_plan(const ConvolutionKey& k, cudnn::Handle handle, void* image, void* filter, void* result) {
  const int type = cudnn_type(static_cast<DType>(k.dtype));
  const Description graph = convolution_graph(k, type, handle);
  std::vector<Plan> candidates;
  for (int mode : {cudnn::kHeuristicA, cudnn::kHeuristicFallback}) {
    for (const Description& config : cudnn::engines(graph, mode)) {
      // The clock would choose now one engine, now another.
      if (static_cast<int>(candidates.size()) == (k.repeatable ? 1 : kTried)) break;
      if (!is_allowed(k, config)) continue;
      const Plan plan = cudnn::try_plan(handle, config);
      if (!plan.plan) continue;
      if (plan.workspace > kMostWorkspace) {
        cudnn::api().destroy_descriptor(plan.plan);
        continue;
      }
      candidates.push_back(plan);
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
      // The first run loads the kernel; of the others the shortest counts, since something else may disturb one.
      float ms = INFINITY;
      for (int turn = 0; turn < 4; ++turn) {
        MICA_CUDA(cudaEventRecord(from, stream));
        run_plan(candidates[i], handle, image, filter, result, workspace.data());
        MICA_CUDA(cudaEventRecord(to, stream));
        MICA_CUDA(cudaEventSynchronize(to));
        float taken = 0;
        MICA_CUDA(cudaEventElapsedTime(&taken, from, to));
        if (turn > 0) ms = std::min(ms, taken);
        if (turn > 0 && taken > 4 * shortest) break;
      }
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
  static auto* plans = new std::unordered_map<ConvolutionKey, Plan, KeyHash, KeyEqual>;
  const std::lock_guard guard(cudnn::lock());
  const cudnn::Handle handle = cudnn::handle(key.device, current_stream(key.device));
  auto found = plans->find(key);
  if (found == plans->end()) found = plans->emplace(key, make_plan(key, handle, image, filter, result)).first;
  const Plan& plan = found->second;
  const Workspace workspace(std::max<size_t>(plan.workspace, 16), key.device);
  run_plan(plan, handle, image, filter, result, workspace.data());
}

}  // namespace mica::cuda
