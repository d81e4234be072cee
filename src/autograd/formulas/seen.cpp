#include "autograd/formulas/seen.h"

#include <utility>

#include "mica/core/class_alias.h"
#include "mica/ops.h"

namespace mica::formulas {

namespace {

thread_local bool composing = false;

class ComposingGuard {
 public:
  ComposingGuard() : before_(std::exchange(composing, true)) {}
  ComposingGuard(const ComposingGuard&) = delete;
  ComposingGuard& operator=(const ComposingGuard&) = delete;
  ~ComposingGuard() { composing = before_; }

 private:
  bool before_;
};

// The history of an answer that a mode gave: the derivative is computed again by operations, and those are
// differentiated.
struct SeenDerivative final : Node {
  std::vector<SavedTensor> saved;
  Composed composed;

  const char* name() const override { return "SeenDerivative"; }
  void apply(TensorVec& grads, TensorVec& out) override {
    TensorVec inputs, wanted, results, upstream;
    const bool again = grad_enabled();
    {
      const EnableGradGuard recording(true);
      // New tensors, because one input may be computed from another.
      for (const SavedTensor& each : saved) {
        const Tensor t = each.unpack();
        const bool leads = t.defined() && t.requires_grad();
        inputs.push_back(!leads ? t : again ? t.view_as(t) : t.detach().requires_grad_(true));
      }
      const ComposingGuard guard;
      results = composed(inputs);
    }
    TensorVec made;
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i].defined() && results[i].requires_grad() && grads[i].defined()) {
        made.push_back(results[i]);
        upstream.push_back(grads[i]);
      }
    if (made.empty()) return;
    std::vector<size_t> places;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (needs(i)) {
        places.push_back(i);
        wanted.push_back(inputs[i]);
      }
    TensorVec found = autograd::grad(made, wanted, upstream, again, again, true);
    for (size_t i = 0; i < places.size(); ++i) out[places[i]] = std::move(found[i]);
  }
  void release_saved() override {
    for (SavedTensor& each : saved) each.reset();
  }
};

}  // namespace

Tensor zeros_like_gradient(const Tensor& grad, IntArrayRef sizes) {
  return dispatch::in_parts ? new_zeros(grad, sizes) : zeros(sizes, grad.options());
}

bool is_seen() { return dispatch::active && !composing; }

TensorVec seen(const char* name, dispatch::Arguments arguments, int count, TensorVec inputs, Composed composed) {
  const bool needs = compute_requires_grad(TensorList(inputs));
  TensorVec results = dispatch::call(name, arguments, count, true);
  if (!needs) return results;
  auto* made = new SeenDerivative;
  const Ref<Node> node = Ref<Node>::adopt(made);
  made->composed = std::move(composed);
  for (const Tensor& each : inputs) {
    made->next_edges.push_back(gradient_edge(each));
    made->saved.push_back(SavedTensor(each));
  }
  for (const Tensor& each : results) set_history(each, node);
  return results;
}

Tensor seen_one(const char* name, dispatch::Arguments arguments, TensorVec inputs, Composed composed) {
  return std::move(seen(name, arguments, 1, std::move(inputs), std::move(composed))[0]);
}

}  // namespace mica::formulas
