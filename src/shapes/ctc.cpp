#include "shapes/ctc.h"

#include <algorithm>

#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/loss_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"

namespace mica::shapes {

namespace {

constexpr const char* kWhere = " (while checking arguments for ctc_loss_allocate_outputs)";

void check_lengths(const char* name, IntArrayRef lengths, int64_t batch, int64_t most) {
  MICA_CHECK(static_cast<int64_t>(lengths.size()) == batch, name, " must be of size batch_size, ", batch, ", but has ",
             lengths.size(), " entries");
  for (int64_t n : lengths) {
    MICA_CHECK(n >= 0, "Expected ", name, " to have value at least 0, but got value ", n, kWhere);
    MICA_CHECK(most < 0 || n <= most, "Expected ", name, " to have value at most ", most, ", but got value ", n,
               kWhere);
  }
}

}  // namespace

CtcTargets::CtcTargets(const Tensor& targets, IntArrayRef lengths)
    : flat(targets.to(DType::Int64).contiguous().view({-1})) {
  int64_t at = 0;
  for (int64_t n : lengths) {
    begins.push_back(at);
    at += targets.dim() == 1 ? n : targets.size(1);
  }
}

void _ctc_loss(Out& loss, Out& alpha, const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
               IntArrayRef target_lengths, int64_t blank, bool) {
  MICA_CHECK(log_probs.dim() == 3, "Expected 3-dimensional tensor, but got ", log_probs.dim(),
             "-dimensional tensor for argument #1 'log_probs'", kWhere);
  check_one_device("ctc_loss", {&log_probs, &targets});
  MICA_CHECK(log_probs.numel() > 0, "log_probs tensor must not be empty");
  const int64_t time = log_probs.size(0), batch = log_probs.size(1), classes = log_probs.size(2);
  MICA_CHECK(blank >= 0 && blank < classes, "blank must be in label range");
  check_lengths("input_lengths", input_lengths, batch, time);
  check_lengths("target_lengths", target_lengths, batch, -1);
  int64_t total = 0, longest = 0;
  for (int64_t n : target_lengths) {
    MICA_CHECK(n <= targets.numel(), "Expected target_lengths to have value at most ", targets.numel(),
               ", the number of targets, but got value ", n, kWhere);
    total += n;
    longest = std::max(longest, n);
  }
  if (targets.dim() == 1) {
    MICA_CHECK(targets.size(0) == total, "Expected tensor to have size ", total, " at dimension 0, but got size ",
               targets.size(0), " for argument #2 'targets'", kWhere);
  } else {
    MICA_CHECK(targets.dim() == 2, "Expected 1 to 2 dimensions, but got ", targets.dim(),
               "-dimensional tensor for argument #2 'targets'", kWhere);
    MICA_CHECK(targets.size(0) == batch, "Expected tensor to have size ", batch, " at dimension 0, but got size ",
               targets.size(0), " for argument #2 'targets'", kWhere);
    MICA_CHECK(targets.size(1) >= longest, "Expected tensor to have size at least ", longest,
               " at dimension 1, but got size ", targets.size(1), " for argument #2 'targets'", kWhere);
  }
  if (log_probs.dtype() != DType::Float32 && log_probs.dtype() != DType::Float64)
    unsupported_dtype("ctc_loss_cpu", log_probs.dtype());
  const Tensor& losses = loss.set({batch}, log_probs.dtype(), log_probs.device());
  const Tensor& forward = alpha.set({batch, time, 2 * longest + 1}, log_probs.dtype(), log_probs.device());
  if (!loss.needs_kernel()) return;
  const CtcTargets labels(targets, target_lengths);
  MICA_LAYER_KERNEL(log_probs.device(), ctc_loss)
  (losses.view_of(), forward.view_of(), log_probs.view_of(), labels.flat.view_of(), labels.begins, input_lengths,
   target_lengths, blank);
}

void _ctc_loss_backward(Out& out, const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                        IntArrayRef input_lengths, IntArrayRef target_lengths, const Tensor& loss, const Tensor& alpha,
                        int64_t blank, bool zero_infinity) {
  const Tensor& result = out.set(log_probs.sizes(), log_probs.dtype(), log_probs.device());
  if (!out.needs_kernel()) return;
  result.zero_();
  const CtcTargets labels(targets, target_lengths);
  const Tensor g = grad.contiguous();
  MICA_LAYER_KERNEL(result.device(), ctc_loss_backward)
  (result.view_of(), g.view_of(), log_probs.view_of(), labels.flat.view_of(), loss.view_of(), alpha.view_of(),
   labels.begins, input_lengths, target_lengths, blank, zero_infinity);
}

}  // namespace mica::shapes
