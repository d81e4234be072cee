#include "optim/rule.h"

namespace mica::optim {

static double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 2.220446049250313e-16;
    case DType::Float16:
      return 0.0009765625;
    case DType::BFloat16:
      return 0.0078125;
    default:
      return 1.1920928955078125e-07;
  }
}

static double root_mean_square(const Tensor& t) {
  return norm(t, 2).item().to_double() / std::sqrt(static_cast<double>(t.numel()));
}

// The mean of squares along a dimension, which is kept with size one.
static Tensor mean_square(const Tensor& t, int64_t dim) {
  return norm(t, 2, IntArrayRef{dim}, true).square_().div_(t.size(dim));
}

static void prepare(AdafactorItem& item) {
  MICA_CHECK(!item.param.is_complex(), "Adafactor does not support complex parameters");
  check_alike({&item.param, &item.grad});
  if (!item.step.defined()) item.step = new_counter(item.param, false);
  if (item.grad.dim() > 1) {
    DimVector rows(item.grad.sizes()), columns = rows;
    rows[rows.size() - 1] = 1;
    columns[columns.size() - 2] = 1;
    if (!item.row_var.defined()) item.row_var = item.grad.new_zeros(rows);
    if (!item.col_var.defined()) item.col_var = item.grad.new_zeros(columns);
    const Device device = item.param.device();
    MICA_CHECK(item.row_var.sizes() == rows.ref() && item.col_var.sizes() == columns.ref() &&
                   item.row_var.device() == device && item.col_var.device() == device,
               "Adafactor needs row_var and col_var of ", rows.ref(), " and ", columns.ref(), ", but got ",
               item.row_var, " and ", item.col_var);
  } else {
    if (!item.variance.defined()) item.variance = new_state(item.grad);
    check_alike({&item.grad, &item.variance});
  }
}

void adafactor_step(std::span<AdafactorItem> items, const AdafactorOptions& o) {
  refuse_sparse(items, "Adafactor");
  NoGradGuard no_grad;
  const double lr = o.lr.value();
  for (AdafactorItem& item : items) prepare(item);
  for (AdafactorItem& item : items) {
    const Tensor& param = item.param;
    const Tensor grad = o.maximize ? -item.grad : item.grad;
    const double eps1 = o.eps1 ? *o.eps1 : epsilon_of(param.dtype());
    const double t = advance(item.step), weight = std::pow(t, o.beta2_decay);
    const double rate = std::max(o.eps2, root_mean_square(param)) * std::min(lr, 1 / std::sqrt(t));
    if (o.weight_decay != 0) param.mul_(1 - lr * o.weight_decay);

    Tensor estimate;
    if (grad.dim() > 1) {
      item.row_var.lerp_(mean_square(grad, -1), weight);
      item.col_var.lerp_(mean_square(grad, -2), weight);
      estimate = matmul(item.row_var, item.col_var);
      estimate.div_(item.row_var.mean(IntArrayRef{-2}, true).clamp_(Scalar(eps1)));
    } else {
      item.variance.lerp_(grad * grad, weight);
      estimate = item.variance.clone();
    }
    const Tensor update = estimate.clamp_(Scalar(eps1 * eps1)).rsqrt_();
    update.mul_(grad);
    param.add_(update, -rate / std::max(1.0, root_mean_square(update) / o.d));
  }
}

}  // namespace mica::optim
