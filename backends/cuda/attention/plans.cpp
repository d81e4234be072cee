#include "backends/cuda/attention/plans.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "backends/cuda/allocator.h"
#include "backends/cuda/flags.h"
#include "backends/cuda/runtime.h"

namespace mica::cuda::attention {

namespace {

// Compiling a plan for a shape takes longer than many runs of it. A shape that comes for the first time may never come
// again, as with a growing cache of keys.
constexpr int kCallsBefore = 2;
constexpr size_t kMostKeys = 2048;  // how many are remembered; a program with more shapes gets no further plans

struct Entry {
  cudnn::Plan plan;
  int calls = 0;
  bool refused = false;
};

struct KeyHash {
  size_t operator()(const GraphKey& k) const {
    const auto* words = reinterpret_cast<const uint64_t*>(&k);
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < sizeof(GraphKey) / 8; ++i) h = (h ^ words[i]) * 1099511628211ull;
    return h ^ h >> 32;
  }
};
struct KeyEqual {
  bool operator()(const GraphKey& a, const GraphKey& b) const { return std::memcmp(&a, &b, sizeof(GraphKey)) == 0; }
};
template <class T>
using Table = std::unordered_map<GraphKey, T, KeyHash, KeyEqual>;

// The plan of the heuristic's first engine that works.
cudnn::Plan make_plan(const GraphKey& key, cudnn::Handle handle) {
  cudnn::open_compiler();
  const cudnn::Description graph = attention_graph(key, handle);
  for (int mode : {cudnn::kHeuristicA, cudnn::kHeuristicFallback})
    for (const cudnn::Description& engine : cudnn::engines(graph, mode))
      if (const cudnn::Plan plan = cudnn::try_plan(handle, engine); plan.plan) return plan;
  return {};
}

size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

GraphStrides strides_in_graph(const TensorView& t) {
  // The stride of a dimension of one element means nothing; problems that differ only in it are the same.
  const int64_t row = t.sizes[2] == 1 ? t.sizes[3] : t.strides[2];
  const int64_t head = t.sizes[1] == 1 ? t.sizes[2] * row : t.strides[1];
  const int64_t batch = t.sizes[0] == 1 ? t.sizes[1] * (head > row ? head : t.sizes[2] * row) : t.strides[0];
  return {batch, head, row};
}

GraphKey key_of(Task task, const TensorView& query, const TensorView& key, const TensorView& value,
                const TensorView& out, bool causal) {
  GraphKey k;
  std::memset(&k, 0, sizeof k);
  k.task = task;
  k.device = query.device.index();
  k.type = query.dtype == DType::Float16 ? cudnn::kHalf : cudnn::kBFloat16;
  k.causal = causal;
  k.batch = query.sizes[0];
  k.heads = query.sizes[1];
  k.kv_heads = key.sizes[1];
  k.length = query.sizes[2];
  k.keys = key.sizes[2];
  k.width = query.sizes[3];
  k.value_width = value.sizes[3];
  k.query = strides_in_graph(query);
  k.key = strides_in_graph(key);
  k.value = strides_in_graph(value);
  k.out = strides_in_graph(out);
  return k;
}

bool lies_well(const TensorView& t) {
  if (reinterpret_cast<uintptr_t>(t.data) % 16 || (t.sizes[3] > 1 && t.strides[3] != 1)) return false;
  const int64_t piece = 16 / static_cast<int64_t>(element_size(t.dtype));
  for (int d = 0; d < 3; ++d)
    if (t.sizes[d] > 1 && (t.strides[d] % piece || t.strides[d] <= 0)) return false;
  return true;
}

bool cudnn_is_used(int device) {
  if (!flag(Flag::CudnnAttention) || properties(device).major < 8 || !cudnn::available()) return false;
  // From 9.6 on, plans clear the sums of the queries' gradient themselves; 9.10.0 and 9.10.1 have errors.
  static const size_t version = cudnn::api().version();
  return version >= 90600 && version != 91000 && version != 91001;
}

// Up to 9.15, gradients would need a mask where the number of keys is not a multiple of 128.
static bool has_gradients_for(int64_t keys) {
  static const size_t version = cudnn::api().version();
  return version > 91500 || keys % 128 == 0;
}

bool has_engines(const TensorView& query, const TensorView& key, const TensorView& value) {
  const TensorView& out = query;  // it has the layout of the queries, whatever its width
  GraphKey k = key_of(Task::Forward, query, key, value, out, false);
  k.out = {k.heads * k.length * k.value_width, k.length * k.value_width, k.value_width};
  const std::lock_guard guard(cudnn::lock());
  static auto* answers = new Table<bool>;
  const auto found = answers->find(k);
  if (found != answers->end()) return found->second;
  const int device = static_cast<int>(k.device);
  DeviceGuard device_guard(device);
  const cudnn::Handle handle = cudnn::handle(device, current_stream(device));
  GraphKey b = k;
  b.task = Task::Backward;
  b.grad_out = b.out;
  b.grad_query = {k.heads * k.length * k.width, k.length * k.width, k.width};
  b.grad_key = {k.kv_heads * k.keys * k.width, k.keys * k.width, k.width};
  b.grad_value = {k.kv_heads * k.keys * k.value_width, k.keys * k.value_width, k.value_width};
  cudnn::open_compiler();
  const auto some = [&](const GraphKey& of) {
    try {
      const cudnn::Description graph = attention_graph(of, handle);
      return !cudnn::engines(graph, cudnn::kHeuristicA).empty() ||
             !cudnn::engines(graph, cudnn::kHeuristicFallback).empty();
    } catch (const Error&) {
      return false;
    }
  };
  const bool answer = has_gradients_for(k.keys) && some(k) && some(b);
  if (answers->size() < kMostKeys) answers->emplace(k, answer);
  return answer;
}

bool run_graph(const GraphKey& key, void* const (&memory)[kIds], double scale, bool only) {
  const auto device = static_cast<int>(key.device);
  const cudaStream_t stream = current_stream(device);
  const std::lock_guard guard(cudnn::lock());
  static auto* plans = new Table<Entry>;
  auto found = plans->find(key);
  if (found == plans->end()) {
    if (plans->size() >= kMostKeys && !only) return false;
    found = plans->emplace(key, Entry{}).first;
  }
  Entry& entry = found->second;
  if (!entry.plan.plan) {
    if (!only && (entry.refused || entry.calls++ < kCallsBefore || is_capturing(stream))) return false;
    try {
      entry.plan = make_plan(key, cudnn::handle(device, stream));
    } catch (const Error&) {
      if (only) throw;
    }
    entry.refused = !entry.plan.plan;
    MICA_CHECK(!only || !entry.refused, "cuDNN has no engine for attention with heads of ", key.width, " and ",
               key.value_width, " numbers");
    if (entry.refused) return false;
  }
  const bool backward = key.task == Task::Backward;
  const auto rows = static_cast<size_t>(key.batch * key.heads * key.length);
  const size_t products = backward ? round_up(rows * sizeof(float)) : 0;
  const size_t sums = backward && !key.repeatable ? round_up(rows * static_cast<size_t>(key.width) * sizeof(float)) : 0;
  const Workspace workspace(products + sums + round_up(entry.plan.workspace) + 16, device);
  auto* free = static_cast<unsigned char*>(workspace.data());
  float numbers[3] = {static_cast<float>(scale), -std::numeric_limits<float>::infinity(), 1.0f};
  int64_t ids[kIds];
  void* pointers[kIds];
  int64_t count = 0;
  const auto give = [&](int64_t id, void* pointer) {
    ids[count] = id;
    pointers[count++] = pointer;
  };
  for (int64_t id = kQuery; id < kIds; ++id)
    if (memory[id]) give(id, memory[id]);
  give(kScale, &numbers[0]);
  if (key.causal) give(kHidden, &numbers[1]);
  if (backward) {
    give(kOne, &numbers[2]);
    give(kProducts, free);
    if (!key.repeatable) give(kGradQuerySum, free + products);
  }
  cudnn::execute(entry.plan, cudnn::handle(device, stream), count, ids, pointers, free + products + sums);
  return true;
}

static bool can_be_given(const TensorView& query, const TensorView& key, const TensorView& value, bool only) {
  if (!only && !cudnn_is_used(query.device.index())) return false;
  const bool fits = lies_well(query) && lies_well(key) && lies_well(value);
  MICA_CHECK(!only || fits, "attention with such heads takes only tensors that are aligned to 16 bytes");
  return fits;
}

// With less work than this a plan gains nothing: a few tiles for each multiprocessor.
static bool is_worth_it(const GraphKey& k) {
  return k.length >= 64 && k.batch * k.heads * k.length * k.keys >= int64_t{1} << 21;
}

bool forward_by_cudnn(const TensorView& out, const TensorView& logsumexp, const TensorView& query,
                      const TensorView& key, const TensorView& value, bool causal, double scale, bool only) {
  if (!can_be_given(query, key, value, only)) return false;
  // Where results have to repeat, the kernels must not change on the third call.
  if (!only && flag(Flag::Deterministic)) return false;
  const GraphKey k = key_of(Task::Forward, query, key, value, out, causal);
  if (!only && !is_worth_it(k)) return false;
  void* memory[kIds] = {};
  memory[kQuery] = query.data;
  memory[kKey] = key.data;
  memory[kValue] = value.data;
  memory[kOut] = out.data;
  memory[kLogsumexp] = logsumexp.data;
  return run_graph(k, memory, scale, only);
}

bool backward_by_cudnn(const TensorView& grad_query, const TensorView& grad_key, const TensorView& grad_value,
                       const TensorView& grad_out, const TensorView& out, const TensorView& logsumexp,
                       const TensorView& query, const TensorView& key, const TensorView& value, bool causal,
                       double scale, bool only) {
  if (!can_be_given(query, key, value, only)) return false;
  // A plan adds the gradients of the queries in the order in which its blocks end, which varies.
  if (!only && (flag(Flag::Deterministic) || !has_gradients_for(key.sizes[2]))) return false;
  GraphKey k = key_of(Task::Backward, query, key, value, out, causal);
  if (!only && !is_worth_it(k)) return false;
  k.grad_out = strides_in_graph(grad_out);
  k.grad_query = strides_in_graph(grad_query);
  k.grad_key = strides_in_graph(grad_key);
  k.grad_value = strides_in_graph(grad_value);
  k.repeatable = flag(Flag::Deterministic);
  void* memory[kIds] = {};
  memory[kQuery] = query.data;
  memory[kKey] = key.data;
  memory[kValue] = value.data;
  memory[kOut] = out.data;
  memory[kLogsumexp] = logsumexp.data;
  memory[kGradOut] = grad_out.data;
  memory[kGradQuery] = grad_query.data;
  memory[kGradKey] = grad_key.data;
  memory[kGradValue] = grad_value.data;
  return run_graph(k, memory, scale, only);
}

}  // namespace mica::cuda::attention
