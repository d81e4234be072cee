// Attention: a kernel that makes the scores again tile by tile, and plain operations where the derivative is itself
// differentiated.
#include "autograd/formulas/attention.h"

#include <cmath>

#include "autograd/formulas/seen.h"
#include "core/kernel_arguments.h"
#include "mica/backend/layer_backend.h"
#include "mica/ops.h"

namespace mica::formulas {

namespace {

// Several heads of the query may share one head of keys and values. That head is then repeated.
Tensor repeated_heads(const Tensor& t, int64_t heads) {
  const int64_t times = heads / t.size(1);
  return times == 1 ? t : mica::repeat_interleave(t, times, 1);
}

Tensor summed_heads(const Tensor& grad, int64_t heads) {
  if (grad.size(1) == heads) return grad;
  return mica::sum(grad.reshape({grad.size(0), heads, grad.size(1) / heads, grad.size(2), grad.size(3)}), 2);
}

// The weights of attention, in operations; rows that see nothing are zero.
Tensor attention_weights(const Tensor& query, const Tensor& key, bool is_causal, const Tensor& mask, double scale) {
  Tensor scores = mica::matmul(query * Scalar(scale), key.transpose(-2, -1));
  const TensorOptions options = scores.options();
  const Scalar minus_infinity(-INFINITY);
  if (mask.defined()) {
    scores = mask.dtype() == DType::Bool ? scores.masked_fill(mask.logical_not(), minus_infinity) : scores + mask;
  }
  if (is_causal) {
    const Tensor below = mica::tril(mica::ones({scores.size(-2), scores.size(-1)}, options.dtype(DType::Bool)));
    scores = scores.masked_fill(below.logical_not(), minus_infinity);
  }
  if (!mask.defined()) return mica::softmax(scores, -1);
  const Tensor empty_rows = mica::eq(scores, minus_infinity).all(-1, true);
  return mica::softmax(scores.masked_fill(empty_rows, Scalar(0)), -1).masked_fill(empty_rows, Scalar(0));
}

// Memory for a gradient, laid out as the tensor it belongs to.
Tensor room_for(const Tensor& t) {
  if (t.stride(1) >= t.stride(2)) return mica::empty(t.sizes(), t.options());
  return mica::empty({t.size(0), t.size(2), t.size(1), t.size(3)}, t.options()).transpose(1, 2);
}

// Whether query, key and value are thirds of rows of one tensor, as one projection makes them.
bool are_thirds(const Tensor& query, const Tensor& key, const Tensor& value) {
  if (!(key.storage() == query.storage()) || !(value.storage() == query.storage())) return false;
  if (key.sizes() != query.sizes() || value.sizes() != query.sizes()) return false;
  if (key.strides() != query.strides() || value.strides() != query.strides()) return false;
  const int64_t width = query.size(1) * query.size(3);
  return query.stride(3) == 1 && query.stride(1) == query.size(3) && query.stride(2) == 3 * width &&
         key.storage_offset() == query.storage_offset() + width &&
         value.storage_offset() == key.storage_offset() + width;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                      const Tensor& value, const Tensor& output,
                                                      const Tensor& logsumexp, bool is_causal, const Tensor& attn_mask,
                                                      std::optional<double> scale, const std::array<bool, 3>& wanted) {
  if (!grad.defined()) return {};
  if (is_seen()) {
    const double dropout = 0;
    const TensorVec made = seen("_scaled_dot_product_flash_attention_for_cpu_backward",
                                {grad, query, key, value, output, logsumexp, dropout, is_causal, attn_mask, scale}, 3,
                                {grad, query, key, value}, [=](const TensorVec& t) -> TensorVec {
                                  const auto [a, b, c] = attention_backward(t[0], t[1], t[2], t[3], output, logsumexp,
                                                                            is_causal, attn_mask, scale, wanted);
                                  return {a, b, c};
                                });
    return {made[0], made[1], made[2]};
  }
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
  Tensor grad_query, grad_key, grad_value;
  if (grad_enabled()) {
    const int64_t heads = query.size(1), kv_heads = key.size(1);
    const Tensor k = repeated_heads(key, heads), v = repeated_heads(value, heads);
    const Tensor weights = attention_weights(query, k, is_causal, attn_mask, factor);
    if (wanted[2]) grad_value = summed_heads(mica::matmul(weights.transpose(-2, -1), grad), kv_heads);
    if (!wanted[0] && !wanted[1]) return {grad_query, grad_key, grad_value};
    const Tensor grad_weights = mica::matmul(grad, v.transpose(-2, -1));
    const Tensor grad_scores = weights * (grad_weights - mica::sum(grad_weights * weights, -1, true)) * Scalar(factor);
    if (wanted[0]) grad_query = mica::matmul(grad_scores, k);
    if (wanted[1]) grad_key = summed_heads(mica::matmul(grad_scores.transpose(-2, -1), query), kv_heads);
    return {grad_query, grad_key, grad_value};
  }
  if (query.is_meta() || query.numel() == 0 || key.numel() == 0 || value.numel() == 0) {
    return {mica::zeros_like(query), mica::zeros_like(key), mica::zeros_like(value)};
  }
  if (are_thirds(query, key, value)) {
    // The gradients lie as query, key and value do, so that joining them takes no copy.
    const Tensor all =
        mica::empty({query.size(0), query.size(2), 3, query.size(1), query.size(3)}, query.options()).transpose(1, 3);
    grad_query = all.select(2, 0);
    grad_key = all.select(2, 1);
    grad_value = all.select(2, 2);
  } else {
    grad_query = room_for(query);
    grad_key = room_for(key);
    grad_value = room_for(value);
  }
  const auto rows = [](const Tensor& t) { return t.stride(3) == 1 || t.size(3) == 1 ? t : t.contiguous(); };
  const Tensor q = rows(query), k = rows(key), v = rows(value), g = rows(grad), o = rows(output);
  const Tensor mask = attn_mask.defined() ? attn_mask.expand({q.size(0), q.size(1), q.size(2), k.size(2)}) : attn_mask;
  MICA_LAYER_KERNEL(query.device(), attention_backward)
  (grad_query.view_of(), grad_key.view_of(), grad_value.view_of(), g.view_of(), o.view_of(), logsumexp.view_of(),
   q.view_of(), k.view_of(), v.view_of(), view_or_none(mask), is_causal, factor);
  return {grad_query, grad_key, grad_value};
}

}  // namespace mica::formulas
