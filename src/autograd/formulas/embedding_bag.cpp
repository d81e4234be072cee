#include "autograd/formulas/embedding_bag.h"

#include "autograd/formulas/indexing.h"
#include "autograd/formulas/seen.h"
#include "mica/autograd.h"
#include "mica/ops.h"
#include "shapes/embedding_bag.h"

namespace mica::formulas {

std::tuple<Tensor, Tensor> embedding_bag_backward(const Tensor& grad, const Tensor& weight, const Tensor& indices,
                                                  const Tensor& offsets, const Tensor& max_indices,
                                                  bool scale_grad_by_freq, int64_t mode, bool sparse,
                                                  const Tensor& per_sample_weights, bool include_last_offset,
                                                  int64_t padding_idx, const std::array<bool, 2>& wanted) {
  if (!grad.defined()) return {};
  MICA_CHECK(!sparse || mode != 2, "embedding_bag: max mode does not support sparse weights");
  shapes::Bags bags(indices, offsets, include_last_offset);
  if (include_last_offset) bags.run_to_the_end(mode, padding_idx, weight);
  int64_t used = bags.count() ? bags.indices.numel() : 0;
  if (used && include_last_offset) used = bags.begins[bags.count()].item<int64_t>();  // later indices are in no bag
  const Tensor rows = bags.indices.narrow(0, 0, used), bag_of = bags.bag_of().narrow(0, 0, used);
  const Tensor counted = padding_idx >= 0 ? rows.ne(Scalar(padding_idx)) : Tensor();
  Tensor grad_weight, grad_factors;
  if (wanted[0] && mode == 2) {
    // A bag in which no index counts has the maximum zero, which came from no row.
    const Tensor flags = counted.defined() ? counted.to(grad.dtype()) : ones({used}, grad.options());
    const Tensor filled = zeros_like_gradient(grad, {bags.count()}).index_add(0, bag_of, flags).gt(Scalar(0));
    grad_weight = zeros(weight.sizes(), weight.options())
                      .scatter_add(0, max_indices.to(DType::Int64), grad * filled.unsqueeze(1).to(grad.dtype()));
  } else if (wanted[0]) {
    Tensor spread = grad;
    if (mode == 1) {
      const Tensor flags = counted.defined() ? counted.to(grad.dtype()) : ones({used}, grad.options());
      const Tensor sizes = zeros_like_gradient(grad, {bags.count()}).index_add(0, bag_of, flags);
      spread = grad / clamp_min(sizes, Scalar(1)).unsqueeze(1);
    }
    spread = spread.index_select(0, bag_of);
    if (per_sample_weights.defined()) spread = spread * per_sample_weights.narrow(0, 0, used).unsqueeze(1);
    grad_weight = embedding_backward(spread, rows, weight.sizes(), padding_idx, scale_grad_by_freq, sparse);
  }
  if (wanted[1]) {
    const Tensor products = sum(grad.index_select(0, bag_of) * weight.index_select(0, rows), 1);
    grad_factors = zeros(per_sample_weights.sizes(), per_sample_weights.options());
    grad_factors = grad_factors.index_add(0, arange(Scalar(0), Scalar(used), Scalar(1), rows.options()),
                                          counted.defined() ? products * counted.to(grad.dtype()) : products);
  }
  return {grad_weight, grad_factors};
}

}  // namespace mica::formulas
