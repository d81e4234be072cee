// The doors to a backward pass: what the arguments of backward() and grad() mean, and on which thread the pass runs.
#include <thread>

#include "autograd/graph_task.h"
#include "core/default_device.h"
#include "mica/core/dispatch.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica {

namespace {

// A pass that is started inside a pass uses the same stack. Beyond this depth it continues on a fresh thread with its
// own stack.
constexpr int kDepthPerThread = 60;
[[gnu::tls_model("initial-exec")]] constinit thread_local int depth = 0;

void* (*leave_for_wait)() = nullptr;
void (*enter_after_wait)(void*) = nullptr;

// A task of this thread, kept from pass to pass for the memory of its vectors.
class TaskLease {
 public:
  TaskLease() : task_(spare() ? std::move(spare()) : std::make_unique<GraphTask>()) { ++depth; }
  TaskLease(const TaskLease&) = delete;
  TaskLease& operator=(const TaskLease&) = delete;
  ~TaskLease() {
    --depth;
    task_->clear();
    if (!spare()) spare() = std::move(task_);
  }
  GraphTask* operator->() { return task_.get(); }

 private:
  static std::unique_ptr<GraphTask>& spare() {
    static thread_local std::unique_ptr<GraphTask> task;
    return task;
  }
  std::unique_ptr<GraphTask> task_;
};

void run_on_fresh_thread(GraphTask& task) {
  std::exception_ptr failure;
  void* left = leave_for_wait ? leave_for_wait() : nullptr;
  std::thread([&, modes = thread_modes, hooks = saved_hook_stack(), device = chosen_device()] {
    thread_modes = modes;
    choose_device(device);
    saved_hook_stack() = hooks;
    try {
      task.run();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (enter_after_wait) enter_after_wait(left);
  if (failure) std::rethrow_exception(failure);
}

std::string size_text(IntArrayRef sizes) { return cat("torch.Size(", sizes, ")"); }

// torch's rules for the gradients that a pass starts from.
TensorVec make_root_gradients(TensorList roots, TensorList grads) {
  TensorVec made;
  made.reserve(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const Tensor& root = roots[i];
    if (i < grads.size() && grads[i].defined()) {
      MICA_CHECK(grads[i].sizes() == root.sizes(), "Mismatch in shape: grad_output[", i, "] has a shape of ",
                 size_text(grads[i].sizes()), " and output[", i, "] has a shape of ", size_text(root.sizes()), ".");
      MICA_CHECK(
          root.is_complex() == grads[i].is_complex(),
          "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
          "grad_output[",
          i, "] has a dtype of torch.", grads[i].dtype(), " and output[", i, "] has a dtype of torch.", root.dtype(),
          ".");
      made.push_back(grads[i]);
    } else if (root.requires_grad()) {
      MICA_CHECK(root.numel() == 1, "grad can be implicitly created only for scalar outputs");
      MICA_CHECK(root.is_floating_point(), "grad can be implicitly created only for real scalar outputs but got torch.",
                 root.dtype());
      dispatch::direct = dispatch::active;  // lets a mode see where the pass begins
      made.push_back(ones_like(root));
      dispatch::direct = false;
    } else {
      made.emplace_back();
    }
  }
  return made;
}

}  // namespace

TensorVec run_backward(ArrayRef<Edge> roots, TensorVec root_grads, bool keep_graph, bool create_graph,
                       ArrayRef<Edge> inputs, bool allow_unused, bool accumulate) {
  MICA_CHECK(roots.size() == root_grads.size(), "got ", roots.size(), " tensors and ", root_grads.size(), " gradients");
  TaskLease task;
  if (create_graph && accumulate) [[unlikely]]
    MICA_WARN_ONCE(
        "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
        "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you "
        "have to use this function, make sure to reset the .grad fields of your parameters to None after use to break "
        "the cycle and avoid the leak.");
  task->prepare(roots, std::move(root_grads), inputs, {keep_graph, create_graph, allow_unused, accumulate});
  if (depth % kDepthPerThread == 0) {
    run_on_fresh_thread(*task.operator->());
  } else {
    task->run();
  }
  return task->finish();
}

TensorVec run_backward(TensorList roots, TensorList root_grads, bool keep_graph, bool create_graph, TensorList inputs,
                       bool allow_unused, bool accumulate) {
  MICA_CHECK(root_grads.size() == roots.size(), "got ", roots.size(), " tensors and ", root_grads.size(), " gradients");
  InlineList<Edge, 2> root_edges;
  for (size_t i = 0; i < roots.size(); ++i) {
    Edge edge = gradient_edge(roots[i]);
    MICA_CHECK(edge.function, "element ", i, " of tensors does not require grad and does not have a grad_fn");
    root_edges.push_back(std::move(edge));
  }
  std::vector<Edge> input_edges;
  for (const Tensor& input : inputs) {
    if (accumulate) {
      input.retain_grad();
    } else {
      MICA_CHECK(input.requires_grad(), "One of the differentiated Tensors does not require grad");
    }
    if (Node* fn = input.grad_fn()) {
      input_edges.push_back({Ref<Node>(fn), static_cast<uint32_t>(input.output_nr())});
    } else {
      input_edges.push_back({accumulator_of(input, false), 0});
    }
  }
  return run_backward(ArrayRef<Edge>(root_edges.begin(), root_edges.size()), root_grads.vec(), keep_graph, create_graph,
                      input_edges, allow_unused, accumulate);
}

namespace autograd {

void backward(TensorList tensors, TensorList grad_tensors, std::optional<bool> retain_graph, bool create_graph,
              TensorList inputs) {
  MICA_CHECK(grad_tensors.empty() || grad_tensors.size() == tensors.size(), "got ", tensors.size(), " tensors and ",
             grad_tensors.size(), " gradients");
  const TensorVec roots = make_root_gradients(tensors, grad_tensors);
  run_backward(tensors, roots, retain_graph.value_or(create_graph), create_graph, inputs, true, true);
}

TensorVec grad(TensorList outputs, TensorList inputs, TensorList grad_outputs, std::optional<bool> retain_graph,
               bool create_graph, bool allow_unused) {
  MICA_CHECK_KIND(!inputs.empty(), Value, "`inputs` argument to `grad()` cannot be empty.");
  MICA_CHECK(grad_outputs.empty() || grad_outputs.size() == outputs.size(), "got ", outputs.size(), " tensors and ",
             grad_outputs.size(), " gradients");
  const TensorVec roots = make_root_gradients(outputs, grad_outputs);
  return run_backward(outputs, roots, retain_graph.value_or(create_graph), create_graph, inputs, allow_unused, false);
}

Node* current_node() { return GraphTask::current() ? GraphTask::current()->evaluating() : nullptr; }
int64_t current_graph_task() { return GraphTask::current() ? GraphTask::current()->number() : -1; }
bool current_graph_task_keeps_graph() { return !GraphTask::current() || GraphTask::current()->keeps_graph(); }

void queue_callback(std::function<void()> callback) {
  MICA_CHECK(GraphTask::current(), "Final callbacks can only be installed during backward pass.");
  GraphTask::current()->callbacks.push_back(std::move(callback));
}

void set_wait_hooks(void* (*leave)(), void (*enter)(void*)) {
  leave_for_wait = leave;
  enter_after_wait = enter;
}

}  // namespace autograd
}  // namespace mica
