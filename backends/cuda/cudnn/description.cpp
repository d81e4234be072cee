#include "backends/cuda/cudnn/description.h"

namespace mica::cuda::cudnn {

Description tensor(const TensorFacts& facts) {
  Description d(kTensorKind);
  d.set(kTensorDataType, kTypeDataType, facts.type)
      .set(kTensorSizes, kTypeInt64, facts.dims, facts.sizes)
      .set(kTensorStrides, kTypeInt64, facts.dims, facts.strides)
      .set(kTensorId, kTypeInt64, facts.id)
      .set(kTensorAlignment, kTypeInt64, facts.alignment)
      .set(kTensorVirtual, kTypeBoolean, facts.is_virtual);
  if (facts.by_value) d.set(kTensorByValue, kTypeBoolean, facts.by_value);
  d.finish();
  return d;
}

Description operation_graph(Handle handle, const std::vector<Description>& operations) {
  std::vector<Descriptor> handles;
  for (const Description& operation : operations) handles.push_back(operation.get());
  Description graph(kGraphKind);
  graph.set(kGraphHandle, kTypeHandle, handle)
      .set(kGraphOperations, kTypeDescriptor, static_cast<int64_t>(handles.size()), handles.data())
      .finish();
  return graph;
}

std::vector<Description> engines(const Description& graph, int mode) {
  Description heuristic(kHeuristicKind);
  heuristic.set(kHeuristicGraph, graph).set(kHeuristicMode, kTypeHeuristicMode, mode);
  if (!heuristic.try_finish()) return {};
  constexpr int kMost = 16;
  std::vector<Description> found;
  Descriptor handles[kMost];
  for (auto& h : handles) {
    found.emplace_back(kEngineConfigKind);
    h = found.back().get();
  }
  int64_t count = 0;
  if (api().get(heuristic.get(), kHeuristicResults, kTypeDescriptor, kMost, &count, handles)) count = 0;
  while (static_cast<int64_t>(found.size()) > count) found.pop_back();
  return found;
}

Plan try_plan(Handle handle, const Description& engine) {
  Description plan(kPlanKind);
  plan.set(kPlanHandle, kTypeHandle, handle).set(kPlanConfig, engine);
  if (!plan.try_finish()) return {};
  int64_t bytes = 0, count = 0;
  if (api().get(plan.get(), kPlanWorkspace, kTypeInt64, 1, &count, &bytes)) return {};
  return {plan.release(), static_cast<size_t>(bytes)};
}

void execute(const Plan& plan, Handle handle, int64_t count, const int64_t* ids, void* const* pointers,
             void* workspace) {
  Description pack(kVariantPackKind);
  pack.set(kPackIds, kTypeInt64, count, ids)
      .set(kPackPointers, kTypePointer, count, pointers)
      .set(kPackWorkspace, kTypePointer, workspace)
      .finish();
  check(api().execute(handle, plan.plan, pack.get()), "cudnnBackendExecute");
}

}  // namespace mica::cuda::cudnn
