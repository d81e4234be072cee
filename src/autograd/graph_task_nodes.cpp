// Which nodes take part in a backward pass, and in which order they run.
#include <algorithm>
#include <atomic>

#include "autograd/graph_task.h"

namespace mica {

namespace {

std::atomic<int64_t> next_number{0};
constinit thread_local int64_t passes_begun = 0;

}  // namespace

int64_t GraphTask::begun() { return passes_begun; }

uint32_t GraphTask::slot_for(Node* node) {
  void* owner = node->task_.load(std::memory_order_relaxed);
  if (owner == this) return node->task_slot_;
  // A node that another task held when this one first met it stays contested, even when that task has released it
  // since.
  if (!contested_.empty()) [[unlikely]] {
    const auto at = contested_.find(node);
    if (at != contested_.end()) return at->second;
  }
  const auto slot = static_cast<uint32_t>(slots_.size());
  if (owner == nullptr && node->task_.compare_exchange_strong(owner, this, std::memory_order_acquire)) {
    node->task_slot_ = slot;
  } else {
    contested_.emplace(node, slot);
  }
  slots_.emplace_back().node = node;
  return slot;
}

void GraphTask::prepare(ArrayRef<Edge> roots, TensorVec root_grads, ArrayRef<Edge> inputs,
                        const BackwardOptions& options) {
  options_ = options;
  selective_ = !inputs.empty();
  number_ = next_number.fetch_add(1, std::memory_order_relaxed);
  ++passes_begun;
  for (const Edge& root : roots) {
    roots_.push_back(root.function);
    slot_for(root.function.get());
  }
  uint64_t shallowest = 0;
  if (selective_) {
    shallowest = UINT64_MAX;
    for (const Edge& input : inputs)
      if (input.function) shallowest = std::min(shallowest, input.function->topological);
  }
  discover(shallowest);
  if (selective_) {
    for (Slot& slot : slots_) slot.needed = false;
    if (!options.accumulate) captured_.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      Slot* slot = inputs[i].function ? find(inputs[i].function.get()) : nullptr;
      if (!slot) continue;
      if (options.accumulate) {
        slot->needed = true;
      } else {
        captures_.push_back({inputs[i].input_nr, static_cast<uint32_t>(i), slot->first_capture});
        slot->first_capture = static_cast<int32_t>(captures_.size()) - 1;
      }
    }
    mark_needed();
  }
  EnableGradGuard mode(options.create_graph);
  for (size_t i = 0; i < roots.size(); ++i) {
    Node* root = roots[i].function.get();
    validate_gradient("", i, root_grads[i], root->inputs[roots[i].input_nr]);
    add_gradient(*find(root), roots[i].input_nr, std::move(root_grads[i]));
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    const auto slot = static_cast<uint32_t>(find(roots[i].function.get()) - slots_.data());
    const auto listed = [&](const Ready& r) { return r.slot == slot; };
    if (slots_[slot].missing == 0 && std::none_of(ready_.begin(), ready_.end(), listed)) push_ready(slot);
  }
}

// Finds every node below the roots and counts the edges into it. Slots are at once the list of nodes to look at.
void GraphTask::discover(uint64_t shallowest) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Node* node = slots_[i].node;
    // An input lies deeper than any node that leads to it.
    if (node->topological != 0 && node->topological < shallowest) continue;
    for (const Edge& edge : node->next_edges)
      if (edge.function) {
        const uint32_t next = slot_for(edge.function.get());
        ++slots_[next].missing;
      }
  }
}

// A node is needed if it leads to an input. The search is depth first, with a stack of its own.
void GraphTask::mark_needed() {
  struct Step {
    uint32_t slot;
    uint32_t edge = 0;
  };
  std::vector<Step> path;
  for (const Ref<Node>& root : roots_) {
    path.push_back({static_cast<uint32_t>(find(root.get()) - slots_.data())});
    while (!path.empty()) {
      Step& step = path.back();
      Slot& slot = slots_[step.slot];
      slot.expanded = true;
      if (step.edge == slot.node->next_edges.size()) {
        path.pop_back();
        continue;
      }
      const Node* next = slot.node->next_edges[step.edge].function.get();
      Slot* below = next ? find(next) : nullptr;
      if (below && !below->expanded) {
        path.push_back({static_cast<uint32_t>(below - slots_.data())});
        continue;  // this edge is looked at again once what lies below it is known
      }
      ++step.edge;
      if (below && below->wanted()) slot.needed = true;
    }
  }
}

bool GraphTask::will_run(const Node& node) {
  const Slot* slot = find(&node);
  if (!slot || !selective_) return slot != nullptr;
  MICA_CHECK(
      !(node.is_accumulator && slot->first_capture >= 0),
      "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). This is "
      "currently not supported.");
  return slot->wanted();
}

std::vector<Node*> GraphTask::execution_order() const {
  const auto slot_of = [&](const Node* node) -> const Slot* { return const_cast<GraphTask*>(this)->find(node); };
  std::vector<uint32_t> missing;
  for (const Slot& slot : slots_) missing.push_back(slot.missing);
  std::vector<Ready> ready;
  const auto push = [&](uint32_t at) {
    ready.push_back({slots_[at].node->sequence, at});
    std::push_heap(ready.begin(), ready.end());
  };
  std::vector<bool> listed(slots_.size());
  for (const Ref<Node>& root : roots_) {
    const auto at = static_cast<uint32_t>(slot_of(root.get()) - slots_.data());
    if (missing[at] == 0 && !listed[at]) push(at);
    listed[at] = true;
  }
  std::vector<Node*> order;
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end());
    Node* node = slots_[ready.back().slot].node;
    ready.pop_back();
    order.push_back(node);
    for (const Edge& edge : node->next_edges) {
      const Slot* next = edge.function ? slot_of(edge.function.get()) : nullptr;
      if (!next || (selective_ && !next->wanted())) continue;
      const auto at = static_cast<size_t>(next - slots_.data());
      if (--missing[at] == 0) push(static_cast<uint32_t>(at));
    }
  }
  return order;
}

}  // namespace mica
