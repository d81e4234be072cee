#include "autograd/metadata.h"
#include "core/observe.h"
#include "dispatch/passes.h"
#include "mica/core/class_alias.h"
#include "mica/core/dispatch.h"

namespace mica {

SavedHookStack& saved_hook_stack() {
  static thread_local SavedHookStack stack;
  return stack;
}

struct SavedTensor::Packed {
  std::shared_ptr<const SavedTensorHooks> hooks;
  std::shared_ptr<void> object;
  Ref<Node> grad_fn;  // the history of a tensor that is not the node's own output
  Ref<Node> accumulator;
  bool requires_grad = false;
};
void SavedTensor::DeletePacked::operator()(Packed* p) const { delete p; }

// For a tensor that is kept as it is, output_nr_ only says whether a node computed it.
static constexpr uint32_t kHadNode = 1;
// Set beside the number of an output that is not differentiable.
static constexpr uint32_t kWithoutNode = 1u << 31;

// The node's own output without its history. A mode sees it as a new tensor, as torch's modes do.
static Tensor without_history(const Tensor& t, bool differentiable) {
  const bool told = differentiable && dispatch::active && !dispatch::in_parts;
  return told ? dispatch::call_one("detach", {t}, true) : bare_alias(t);
}

SavedTensor::SavedTensor(const Tensor& t, bool is_output) : is_output_(is_output) {
  if (!t.defined()) return;
  TensorImpl* impl = t.impl();
  MICA_CHECK(!(impl->bits & tensor_bit::kInference),
             "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
             "computation "
             "tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in "
             "autograd, or use "
             "`torch.no_grad()` instead of `torch.inference_mode()`.");
  saved_version_ = impl->version();
  if (inspect::recording_memory.load(std::memory_order_relaxed)) [[unlikely]]
    inspect::mark_memory(t,
                         impl->requires_grad_leaf ? inspect::MemoryKind::Parameter : inspect::MemoryKind::Activation);
  if (is_output && impl->autograd) output_nr_ = impl->autograd->output_nr;
  if (thread_modes & mode_bit::kSavedTensorHooks) [[unlikely]] {
    pack(t, saved_hook_stack().hooks.back());
    return;
  }
  if (is_output) {
    data_ = without_history(t, impl->has_grad_fn);
    saved_version_ = data_.impl()->version();
    if (!impl->has_grad_fn) output_nr_ |= kWithoutNode;
    state_ = State::Output;
  } else {
    data_ = t;
    state_ = State::Original;
    output_nr_ = impl->has_grad_fn ? kHadNode : 0;
  }
}

void SavedTensor::pack(const Tensor& t, std::shared_ptr<const SavedTensorHooks> hooks) {
  std::unique_ptr<Packed, DeletePacked> packed(new Packed);
  if (!is_output_) {
    output_nr_ = t.impl()->autograd ? t.impl()->autograd->output_nr : 0;
    if (Node* fn = t.grad_fn()) {
      packed->grad_fn = Ref<Node>(fn);
    } else if (t.requires_grad()) {
      packed->accumulator = accumulator_of(t, true);
    }
  }
  packed->requires_grad = t.requires_grad();
  const uint32_t version = t.version();
  {
    NoGradGuard no_grad;
    // Tensors that the hook itself saves, if it turns gradients on, are not packed again.
    ModeGuard unhooked(mode_bit::kSavedTensorHooks, false);
    packed->object = hooks->pack(t);
  }
  MICA_CHECK(
      t.version() == version,
      "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be "
      "modified "
      "by in-place operations as this can lead to unexpected side-effects. Please open an issue if you need to perform "
      "in-place operations on the input to a pack hook.");
  packed->hooks = std::move(hooks);
  packed_ = std::move(packed);
  data_ = {};
  state_ = State::Packed;
}

void SavedTensor::register_hooks(std::shared_ptr<const SavedTensorHooks> hooks) {
  MICA_CHECK(state_ != State::Undefined, "Calling register_hooks on a saved tensor with value None is forbidden");
  MICA_CHECK(state_ != State::Packed,
             "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one "
             "pair of hooks is allowed at a time.");
  MICA_CHECK(state_ != State::Released,
             "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph "
             "are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
             "backward through the graph a second time or if you need to access saved variables after calling "
             "backward.");
  if (data_.version() != saved_version_) fail_changed(nullptr);
  const Tensor saved = data_;
  pack(saved, std::move(hooks));
  // The node's own output is kept without its history, though it has one.
  packed_->requires_grad |= is_output_ && (saved.is_floating_point() || saved.is_complex());
}

Tensor SavedTensor::unpack(Node* owner, bool with_history) const {
  switch (state_) {
    case State::Undefined:
      return {};
    case State::Released:
      fail(kGraphFreed);
    case State::Original:
      if (data_.impl()->version() != saved_version_) fail_changed(nullptr);
      if (output_nr_ == kHadNode && !data_.impl()->has_grad_fn) [[unlikely]]
        fail(
            "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is not supported, "
            "please use out-of-place `.detach()` instead");
      return data_;
    case State::Output:
      if (data_.impl()->version() != saved_version_) fail_changed(owner);
      if (!owner || !(grad_enabled() || with_history))
        return dispatch::active && !(output_nr_ & kWithoutNode) ? without_history(data_, owner) : data_;
      return attach_output_history(without_history(data_, !(output_nr_ & kWithoutNode)), owner,
                                   output_nr_ & ~kWithoutNode);
    case State::Packed:
      break;
  }
  const Tensor data = [&] {
    const dispatch::FormulaGuard program(false);
    return packed_->hooks->unpack(packed_->object);
  }();
  MICA_CHECK(data.defined(), "the unpack hook of a saved tensor must return a tensor");
  if (!packed_->requires_grad) return data;
  Tensor result = bare_alias(data);
  if (is_output_) return owner ? attach_output_history(std::move(result), owner, output_nr_) : result;
  AutogradMeta& meta = autograd_meta(result);
  if (packed_->grad_fn) {
    meta.grad_fn = packed_->grad_fn;
    meta.output_nr = output_nr_;
    result.impl()->has_grad_fn = true;
    return result;
  }
  if (!packed_->accumulator || static_cast<AccumulateGrad&>(*packed_->accumulator).variable.is_same(data)) return data;
  // Gradients of results that are computed from the unpacked tensor belong to the leaf that was saved.
  extras(meta).foreign_accumulator = packed_->accumulator;
  meta.accumulator = packed_->accumulator.get();
  result.impl()->requires_grad_leaf = true;
  return result;
}

void SavedTensor::fail_changed(Node* owner) const {
  std::string message =
      cat("one of the variables needed for gradient computation has been modified by an inplace operation: [", "torch.",
          data_.is_cpu() ? "" : cat(device_type_name(data_.device().type()), "."), info(data_.dtype()).legacy,
          "Tensor ", data_.sizes(), "]");
  Node* made_by = owner ? owner : data_.grad_fn();
  if (made_by)
    message += cat(", which is output ", owner ? output_nr_ & ~kWithoutNode : data_.output_nr(), " of ",
                   forward_name(*made_by), ",");
  message += cat(" is at version ", data_.version(), "; expected version ", saved_version_, " instead.");
  message += anomaly_enabled()
                 ? " Hint: the backtrace further above shows the operation that failed to compute its gradient. The "
                   "variable in "
                   "question was changed in there or anywhere later. Good luck!"
                 : " Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
                   "torch.autograd.set_detect_anomaly(True, check_nan=False).";
  fail(std::move(message));
}

void SavedTensor::reset() {
  if (state_ == State::Undefined) return;
  data_ = {};
  packed_.reset();
  state_ = State::Released;
}

namespace autograd {

void push_saved_tensor_hooks(std::shared_ptr<const SavedTensorHooks> hooks) {
  SavedHookStack& stack = saved_hook_stack();
  if (stack.disabled) fail(*stack.disabled);
  stack.hooks.push_back(std::move(hooks));
  set_modes(mode_bit::kSavedTensorHooks, true);
}

void pop_saved_tensor_hooks() {
  SavedHookStack& stack = saved_hook_stack();
  MICA_CHECK(!stack.hooks.empty(), "no saved_tensors_hooks are active");
  stack.hooks.pop_back();
  set_modes(mode_bit::kSavedTensorHooks, !stack.hooks.empty());
}

std::optional<std::string> disable_saved_tensor_hooks(std::optional<std::string> message) {
  SavedHookStack& stack = saved_hook_stack();
  MICA_CHECK(!message || stack.hooks.empty(), message.value_or(""));
  return std::exchange(stack.disabled, std::move(message));
}

}  // namespace autograd
}  // namespace mica
