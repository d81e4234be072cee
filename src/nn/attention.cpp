#include "mica/nn/attention.h"

#include "mica/layers.h"

namespace mica::nn {

// The class of the output's projection has this name in Python, by which tools for quantization leave it alone.
class NonDynamicallyQuantizableLinearImpl : public LinearImpl {
 public:
  using LinearImpl::LinearImpl;
};

MultiheadAttentionImpl::MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads, Options given)
    : embed_dim(embed_dim), num_heads(num_heads), options(given) {
  MICA_CHECK_KIND(embed_dim > 0 && num_heads > 0, Value, "embed_dim and num_heads must be greater than 0, got ",
                  "embed_dim=", embed_dim, " and num_heads=", num_heads, " instead");
  MICA_CHECK_KIND(embed_dim % num_heads == 0, Value, "embed_dim must be divisible by num_heads");
  const int64_t kdim = options.kdim.value_or(embed_dim), vdim = options.vdim.value_or(embed_dim);
  const bool one_size = kdim == embed_dim && vdim == embed_dim;
  const auto add = [&](const char* name, bool wanted, IntArrayRef sizes) {
    return register_parameter(name, wanted ? empty(sizes) : Tensor());
  };
  q_proj_weight = add("q_proj_weight", !one_size, {embed_dim, embed_dim});
  k_proj_weight = add("k_proj_weight", !one_size, {embed_dim, kdim});
  v_proj_weight = add("v_proj_weight", !one_size, {embed_dim, vdim});
  in_proj_weight = add("in_proj_weight", one_size, {3 * embed_dim, embed_dim});
  in_proj_bias = add("in_proj_bias", options.bias, {3 * embed_dim});
  const LinearOptions projection{.bias = options.bias};
  out_proj = register_module(
      "out_proj", Linear(std::make_shared<NonDynamicallyQuantizableLinearImpl>(embed_dim, embed_dim, projection)));
  bias_k = add("bias_k", options.add_bias_kv, {1, 1, embed_dim});
  bias_v = add("bias_v", options.add_bias_kv, {1, 1, embed_dim});
  reset_parameters();
}

void MultiheadAttentionImpl::reset_parameters() {
  for (const Tensor& w : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight})
    if (w.defined()) init_xavier_uniform_(w);
  if (in_proj_bias.defined()) {
    init_zeros_(in_proj_bias);
    init_zeros_(out_proj->bias);
  }
  for (const Tensor& b : {bias_k, bias_v})
    if (b.defined()) init_xavier_normal_(b);
}

std::tuple<Tensor, Tensor> MultiheadAttentionImpl::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                           const AttentionCall& call) {
  const bool turns = options.batch_first && query.dim() == 3;
  const auto turned = [&](const Tensor& t) { return turns ? t.transpose(0, 1) : t; };
  // If query, key and value are one tensor, they stay one, so that it is projected once.
  const Tensor q = turned(query);
  const Tensor k = key.is_same(query) ? q : turned(key);
  const Tensor v = value.is_same(key) ? k : value.is_same(query) ? q : turned(value);
  auto [out, weights] = _multi_head_attention_forward(
      q, k, v, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, options.add_zero_attn, options.dropout,
      out_proj->weight, out_proj->bias, is_training(), call.key_padding_mask, call.need_weights, call.attn_mask,
      !in_proj_weight.defined(), q_proj_weight, k_proj_weight, v_proj_weight, {}, {}, call.average_attn_weights,
      call.is_causal);
  return {turned(out), weights};
}

}  // namespace mica::nn
