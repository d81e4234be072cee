#include "autograd/graph_task.h"

#include <algorithm>

#include "autograd/anomaly.h"
#include "dispatch/passes.h"
#include "mica/core/recording.h"
#include "mica/ops.h"
#include "mica/profiler.h"

namespace mica {

namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local GraphTask* current_task = nullptr;

class CurrentTaskGuard {
 public:
  explicit CurrentTaskGuard(GraphTask* task) : before_(std::exchange(current_task, task)) {}
  CurrentTaskGuard(const CurrentTaskGuard&) = delete;
  CurrentTaskGuard& operator=(const CurrentTaskGuard&) = delete;
  ~CurrentTaskGuard() { current_task = before_; }

 private:
  GraphTask* before_;
};

class UnwantedGuard {
 public:
  explicit UnwantedGuard(uint64_t mask) : saved_(std::exchange(unwanted_gradients, mask)) {}
  ~UnwantedGuard() { unwanted_gradients = saved_; }
  UnwantedGuard(const UnwantedGuard&) = delete;
  UnwantedGuard& operator=(const UnwantedGuard&) = delete;

 private:
  uint64_t saved_;
};

// A pass starts with the hooks of saved tensors that its caller has. Hooks that nodes push or pop are gone when it
// ends.
class SavedHooksGuard {
 public:
  SavedHooksGuard() {
    if (thread_modes & mode_bit::kSavedTensorHooks) [[unlikely]]
      before_ = saved_hook_stack().hooks;
  }
  ~SavedHooksGuard() {
    if (before_.empty() && !(thread_modes & mode_bit::kSavedTensorHooks)) [[likely]]
      return;
    saved_hook_stack().hooks.swap(before_);
    set_modes(mode_bit::kSavedTensorHooks, !saved_hook_stack().hooks.empty());
  }
  SavedHooksGuard(const SavedHooksGuard&) = delete;
  SavedHooksGuard& operator=(const SavedHooksGuard&) = delete;

 private:
  std::vector<std::shared_ptr<const SavedTensorHooks>> before_;
};

// Whether a sum may be formed in the tensor's own memory: nobody else sees it.
bool may_add_into(const Tensor& t) {
  const TensorImpl* impl = t.impl();
  return impl->use_count() == 1 && !impl->autograd && !impl->base && impl->storage &&
         recording::users(*impl->storage) == 1 && !(impl->bits & (tensor_bit::kSpecial | tensor_bit::kInference)) &&
         t.is_non_overlapping_and_dense();
}

}  // namespace

GraphTask* GraphTask::current() { return current_task; }

GraphTask::Slot* GraphTask::find(const Node* node) {
  if (node->task_.load(std::memory_order_relaxed) == this) [[likely]]
    return &slots_[node->task_slot_];
  if (contested_.empty()) return nullptr;
  const auto at = contested_.find(node);
  return at == contested_.end() ? nullptr : &slots_[at->second];
}

void GraphTask::add_gradient(Slot& slot, uint32_t input_nr, Tensor&& gradient) {
  if (input_nr > 0 && slot.others.empty()) slot.others.resize(slot.node->inputs.size() - 1);
  Tensor& sum = input_nr == 0 ? slot.first : slot.others[input_nr - 1];
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (gradient.defined()) {
    if (!grad_enabled() && may_add_into(sum)) {
      sum.add_(gradient);
    } else if (!grad_enabled() && may_add_into(gradient)) {
      gradient.add_(sum);
      sum = std::move(gradient);
    } else {
      // Only the second of a sum may be sparse.
      const bool dense_second = gradient.layout() == Layout::Strided && sum.layout() != Layout::Strided;
      sum = dense_second ? add(gradient, sum) : add(sum, gradient);
    }
  }
}

void GraphTask::push_ready(uint32_t slot) {
  ready_.push_back({slots_[slot].node->sequence, slot});
  std::push_heap(ready_.begin(), ready_.end());
}

void GraphTask::run() {
  CurrentTaskGuard current(this);
  EnableGradGuard mode(options_.create_graph);
  const SavedHooksGuard saved_hooks;
  recording::Pass recorded;
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end());
    const uint32_t slot = ready_.back().slot;
    ready_.pop_back();
    const Node& node = *slots_[slot].node;
    if (node.compiled && !node.is_accumulator) recorded.begin();
    evaluate(slots_[slot]);
  }
  recorded.end();
  // A callback may queue further ones.
  for (size_t i = 0; i < callbacks.size(); ++i) {
    const std::function<void()> callback = std::move(callbacks[i]);
    callback();
  }
}

void GraphTask::gather(Slot& slot) {
  grads_.clear();
  grads_.push_back(std::move(slot.first));
  const size_t count = slot.node->inputs.size();
  if (count > 1) [[unlikely]] {
    for (Tensor& t : slot.others) grads_.push_back(std::move(t));
    grads_.resize(count);
    slot.others.clear();
  }
}

void GraphTask::evaluate(Slot& slot) {
  Node& fn = *slot.node;
  gather(slot);
  if (selective_) {
    if (!slot.needed) run_tensor_hooks(fn, grads_);  // for a needed node call() runs them
    for (int32_t c = slot.first_capture; c >= 0; c = captures_[c].next)
      captured_[captures_[c].result] = grads_[captures_[c].input_nr];
    if (!slot.needed) return;
  }
  out_.clear();
  out_.resize(fn.next_edges.size());
  const bool any = std::any_of(grads_.begin(), grads_.end(), [](const Tensor& t) { return t.defined(); });
  if (any || fn.runs_without_gradients) {
    evaluating_ = &fn;
    {
      const profiler::Range range(fn.name(), profiler::Kind::Node, fn.sequence);
      call(fn);
    }
    evaluating_ = nullptr;
  } else if (fn.hooks && !fn.is_accumulator) {
    run_tensor_hooks(fn, grads_);  // the hooks learn that there is no gradient
  }
  if (!options_.keep_graph) fn.release_saved();
  send(fn);
}

uint64_t GraphTask::unwanted_edges(const Node& fn) {
  uint64_t mask = 0;
  for (size_t i = 0; i < std::min<size_t>(fn.next_edges.size(), 64); ++i) {
    const Node* next = fn.next_edges[i].function.get();
    const Slot* slot = next ? find(next) : nullptr;
    if (!(slot && slot->wanted())) mask |= uint64_t{1} << i;
  }
  return mask;
}

// A custom function of the program runs whether or not there are gradients.
void GraphTask::apply(Node& fn) {
  const dispatch::FormulaGuard formula(!fn.runs_without_gradients);
  fn.apply(grads_, out_);
}

void GraphTask::call(Node& fn) {
  const UnwantedGuard unwanted(selective_ ? unwanted_edges(fn) : 0);
  try {
    if (!fn.hooks && !fn.is_accumulator) [[likely]] {
      apply(fn);
      // A post-hook that was added while a saved tensor was unpacked. The incoming gradients are gone by then.
      if (fn.hooks && !fn.hooks->post_hooks.empty()) [[unlikely]]
        run_post_hooks(fn, out_, TensorVec(fn.inputs.size()));
    } else {
      run_tensor_hooks(fn, grads_);
      if (fn.hooks) run_pre_hooks(fn, grads_);
      const bool post = fn.hooks && !fn.hooks->post_hooks.empty();
      TensorVec came;
      if (post) came = grads_;
      apply(fn);
      if (post) {
        grads_.clear();
        // Hooks see gradients of the inputs' own shapes and dtypes.
        for (size_t i = 0; i < std::min(out_.size(), fn.next_edges.size()); ++i)
          if (const Edge& edge = fn.next_edges[i]; edge.function && out_[i].defined())
            validate_gradient(fn.name(), i, out_[i], edge.function->inputs[edge.input_nr]);
        run_post_hooks(fn, out_, came);
      }
    }
  } catch (...) {
    explain_failure(fn);
  }
  const size_t edges = fn.next_edges.size();
  if (out_.size() != edges) [[unlikely]] {
    const auto surplus = [](const Tensor& t) { return t.defined(); };
    if (out_.size() < edges || std::any_of(out_.begin() + static_cast<ptrdiff_t>(edges), out_.end(), surplus))
      fail(cat("Function ", fn.name(), " returned an invalid number of gradients - expected ", edges, ", but got ",
               out_.size()));
    out_.resize(edges);
  }
  if (anomaly_enabled()) [[unlikely]]
    check_for_nan(fn, out_);
}

// Passes the node's results on; undefined ones count as arrived too.
void GraphTask::send(Node& fn) {
  const size_t edges = fn.next_edges.size();
  for (size_t i = 0; i < edges; ++i) {
    const Edge& edge = fn.next_edges[i];
    if (!edge.function) continue;
    Slot* next = find(edge.function.get());
    if (selective_ && !(next && next->wanted())) continue;
    if (out_[i].defined()) {
      validate_gradient(fn.name(), i, out_[i], edge.function->inputs[edge.input_nr]);
      add_gradient(*next, edge.input_nr, std::move(out_[i]));
    }
    if (--next->missing == 0) push_ready(static_cast<uint32_t>(next - slots_.data()));
  }
}

TensorVec GraphTask::finish() {
  for (size_t i = 0; i < captured_.size(); ++i)
    MICA_CHECK(options_.allow_unused || captured_[i].defined(), "The differentiated Tensor at index ", i,
               " appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.");
  return std::move(captured_);
}

void GraphTask::clear() {
  for (const Slot& slot : slots_)
    if (slot.node->task_.load(std::memory_order_relaxed) == this)
      slot.node->task_.store(nullptr, std::memory_order_release);
  constexpr size_t kWorthKeeping = 4096;
  slots_.clear();
  if (slots_.capacity() > kWorthKeeping) slots_.shrink_to_fit();
  contested_.clear();
  ready_.clear();
  captures_.clear();
  captured_.clear();
  grads_.clear();
  out_.clear();
  callbacks.clear();
  evaluating_ = nullptr;
  roots_.clear();  // cleared last, because they hold the nodes
}

}  // namespace mica
