// Autograd's objects: nodes and edges of the backward graph, what a tensor remembers of its history, hooks, the engine.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mica/core/grad_mode.h"
#include "mica/core/inline_list.h"
#include "mica/core/made_late.h"
#include "mica/tensor.h"

namespace mica {

using TensorVec = std::vector<Tensor>;

// ---- the graph ---------------------------------------------------------------------------------------------------

struct Edge {
  Ref<Node> function;  // null: no gradient flows here
  uint32_t input_nr = 0;
};

// What a gradient flowing into a node must look like; the engine sums, casts and checks to make it so.
struct InputMetadata {
  DimVector sizes;
  DType dtype = DType::Undefined;  // undefined: no gradient comes in here
  Device device;
};

struct NodeHooks;
struct ForwardTrace;

// Set in a pass that asks for the gradients of some inputs only. Bit i says that gradient i of the node that is being
// evaluated leads to none of these inputs.
extern constinit thread_local uint64_t unwanted_gradients __attribute__((tls_model("initial-exec")));

// A function of the backward graph. Subclasses are generated from ops/*.toml, or written by hand for a few.
class Node {
 public:
  Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  virtual ~Node();

  virtual const char* name() const = 0;
  // Computes gradients: `grads` holds those with respect to the forward's outputs, `out` takes those with respect to
  // its inputs. An undefined gradient in `grads` means zero; at least one is defined, unless runs_without_gradients.
  // `out` has an undefined entry for each next edge, and may keep it so where needs(i) is false.
  virtual void apply(TensorVec& grads, TensorVec& out) = 0;
  virtual void release_saved() {}  // frees saved tensors after a backward that does not retain the graph

  bool leads_on(size_t i) const { return i < next_edges.size() && next_edges[i].function; }
  // For apply: whether this pass asks for the gradient of edge i.
  bool needs(size_t i) const { return leads_on(i) && (i >= 64 || !(unwanted_gradients >> i & 1)); }
  uint32_t add_input(const Tensor& forward_output);  // describes one more output of the forward; returns its number

  InlineList<Edge, 2> next_edges;       // one per differentiable input of the forward
  InlineList<InputMetadata, 1> inputs;  // one per output of the forward
  uint64_t sequence;                    // later nodes run first
  uint64_t topological = 0;             // longer than any path below this node; 0 while unknown
  MadeLate<NodeHooks> hooks;
  std::unique_ptr<ForwardTrace> trace;  // under detect_anomaly: where the forward ran
  void* python_object = nullptr;        // borrowed: the wrapper clears it when it dies
  bool is_accumulator = false;          // an AccumulateGrad
  bool runs_without_gradients = false;  // apply is called even when no gradient came in
  bool asks_classes;                    // made while dispatch::in_parts: a pass that comes here has to ask classes
  bool compiled;                        // made within a compiled function: a pass puts kernels off from here on

  uint32_t use_count() const { return refs_.load(std::memory_order_relaxed); }
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  bool retain_unless_dead();
  void release() {
    // A leaf finds its accumulator without holding a reference (retain_unless_dead), so its last count must be seen.
    const bool last = is_accumulator ? refs_.fetch_sub(1, std::memory_order_acq_rel) == 1 : drop_reference(refs_);
    if (last) destroy(this);
  }

  static void* operator new(size_t size);  // from the allocator of small blocks
  static void operator delete(void* p, size_t size);

 private:
  friend class GraphTask;
  static void destroy(Node* node);  // iterative: a long chain must not overflow the stack

  std::atomic<uint32_t> refs_{1};
  uint32_t task_slot_ = 0;  // this node's place in the task that has claimed it
  std::atomic<void*> task_{
      nullptr};  // the backward pass that has claimed this node; links dead nodes while they are destroyed
};

// ---- hooks -------------------------------------------------------------------------------------------------------

using GradHook = std::function<Tensor(const Tensor&)>;  // returns undefined to leave the gradient as it is
using NodePreHook = std::function<void(TensorVec& grads)>;
using NodePostHook = std::function<void(TensorVec& grad_inputs, const TensorVec& grad_outputs)>;
using PostAccumulateHook = std::function<void(const Tensor& leaf)>;

struct HookRecord {
  std::atomic<bool> removed{false};
};
template <class Callable>
struct HookOf final : HookRecord {
  Callable call;
  std::string name;       // for the message when a hook returns something of the wrong shape or type
  uint32_t input_nr = 0;  // which gradient of the node
};
template <class Callable>
using HookList = std::vector<std::shared_ptr<HookOf<Callable>>>;

// Takes a hook off again; does not keep the tensor, the node or the graph alive.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::weak_ptr<HookRecord> record) : record_(std::move(record)) {}
  void remove() {
    if (auto r = record_.lock()) r->removed = true;
    record_.reset();
  }

 private:
  std::weak_ptr<HookRecord> record_;
};

struct RetainedGrad;  // where a node leaves the gradient of a non-leaf that retains it

struct NodeHooks {
  HookList<GradHook> tensor_hooks;
  std::vector<std::shared_ptr<RetainedGrad>> retained;  // filled after all other tensor hooks have run
  HookList<NodePreHook> pre_hooks;
  HookList<NodePostHook> post_hooks;
};

namespace autograd {
HookHandle register_hook(const Tensor& t, GradHook hook, std::string name = "hook");
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, PostAccumulateHook hook);
HookHandle register_prehook(Node& node, NodePreHook hook);
HookHandle register_posthook(Node& node, NodePostHook hook);
}  // namespace autograd

template <class Hook>
HookHandle Tensor::register_hook(Hook hook) const {
  if constexpr (std::is_void_v<std::invoke_result_t<Hook&, const Tensor&>>) {
    return autograd::register_hook(*this, [hook = std::move(hook)](const Tensor& grad) mutable {
      hook(grad);
      return Tensor();
    });
  } else {
    return autograd::register_hook(*this, std::move(hook));
  }
}

// ---- what a tensor remembers -------------------------------------------------------------------------------------

struct ViewInfo {
  using Creation = ViewCreation;
  using Replay = std::function<Tensor(const Tensor& base)>;
};

// How to make a view again, hooks of a leaf: few tensors have them, so they lie behind one pointer.
struct AutogradExtras;

struct AutogradMeta {
  Ref<Node> grad_fn;
  uint32_t output_nr = 0;
  bool retains_grad = false;
  Node* accumulator = nullptr;  // AccumulateGrad of a leaf, borrowed: it lives as long as a graph uses it
  Tensor grad;
  MadeLate<AutogradExtras> extras;

  ~AutogradMeta();
  static void* operator new(size_t size);
  static void operator delete(void* p, size_t size);
};

AutogradMeta& autograd_meta(const Tensor& t);   // made on demand
void delete_autograd_meta(AutogradMeta* meta);  // called by the tensor that owns it
bool view_requires_grad(const TensorImpl* t);   // whether the base of a view requires grad: a view then does as well

Edge gradient_edge(const Tensor& t);  // grad_fn, or the leaf's AccumulateGrad, or nothing

// Outputs are saved for backward after the call of set_history or rebase_history, inputs before the operation runs.
void set_history(const Tensor& result, const Ref<Node>& node);   // result is a fresh output of node
void rebase_history(const Tensor& self, const Ref<Node>& node);  // self was changed in place by node
void set_view(const Tensor& view, const Tensor& self, ViewInfo::Creation creation = ViewInfo::Creation::Normal);
// Remembers how to make a view again from `self`. Needed where neither as_strided, view_as_real, view_as_complex nor a
// lazy sign makes it.
void set_view(const Tensor& view, const Tensor& self, ViewInfo::Creation creation, ViewInfo::Replay replay);

void check_inplace_slow(const Tensor& self, bool requires_grad);
inline void check_inplace(const Tensor& self, bool requires_grad) {  // throws torch's errors for leaves and views
  if (requires_grad || (self.impl()->bits & tensor_bit::kInference)) check_inplace_slow(self, requires_grad);
}
inline void mark_changed(const Tensor& self) { self.impl()->bump_version(); }

[[gnu::always_inline]] inline bool any_requires_grad(const Tensor& t) { return t.defined() && t.requires_grad(); }
bool any_requires_grad(TensorList list);
inline bool any_requires_grad(const Scalar&) { return false; }
template <class... Ts>
[[gnu::always_inline]] inline bool compute_requires_grad(const Ts&... ts) {
  return grad_enabled() && (any_requires_grad(ts) || ...);
}

// ---- saved tensors -----------------------------------------------------------------------------------------------

// The functions of saved_tensors_hooks: one turns a tensor that is kept for backward into something else, one turns it
// back.
struct SavedTensorHooks {
  std::function<std::shared_ptr<void>(const Tensor&)> pack;
  std::function<Tensor(const std::shared_ptr<void>&)> unpack;
};

// A tensor kept for backward: remembers its version, breaks the cycle when it is the node's own output, honours hooks.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& t, bool is_output = false);
  SavedTensor(SavedTensor&&) noexcept = default;
  SavedTensor& operator=(SavedTensor&&) noexcept = default;

  // `owner` is the node that saved it, needed for its own outputs. Throws torch's error if the tensor was changed in
  // place or freed. Without gradient mode a saved output comes back bare, unless its history is asked for.
  Tensor unpack(Node* owner = nullptr, bool with_history = false) const;
  Tensor unpack(const Ref<Node>& owner) const { return unpack(owner.get()); }
  void reset();
  bool defined() const { return state_ != State::Undefined; }
  bool released() const { return state_ == State::Released; }
  void register_hooks(std::shared_ptr<const SavedTensorHooks> hooks);  // on one saved tensor, before it is used

 private:
  enum class State : uint8_t { Undefined, Original, Output, Packed, Released };
  struct Packed;
  struct DeletePacked {
    void operator()(Packed* p) const;
  };
  void pack(const Tensor& t, std::shared_ptr<const SavedTensorHooks> hooks);
  [[noreturn]] void fail_changed(Node* owner) const;

  Tensor data_;
  std::unique_ptr<Packed, DeletePacked> packed_;
  uint32_t saved_version_ = 0;
  uint32_t output_nr_ = 0;
  State state_ = State::Undefined;
  bool is_output_ = false;
};

namespace autograd {
void push_saved_tensor_hooks(std::shared_ptr<const SavedTensorHooks> hooks);  // the innermost of this thread now
void pop_saved_tensor_hooks();
// While a message is set, pushing hooks fails with it. Returns the message that was set before.
std::optional<std::string> disable_saved_tensor_hooks(std::optional<std::string> message);
}  // namespace autograd

// ---- anomaly detection -------------------------------------------------------------------------------------------

struct ForwardTrace {
  std::string text;
  Ref<Node> parent;  // the node during whose backward this one was made
};
// Set by the Python side: describes the place in the user's program that makes the call. While it is null, nodes keep
// no traces.
extern std::string (*describe_forward_call)();

// An exception of the Python side that can take the name of the failing node as a note. Its type and message stay as
// they are.
class Notable {
 public:
  virtual ~Notable() = default;
  virtual void add_note(std::string_view note) = 0;
};

// ---- the engine --------------------------------------------------------------------------------------------------

// Runs the graph below `roots`. Without `inputs`, accumulates into every leaf that is reached. With them, accumulates
// into those alone (accumulate), or returns their gradients.
TensorVec run_backward(ArrayRef<Edge> roots, TensorVec root_grads, bool keep_graph, bool create_graph,
                       ArrayRef<Edge> inputs, bool allow_unused, bool accumulate);
TensorVec run_backward(TensorList roots, TensorList root_grads, bool keep_graph, bool create_graph, TensorList inputs,
                       bool allow_unused, bool accumulate);

// Brings a gradient to what its metadata asks for, or throws naming the function and the index.
void validate_gradient(const char* function, size_t index, Tensor& gradient, const InputMetadata& expected);

namespace autograd {
void backward(TensorList tensors, TensorList grad_tensors = {}, std::optional<bool> retain_graph = std::nullopt,
              bool create_graph = false, TensorList inputs = {});
TensorVec grad(TensorList outputs, TensorList inputs, TensorList grad_outputs = {},
               std::optional<bool> retain_graph = std::nullopt, bool create_graph = false, bool allow_unused = false);

// These tell about the backward pass that runs on this thread:
Node* current_node();                                 // the node being evaluated, or null
int64_t current_graph_task();                         // the number of the pass, or -1
bool current_graph_task_keeps_graph();                // true outside of a pass
void queue_callback(std::function<void()> callback);  // runs it when the pass has ended

// A deeply nested pass runs on another thread while this one waits. `leave` and `enter` bracket the wait: the Python
// side gives up the interpreter lock there.
void set_wait_hooks(void* (*leave)(), void (*enter)(void*));

void detach_in_place(const Tensor& t);               // Tensor.detach_
void set_data(const Tensor& t, const Tensor& data);  // x.data = y
}  // namespace autograd

}  // namespace mica
