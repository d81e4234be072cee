// The parts of a tensor's autograd state that only src/autograd sees.
#pragma once

#include <mutex>

#include "mica/autograd.h"
#include "mica/core/fork.h"

namespace mica {

inline constexpr const char* kGraphFreed =
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). "
    "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if "
    "you need to backward through the graph a second time or if you need to access saved tensors after calling "
    "backward.";

// Shared by a non-leaf that retains its gradient and the node that computes it. Either may die before the other.
struct RetainedGrad {
  AutogradMeta* owner = nullptr;  // null when the tensor has died
  uint32_t input_nr = 0;
  void deliver(const Tensor& gradient);
};

// The dtype in InputMetadata for a leaf that takes gradients of every dtype (Tensor.grad_dtype = None). No real dtype
// has this number.
inline constexpr DType kAnyDType = static_cast<DType>(255);

// Before a tensor takes the geometry of `changed`: if it is a view that as_strided does not make from its base,
// remember how to make it in that geometry.
void note_geometry(const Tensor& self, const Tensor& changed);
// rebase_history where node has changed sizes and strides alone, as transpose_ does: the base of a view has not
// changed.
void rebase_geometry(const Tensor& self, const Ref<Node>& node);

struct AutogradExtras {
  DType grad_dtype = DType::Undefined;  // the dtype of a leaf's gradients; undefined for the leaf's own dtype
  ViewInfo::Replay replay;
  HookList<GradHook> leaf_hooks;
  HookList<PostAccumulateHook> post_accumulate_hooks;
  std::shared_ptr<RetainedGrad> retained;
  Ref<Node> foreign_accumulator;  // the accumulator of another tensor, for which this one stands
};

void run_post_accumulate_hooks(const AutogradExtras& extras, const Tensor& leaf);

inline AutogradExtras& extras(AutogradMeta& meta) { return meta.extras.make(); }

// Adds up gradients that reach a leaf. Holds the leaf; the leaf only borrows it.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(const Tensor& leaf);
  ~AccumulateGrad() override;
  const char* name() const override { return "AccumulateGrad"; }
  void apply(TensorVec& grads, TensorVec& out) override;

  const Tensor variable;
};

// The dtype that a leaf's gradients are cast to; kAnyDType where they keep their own. Setting it throws if the leaf has
// a gradient of another dtype.
DType grad_dtype(const Tensor& leaf);
void set_grad_dtype(const Tensor& leaf, DType dtype);

// The leaf's accumulator, made on demand (create) or only if a graph holds it at present.
Ref<Node> accumulator_of(const Tensor& leaf, bool create);

// The saved_tensors_hooks of this thread, the innermost last.
struct SavedHookStack {
  std::vector<std::shared_ptr<const SavedTensorHooks>> hooks;
  std::optional<std::string> disabled;
};
SavedHookStack& saved_hook_stack();

// Only a few fields are read and written under these locks. No operation, hook or mode runs, and no tensor or node
// dies, since that may need Python's lock.
extern LockSet gradient_locks;  // by AutogradMeta: its gradient and its accumulator
extern LockSet retained_locks;  // by RetainedGrad: its owner
extern LockSet view_locks;      // by TensorImpl: the history of a view

// A tensor of the same memory, geometry and version count, without history.
Tensor bare_alias(const Tensor& t);

// "Mul" for MulBackward0: how torch names a function in messages about its outputs.
std::string forward_name(const Node& node);

// `data` as output `output_nr` of `owner`, for gradients of gradients. An in-place change through a view is in the
// graph as a node of the view's base; the history then leads to that node.
Tensor attach_output_history(Tensor data, Node* owner, uint32_t output_nr);

void move_retained_grad(AutogradMeta& meta, Node* from, Node* to, uint32_t output_nr);
bool hooks_are_walked();  // on any thread: a walk may still call a hook that was removed
void run_tensor_hooks(Node& node, TensorVec& grads);
void run_pre_hooks(Node& node, TensorVec& grads);
void run_post_hooks(Node& node, TensorVec& grad_inputs, const TensorVec& grad_outputs);

}  // namespace mica
