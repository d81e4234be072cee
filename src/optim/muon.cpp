#include "optim/rule.h"

namespace mica::optim {

// Pushes the singular values of a matrix towards one by a quintic iteration on its Gram matrix, in bfloat16: their
// order of magnitude is all that the step needs.
static Tensor orthogonalized(const Tensor& matrix, const MuonOptions& o) {
  const auto [a, b, c] = o.ns_coefficients;
  const bool tall = matrix.size(0) > matrix.size(1);
  Tensor x = matrix.to(DType::BFloat16);
  if (tall) x = x.t();
  x = x.div(norm(x, 2).clamp(Scalar(o.eps)));
  for (int64_t i = 0; i < o.ns_steps; ++i) {
    const Tensor gram = mm(x, x.t());
    const Tensor update = addmm(gram, gram, gram, b, c);
    x = addmm(x, update, x, a);
  }
  return tall ? x.t() : x;
}

static double adjusted_rate(double lr, const std::string& how, const Tensor& param) {
  const double rows = static_cast<double>(param.size(0)), columns = static_cast<double>(param.size(1));
  if (how == "match_rms_adamw") return lr * 0.2 * std::sqrt(std::max(rows, columns));
  return lr * std::sqrt(std::max(1.0, rows / columns));
}

void muon_step(std::span<MuonItem> items, const MuonOptions& o) {
  refuse_sparse(items, "Muon");
  NoGradGuard no_grad;
  MICA_CHECK_KIND(o.ns_steps < 100, Value, "Number of steps must be less than 100 for computational efficiency");
  const double lr = o.lr.value();
  for (MuonItem& item : items) {  // all are checked before one is changed
    MICA_CHECK(!item.param.is_complex(), "Muon does not support complex parameters");
    MICA_CHECK_KIND(item.grad.dim() == 2, Value, "Param gradient must be a 2D matrix");
    if (!item.momentum_buffer.defined()) item.momentum_buffer = new_state(item.grad);
    check_alike({&item.param, &item.grad, &item.momentum_buffer});
  }
  for (MuonItem& item : items) {
    item.momentum_buffer.lerp_(item.grad, 1 - o.momentum);
    const Tensor direction = o.nesterov ? item.grad.lerp(item.momentum_buffer, o.momentum) : item.momentum_buffer;
    const Tensor update = orthogonalized(direction, o);
    item.param.mul_(1 - lr * o.weight_decay);
    item.param.add_(update, -adjusted_rate(lr, o.adjust_lr_fn, item.param));
  }
}

}  // namespace mica::optim
