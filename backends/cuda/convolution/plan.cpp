// Plans of convolutions: descriptions, the engines that cuDNN's heuristic names, and which of them is taken.
#include "backends/cuda/convolution/plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cuda/allocator.h"
#include "backends/cuda/convolution/choices.h"
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

// cuDNN's notes about an engine, on its numbers or its behaviour, as bits.
unsigned notes_of(const Description& config, int attribute, int type) {
  Description engine(cudnn::kEngineKind);
  cudnn::Descriptor handle = engine.get();
  int64_t count = 0;
  if (cudnn::api().get(config.get(), cudnn::kConfigEngine, cudnn::kTypeDescriptor, 1, &count, &handle) || count == 0)
    return 0;
  int notes[16] = {};
  count = 0;
  if (cudnn::api().get(handle, attribute, type, 16, &count, notes)) return 0;
  unsigned bits = 0;
  for (int64_t i = 0; i < count; ++i) bits |= 1u << notes[i];
  return bits;
}

// Whether cuDNN compiles this engine's kernels as a plan of it is made.
bool is_compiled(const Description& config) {
  return notes_of(config, cudnn::kEngineBehaviourNotes, cudnn::kTypeBehaviourNote) & 1u << cudnn::kNoteCompiled;
}

// Whether an engine may compute this convolution. Rounding of float32 inputs to TF32 has to be allowed.
bool is_allowed(const ConvolutionKey& k, const Description& config) {
  const unsigned notes = notes_of(config, cudnn::kEngineNumericalNotes, cudnn::kTypeNumericalNote);
  if (k.repeatable && (notes & (1u << cudnn::kNoteNotRepeatable))) return false;
  const bool rounds = notes & (1u << cudnn::kNoteTensorCore | 1u << cudnn::kNoteDownConvertInputs);
  return k.tf32 || !rounds || static_cast<DType>(k.dtype) != DType::Float32;
}

void run_plan(const Plan& p, cudnn::Handle handle, void* image, void* filter, void* result, void* workspace) {
  void* const pointers[3] = {image, filter, result};
  const int64_t ids[3] = {kImageId, kFilterId, kResultId};
  cudnn::execute(p, handle, 3, ids, pointers, workspace);
}

// The time that comparing engines may take: a little when a program starts, then a small part of its running time. The
// first run of an engine loads its kernels, which takes some milliseconds, and a network meets hundreds of convolutions
// in its first step.
class Budget {
 public:
  static bool is_left() { return seconds_spent() < allowance(); }
  bool is_left_now() const { return seconds_spent() + (now() - from_) < allowance(); }
  Budget() : from_(now()) { start(); }
  Budget(const Budget&) = delete;
  ~Budget() { seconds_spent() += now() - from_; }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  static double allowance() { return 0.1 + 0.05 * (now() - start()); }
  static double start() {
    static const double first = now();
    return first;
  }
  static double& seconds_spent() {
    static double seconds = 0;
    return seconds;
  }
  double from_;
};

// The engines that may compute a convolution, the most promising first. Those whose kernels are compiled as a plan is
// made, for tenths of a second each, count only where the program asked for the fastest (cudnn.benchmark), or where
// there is no other.
std::vector<Description> allowed_engines(const ConvolutionKey& k, const Description& graph) {
  std::vector<Description> found, compiled;
  for (int mode : {cudnn::kHeuristicA, cudnn::kHeuristicFallback}) {
    for (Description& config : cudnn::engines(graph, mode)) {
      if (!is_allowed(k, config)) continue;
      (!k.benchmark && is_compiled(config) ? compiled : found).push_back(std::move(config));
    }
    if (!found.empty()) return found;
  }
  return compiled;
}

// Milliseconds that a plan takes: of some runs the shortest, since something else may disturb one.
float time_of(const Plan& plan, cudnn::Handle handle, void* image, void* filter, void* result, int device,
              float shortest) {
  const cudaStream_t stream = current_stream(device);
  cudaEvent_t from, to;
  MICA_CUDA(cudaEventCreate(&from));
  MICA_CUDA(cudaEventCreate(&to));
  const Workspace workspace(std::max<size_t>(plan.workspace, 16), device);
  float ms = INFINITY;
  for (int turn = 0; turn < 4; ++turn) {
    MICA_CUDA(cudaEventRecord(from, stream));
    run_plan(plan, handle, image, filter, result, workspace.data());
    MICA_CUDA(cudaEventRecord(to, stream));
    MICA_CUDA(cudaEventSynchronize(to));
    float taken = 0;
    MICA_CUDA(cudaEventElapsedTime(&taken, from, to));
    if (turn == 0) continue;  // this run loaded the kernel
    ms = std::min(ms, taken);
    if (taken > 4 * shortest) break;
  }
  cudaEventDestroy(from);
  cudaEventDestroy(to);
  return ms;
}

// The plan of an engine whose workspace is not too large; none where the engine does not take the convolution.
Plan plan_of(const Description& config, cudnn::Handle handle) {
  const Plan plan = cudnn::try_plan(handle, config);
  if (!plan.plan || plan.workspace <= kMostWorkspace) return plan;
  cudnn::api().destroy_descriptor(plan.plan);
  return {};
}

// The plan that a convolution keeps while the program runs, so that its results stay the same: the one that earlier
// runs found, or the heuristic's first. Others are compared with it while the budget lasts; each run of a program
// continues where the last one stopped.
Plan make_plan(const ConvolutionKey& k, cudnn::Handle handle, void* image, void* filter, void* result) {
  const int type = cudnn_type(static_cast<DType>(k.dtype));
  const Description graph = convolution_graph(k, type, handle);
  const std::vector<Description> configs = allowed_engines(k, graph);
  const int count = static_cast<int>(configs.size());
  // Where results have to repeat, nothing is timed: times would choose one engine today and another tomorrow.
  const int most = k.repeatable ? 1 : std::min(count, kTried);
  const std::optional<EngineChoice> known = k.repeatable ? std::nullopt : remembered_choice(k);
  EngineChoice choice{0, 0};
  Plan best;
  if (known && known->engine >= 0 && known->engine < count) {
    best = plan_of(configs[static_cast<size_t>(known->engine)], handle);
    if (best.plan) choice = *known;
  }
  int next = choice.compared;
  for (; !best.plan && next < count; ++next) {
    best = plan_of(configs[static_cast<size_t>(next)], handle);
    choice = {next, next + 1};
  }
  MICA_CHECK(best.plan, "cuDNN has no engine for this convolution");
  if (next < most && !is_capturing(current_stream(k.device)) && (k.benchmark || Budget::is_left())) {
    const Budget spending;
    float shortest = time_of(best, handle, image, filter, result, k.device, INFINITY);
    for (; next < most && (k.benchmark || spending.is_left_now()); ++next) {
      const Plan plan = plan_of(configs[static_cast<size_t>(next)], handle);
      choice.compared = next + 1;
      if (!plan.plan) continue;
      const float ms = time_of(plan, handle, image, filter, result, k.device, shortest);
      const bool better = ms < shortest;
      cudnn::api().destroy_descriptor(better ? best.plan : plan.plan);
      if (better) shortest = ms, best = plan, choice.engine = next;
    }
    remember_choice(k, choice);
  }
  return best;
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
