#include "mica/custom_function.h"

#include <algorithm>

#include "autograd/metadata.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica {

namespace {

bool contains(TensorList list, const Tensor& t) {
  return std::any_of(list.begin(), list.end(), [&](const Tensor& x) { return x.is_same(t); });
}

void check_dirty(const CustomForward& forward, TensorList inputs, const TensorVec& outputs, bool recorded) {
  static constexpr const char* kNoInput =
      "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated should be "
      "passed to ctx.mark_dirty().";
  for (const Tensor& t : forward.dirty) {
    if (!contains(inputs, t)) {
      if (!recorded) continue;
      MICA_CHECK(!t.is_view(), kNoInput);
      warn(kNoInput);
      continue;
    }
    MICA_CHECK(contains(outputs, t),
               "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
               "are modified "
               "inplace must all be outputs of the Function.");
    const bool view_with_others = t.is_view() && outputs.size() > 1 && t.requires_grad();
    MICA_CHECK(!view_with_others,
               "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot "
               "return more than "
               "one Tensor. This is not supported by the current autograd engine. You should either make sure the "
               "input is not a "
               "view (using .clone() for example) or make your Function only return one Tensor (potentially splitting "
               "it into two "
               "Functions: one doing the inplace that returns a single Tensor and a second one that does the other "
               "operations).");
  }
}

// An input that forward returned as it is, as a view that can have a history of its own.
Tensor view_of_input(const Tensor& input) {
  Tensor view = bare_alias(input);
  set_view(view, input, ViewInfo::Creation::InCustomFunction);
  view.impl()->creation = ViewInfo::Creation::InCustomFunction;
  return view;
}

// An output that is a view of an input keeps that fact only to forbid in-place changes from now on. Changes that the
// forward itself has made are part of its result.
void forbid_rewriting(const Tensor& output, bool several) {
  if (!output.is_view()) return;
  output.impl()->view_version = output.impl()->version();
  output.impl()->creation = several ? ViewInfo::Creation::MultiOutput : ViewInfo::Creation::InCustomFunction;
}

}  // namespace

void CustomNode::save_tensors(TensorList tensors, TensorList outputs) {
  saved_.clear();
  saved_.reserve(tensors.size());
  for (const Tensor& t : tensors) {
    // A view that was changed in place is an output too, whose history leads here through its base.
    const Node* made_by = t.defined() && contains(outputs, t) ? t.grad_fn() : nullptr;
    const bool own = made_by && (made_by == this || t.is_view());
    saved_.emplace_back(t, own);
  }
}

TensorVec CustomNode::saved_tensors() {
  MICA_CHECK(!released_, kGraphFreed);
  TensorVec unpacked;
  unpacked.reserve(saved_.size());
  for (const SavedTensor& s : saved_) unpacked.push_back(s.unpack(this, true));
  return unpacked;
}

std::vector<SavedTensor>& CustomNode::raw_saved_tensors() {
  MICA_CHECK(!released_, kGraphFreed);
  return saved_;
}

void CustomNode::release_saved() {
  if (saved_.empty()) return;
  for (SavedTensor& s : saved_) s.reset();
  released_ = true;
}

void CustomNode::materialize(TensorVec& grads) const {
  if (!materialize_grads) return;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].defined() || inputs[i].dtype == DType::Undefined) continue;
    grads[i] = zeros(inputs[i].sizes, TensorOptions(inputs[i].dtype).device(inputs[i].device));
  }
}

TensorVec attach_custom_outputs(const Ref<Node>& node, TensorList inputs, TensorVec outputs,
                                const CustomForward& forward) {
  check_dirty(forward, inputs, outputs, static_cast<bool>(node));
  const auto differentiable = [&](const Tensor& t) {
    return t.defined() && (t.is_floating_point() || t.is_complex()) && !contains(forward.non_differentiable, t);
  };
  const bool several = std::count_if(outputs.begin(), outputs.end(), differentiable) > 1;
  for (Tensor& output : outputs) {
    if (!output.defined()) {
      if (node) node->inputs.emplace_back();
      continue;
    }
    const bool is_input = contains(inputs, output);
    const bool is_dirty = contains(forward.dirty, output);
    if (is_dirty) {
      check_inplace(output, static_cast<bool>(node));
      mark_changed(output);
    }
    if (!node || !differentiable(output)) {
      if (is_input && !is_dirty) {
        NoGradGuard no_grad;
        output = node ? bare_alias(output) : view_of_input(output);
      } else if (node && !is_dirty && output.requires_grad()) {
        output = bare_alias(output);
      } else if (!node && !is_dirty && grad_enabled()) {
        forbid_rewriting(output, several);
      }
      if (node) node->add_input(output);
    } else if (is_input && is_dirty) {
      rebase_history(output, node);
    } else {
      if (is_input) output = view_of_input(output);
      set_history(output, node);
      forbid_rewriting(output, several);
    }
  }
  return outputs;
}

}  // namespace mica
