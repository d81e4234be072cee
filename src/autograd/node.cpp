#include "mica/autograd.h"

#include "mica/allocator.h"
#include "mica/core/class_alias.h"

namespace mica {

std::string (*describe_forward_call)() = nullptr;

namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local uint64_t next_sequence = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local Node* dead_nodes = nullptr;  // linked through task_
[[gnu::tls_model("initial-exec")]] constinit thread_local bool destroying = false;

std::unique_ptr<ForwardTrace> trace_forward() {
  auto trace = std::make_unique<ForwardTrace>();
  if (describe_forward_call) trace->text = describe_forward_call();
  if (Node* parent = autograd::current_node()) trace->parent = Ref<Node>(parent);
  return trace;
}

}  // namespace

Node::Node() : sequence(next_sequence++), asks_classes(dispatch::in_parts), compiled(thread_modes & mode_bit::kRecord) {
  if (anomaly_enabled()) [[unlikely]]
    trace = trace_forward();
}

Node::~Node() = default;

uint32_t Node::add_input(const Tensor& forward_output) {
  if (forward_output.defined()) {
    inputs.emplace_back(forward_output.sizes(), forward_output.dtype(), forward_output.device());
  } else {
    inputs.emplace_back();
  }
  return static_cast<uint32_t>(inputs.size() - 1);
}

bool Node::retain_unless_dead() {
  uint32_t count = refs_.load(std::memory_order_relaxed);
  while (count != 0)
    if (refs_.compare_exchange_weak(count, count + 1, std::memory_order_acq_rel)) return true;
  return false;
}

void* Node::operator new(size_t size) { return cpu_allocate(size); }
void Node::operator delete(void* p, size_t size) { cpu_free(p, size); }

// Destroying a node lets go of its next nodes and of saved tensors that hold nodes in turn. Those wait in a list
// instead of recursing.
void Node::destroy(Node* node) {
  node->task_.store(dead_nodes, std::memory_order_relaxed);
  dead_nodes = node;
  if (destroying) return;
  destroying = true;
  while (Node* next = dead_nodes) {
    dead_nodes = static_cast<Node*>(next->task_.load(std::memory_order_relaxed));
    delete next;
  }
  destroying = false;
}

}  // namespace mica
