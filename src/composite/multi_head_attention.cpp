#include <cmath>

#include "mica/generated/layers/attention.h"
#include "mica/generated/layers/attention_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

namespace {

void check_shapes(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& key_padding_mask,
                  const Tensor& attn_mask, int64_t num_heads) {
  const bool batched = query.dim() == 3;
  MICA_CHECK(batched || query.dim() == 2, "query should be unbatched 2D or batched 3D tensor but received ",
             query.dim(), "-D query tensor");
  const char* which = batched ? "batched (3-D)" : "unbatched (2-D)";
  MICA_CHECK(key.dim() == query.dim() && value.dim() == query.dim(), "For ", which,
             " `query`, expected `key` and `value` to be ", query.dim(), "-D but found ", key.dim(), "-D and ",
             value.dim(), "-D tensors respectively");
  MICA_CHECK(!key_padding_mask.defined() || key_padding_mask.dim() == query.dim() - 1, "For ", which,
             " `query`, expected `key_padding_mask` to be `None` or ", query.dim() - 1, "-D but found ",
             key_padding_mask.dim(), "-D tensor instead");
  if (!attn_mask.defined()) return;
  MICA_CHECK(attn_mask.dim() == 2 || attn_mask.dim() == 3, "For ", which,
             " `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found ", attn_mask.dim(),
             "-D tensor instead");
  if (batched || attn_mask.dim() == 2) return;
  MICA_CHECK(attn_mask.sizes() == IntArrayRef({num_heads, query.size(0), key.size(0)}),
             "Expected `attn_mask` shape to be (", num_heads, ", ", query.size(0), ", ", key.size(0), ") but got ",
             attn_mask.sizes());
}

struct Projected {
  Tensor query, key, value;
};

Tensor part(const Tensor& t, int64_t first, int64_t count) { return t.defined() ? t.narrow(0, first, count) : t; }

// One weight projects all three. Where the three inputs are one tensor, it is multiplied once.
Projected project(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& weight,
                  const Tensor& bias) {
  const int64_t e = query.size(-1);
  if (key.is_same(value) && query.is_same(key)) {
    const Tensor all = mica::linear(query, weight, bias);
    return {all.narrow(-1, 0, e), all.narrow(-1, e, e), all.narrow(-1, 2 * e, e)};
  }
  const Tensor q = mica::linear(query, part(weight, 0, e), part(bias, 0, e));
  if (key.is_same(value)) {
    const Tensor both = mica::linear(key, part(weight, e, 2 * e), part(bias, e, 2 * e));
    return {q, both.narrow(-1, 0, e), both.narrow(-1, e, e)};
  }
  return {q, mica::linear(key, part(weight, e, e), part(bias, e, e)),
          mica::linear(value, part(weight, 2 * e, e), part(bias, 2 * e, e))};
}

Projected project_separately(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& w_q,
                             const Tensor& w_k, const Tensor& w_v, const Tensor& bias) {
  const int64_t e = query.size(-1);
  const auto check = [&](const char* what, const Tensor& w, int64_t features) {
    MICA_CHECK(w.sizes() == IntArrayRef({e, features}), "expecting ", what, " weights shape of (", e, ", ", features,
               "), but got ", w.sizes());
  };
  check("query", w_q, e);
  check("key", w_k, key.size(-1));
  check("value", w_v, value.size(-1));
  MICA_CHECK(!bias.defined() || bias.sizes() == IntArrayRef({3 * e}), "expecting query bias shape of (", e,
             ",), but the biases of all three together are ", bias.sizes());
  return {mica::linear(query, w_q, part(bias, 0, e)), mica::linear(key, w_k, part(bias, e, e)),
          mica::linear(value, w_v, part(bias, 2 * e, e))};
}

// (length, batch, heads * width) as (batch, heads, length, width), a view.
Tensor split_heads(const Tensor& t, int64_t heads) {
  return t.unflatten(-1, {heads, t.size(-1) / heads}).permute({1, 2, 0, 3});
}

Tensor checked_static(const char* name, const Tensor& t, int64_t batch, int64_t heads, int64_t width) {
  MICA_CHECK(t.dim() == 3 && t.size(0) == batch * heads, "expecting ", name, ".size(0) of ", batch * heads,
             ", but got ", t.size(0));
  MICA_CHECK(t.size(2) == width, "expecting ", name, ".size(2) of ", width, ", but got ", t.size(2));
  return t.view({batch, heads, t.size(1), width});
}

Tensor with_free_key(const Tensor& mask) { return mask.defined() ? mica::pad(mask, {0, 1}) : mask; }

}  // namespace

std::tuple<Tensor, Tensor> _multi_head_attention_forward(
    const Tensor& query_in, const Tensor& key_in, const Tensor& value_in, int64_t num_heads,
    const Tensor& in_proj_weight, const Tensor& in_proj_bias, const Tensor& bias_k, const Tensor& bias_v,
    bool add_zero_attn, double dropout_p, const Tensor& out_proj_weight, const Tensor& out_proj_bias, bool training,
    const Tensor& key_padding_mask_in, bool need_weights, const Tensor& attn_mask_in, bool use_separate_proj_weight,
    const Tensor& q_proj_weight, const Tensor& k_proj_weight, const Tensor& v_proj_weight, const Tensor& static_k,
    const Tensor& static_v, bool average_attn_weights, bool is_causal) {
  check_shapes(query_in, key_in, value_in, key_padding_mask_in, attn_mask_in, num_heads);
  const bool batched = query_in.dim() == 3;
  Tensor query = query_in, key = key_in, value = value_in, padding = key_padding_mask_in, mask = attn_mask_in;
  if (!batched) {
    query = query_in.unsqueeze(1);
    key = key_in.is_same(query_in) ? query : key_in.unsqueeze(1);
    value = value_in.is_same(key_in) ? key : value_in.unsqueeze(1);
    if (padding.defined()) padding = padding.unsqueeze(0);
  }
  const int64_t length = query.size(0), batch = query.size(1), embed = query.size(2);
  int64_t source = key.size(0);
  const DType dtype = query.dtype();
  padding = mica::_canonical_mask(padding, "key_padding_mask",
                                  mask.defined() ? std::optional<DType>(mask.dtype()) : std::nullopt, "attn_mask",
                                  dtype, true);
  MICA_CHECK(!is_causal || mask.defined(),
             "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
             "`generate_square_subsequent_mask` to create this mask.");
  if (is_causal && !padding.defined() && !need_weights) {
    mask = Tensor();  // the kernel needs no mask for that
  } else {
    mask = mica::_canonical_mask(mask, "attn_mask", std::nullopt, "", dtype, false);
    if (padding.defined()) is_causal = false;
  }

  MICA_CHECK(num_heads > 0 && embed % num_heads == 0, "embed_dim ", embed, " not divisible by num_heads ", num_heads);
  const int64_t width = embed / num_heads;
  if (use_separate_proj_weight) {
    MICA_CHECK(key.sizes().slice(0, 2) == value.sizes().slice(0, 2), "key's sequence and batch dims ",
               key.sizes().slice(0, 2), " do not match value's ", value.sizes().slice(0, 2));
  } else {
    MICA_CHECK(key.sizes() == value.sizes(), "key shape ", key.sizes(), " does not match value shape ", value.sizes());
  }
  Projected p;
  if (use_separate_proj_weight) {
    MICA_CHECK(q_proj_weight.defined(), "use_separate_proj_weight is True but q_proj_weight is None");
    MICA_CHECK(k_proj_weight.defined(), "use_separate_proj_weight is True but k_proj_weight is None");
    MICA_CHECK(v_proj_weight.defined(), "use_separate_proj_weight is True but v_proj_weight is None");
    p = project_separately(query, key, value, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias);
  } else {
    MICA_CHECK(in_proj_weight.defined(), "use_separate_proj_weight is False but in_proj_weight is None");
    p = project(query, key, value, in_proj_weight, in_proj_bias);
  }

  if (mask.defined() && mask.dim() == 2) {
    MICA_CHECK(mask.sizes() == IntArrayRef({length, source}), "The shape of the 2D attn_mask is ", mask.sizes(),
               ", but should be (", length, ", ", source, ").");
  } else if (mask.defined()) {
    MICA_CHECK(mask.sizes() == IntArrayRef({batch * num_heads, length, source}), "The shape of the 3D attn_mask is ",
               mask.sizes(), ", but should be (", batch * num_heads, ", ", length, ", ", source, ").");
    mask = mask.view({batch, num_heads, length, source});
  }

  if (bias_k.defined() && bias_v.defined()) {
    MICA_CHECK(!static_k.defined(), "bias cannot be added to static key.");
    MICA_CHECK(!static_v.defined(), "bias cannot be added to static value.");
    p.key = mica::cat({p.key, bias_k.repeat({1, batch, 1})}, 0);
    p.value = mica::cat({p.value, bias_v.repeat({1, batch, 1})}, 0);
    mask = with_free_key(mask);
    padding = with_free_key(padding);
  } else {
    MICA_CHECK(!bias_k.defined(), "bias_k is set but bias_v is None");
    MICA_CHECK(!bias_v.defined(), "bias_v is set but bias_k is None");
  }
  const Tensor q = split_heads(p.query, num_heads);
  Tensor k = static_k.defined() ? checked_static("static_k", static_k, batch, num_heads, width)
                                : split_heads(p.key, num_heads);
  Tensor v = static_v.defined() ? checked_static("static_v", static_v, batch, num_heads, width)
                                : split_heads(p.value, num_heads);
  if (add_zero_attn) {
    k = mica::constant_pad_nd(k, {0, 0, 0, 1});
    v = mica::constant_pad_nd(v, {0, 0, 0, 1});
    mask = with_free_key(mask);
    padding = with_free_key(padding);
  }
  source = k.size(2);
  if (padding.defined()) {
    MICA_CHECK(padding.sizes() == IntArrayRef({batch, source}), "Expected key_padded_mask.shape to be (", batch, ", ",
               source, "), but got ", padding.sizes());
    padding = padding.view({batch, 1, 1, source});
    mask = mask.defined() ? mask + padding : padding.expand({batch, num_heads, 1, source});
  }
  if (!training) dropout_p = 0.0;

  Tensor result, weights;
  if (need_weights) {
    const Tensor scores = mica::matmul(q * Scalar(std::sqrt(1.0 / static_cast<double>(width))), k.transpose(-2, -1));
    weights = mica::softmax(mask.defined() ? scores + mask : scores, -1);
    if (dropout_p > 0.0) weights = mica::dropout(weights, dropout_p, true);
    result = mica::matmul(weights, v);
  } else {
    result = mica::scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, std::nullopt, false);
  }
  result = mica::linear(result.permute({2, 0, 1, 3}).reshape({length * batch, embed}), out_proj_weight, out_proj_bias);
  result = result.view({length, batch, result.size(1)});
  if (need_weights && average_attn_weights) weights = mica::mean(weights, 1);
  if (!batched) {
    result = result.squeeze(1);
    if (need_weights) weights = weights.squeeze(0);
  }
  return {result, weights};
}

}  // namespace mica::composite
