#include "autograd/copy_slices.h"

#include <algorithm>

#include "core/geometry.h"
#include "mica/core/dispatch.h"
#include "mica/ops.h"

namespace mica {

namespace {

// The in-place change that this thread is undoing, so that its saved outputs find the node that stands for it in the
// graph.
struct Undoing {
  CopySlices* slices = nullptr;
  Node* change = nullptr;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Undoing undoing;

class UndoingGuard {
 public:
  UndoingGuard(CopySlices* slices, Node* change) : before_(std::exchange(undoing, {slices, change})) {}
  UndoingGuard(const UndoingGuard&) = delete;
  UndoingGuard& operator=(const UndoingGuard&) = delete;
  ~UndoingGuard() { undoing = before_; }

 private:
  Undoing before_;
};

}  // namespace

CopySlices::CopySlices(const Tensor& base, const Tensor& view, ViewInfo::Replay replay, Ref<Node> change)
    : base_(base), view_(view), replay_(std::move(replay)), change_(std::move(change)) {
  add_input(base);
  next_edges.reserve(std::max<size_t>(1, change_->next_edges.size()));
  next_edges.push_back(gradient_edge(base));
  for (size_t i = 1; i < change_->next_edges.size(); ++i) next_edges.push_back(change_->next_edges[i]);
}

Tensor CopySlices::view_of(const Tensor& base) const {
  if (replay_) return replay_(base);
  return as_strided(base, view_.sizes, view_.strides, view_.offset - base_.offset + base.storage_offset());
}

Tensor CopySlices::fresh_base(const Tensor* like) const {
  const TensorOptions options = TensorOptions(inputs[0].dtype).device(inputs[0].device);
  const Extent reach = extent(base_.sizes, base_.strides);
  if (reach.low == 0)
    return like ? new_empty_strided(*like, base_.sizes, base_.strides)
                : empty_strided(base_.sizes, base_.strides, options);
  // Negative strides: the first element does not come first in memory.
  const int64_t count = reach.high - reach.low;
  return as_strided(empty(IntArrayRef(count), options), base_.sizes, base_.strides, -reach.low);
}

void CopySlices::apply(TensorVec& grads, TensorVec& out) {
  const Ref<Node> change = change_;
  MICA_CHECK(change, kGraphFreed);
  Tensor result = fresh_base(dispatch::active ? &grads[0] : nullptr);
  result.copy_(grads[0]);
  Tensor inside = view_of(result);

  TensorVec change_grads{clone(inside)};
  TensorVec change_out(change->next_edges.size());
  {
    UndoingGuard guard(this, change.get());
    change->apply(change_grads, change_out);
  }
  change_out.resize(std::max<size_t>(1, change_out.size()));
  if (needs(0)) {
    if (change_out[0].defined()) {
      inside.copy_(change_out[0]);
    } else {
      inside.zero_();
    }
    out[0] = std::move(result);
  }
  for (size_t i = 1; i < out.size() && i < change_out.size(); ++i) out[i] = std::move(change_out[i]);
}

void CopySlices::release_saved() {
  if (change_) change_->release_saved();
  change_ = nullptr;
}

Tensor attach_output_history(Tensor data, Node* owner, uint32_t output_nr) {
  const DType dtype = data.dtype();
  if (!is_floating(dtype) && !is_complex(dtype)) return data;
  Ref<Node> function(owner);
  if (undoing.change == owner) {
    // A stand-in for the changed base, of which the data is a view.
    Tensor stand_in = undoing.slices->fresh_base();
    autograd_meta(stand_in).grad_fn = Ref<Node>(undoing.slices);
    stand_in.impl()->has_grad_fn = true;
    EnableGradGuard record;
    function = Ref<Node>(undoing.slices->view_of(stand_in).grad_fn());
    output_nr = 0;
  }
  AutogradMeta& meta = autograd_meta(data);
  meta.grad_fn = std::move(function);
  meta.output_nr = output_nr;
  data.impl()->has_grad_fn = true;
  return data;
}

}  // namespace mica
