#include "mica/nn/transformer.h"

#include "mica/layers.h"

namespace mica::nn {

MultiheadAttentionImpl::MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads, Options given)
    : embed_dim(embed_dim), num_heads(num_heads), options(given) {
  MICA_CHECK_KIND(embed_dim > 0 && num_heads > 0, Value, "embed_dim and num_heads must be greater than 0, got ",
                  "embed_dim=", embed_dim, " and num_heads=", num_heads, " instead");
  MICA_CHECK_KIND(embed_dim % num_heads == 0, Value, "embed_dim must be divisible by num_heads");
  const int64_t kdim = options.kdim.value_or(embed_dim), vdim = options.vdim.value_or(embed_dim);
  const bool same = kdim == embed_dim && vdim == embed_dim;
  const auto unless = [](bool absent, IntArrayRef sizes) { return absent ? Tensor() : empty(sizes); };
  q_proj_weight = register_parameter("q_proj_weight", unless(same, {embed_dim, embed_dim}));
  k_proj_weight = register_parameter("k_proj_weight", unless(same, {embed_dim, kdim}));
  v_proj_weight = register_parameter("v_proj_weight", unless(same, {embed_dim, vdim}));
  in_proj_weight = register_parameter("in_proj_weight", unless(!same, {3 * embed_dim, embed_dim}));
  in_proj_bias = register_parameter("in_proj_bias", unless(!options.bias, {3 * embed_dim}));
  out_proj = register_module("out_proj", Linear(embed_dim, embed_dim, {.bias = options.bias}));
  bias_k = register_parameter("bias_k", unless(!options.add_bias_kv, {1, 1, embed_dim}));
  bias_v = register_parameter("bias_v", unless(!options.add_bias_kv, {1, 1, embed_dim}));
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
  const bool swaps = options.batch_first && query.dim() == 3;
  const auto in_order = [&](const Tensor& t) { return swaps ? t.transpose(0, 1) : t; };
  auto [out, weights] = _multi_head_attention_forward(
      in_order(query), in_order(key), in_order(value), num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v,
      options.add_zero_attn, options.dropout, out_proj->weight, out_proj->bias, is_training(), call.key_padding_mask,
      call.need_weights, call.attn_mask, !in_proj_weight.defined(), q_proj_weight, k_proj_weight, v_proj_weight, {}, {},
      call.average_attn_weights, call.is_causal);
  return {in_order(out), weights};
}

static MultiheadAttentionOptions attention_options(const TransformerLayerOptions& o) {
  return {.dropout = o.dropout, .bias = o.bias, .batch_first = o.batch_first};
}
static LayerNormOptions norm_options(const TransformerLayerOptions& o) {
  return {.eps = o.layer_norm_eps, .bias = o.bias};
}
static Tensor activate(const TransformerLayerOptions& o, const Tensor& x) {
  if (o.activation == "relu") return relu(x);
  MICA_CHECK(o.activation == "gelu", "activation should be relu/gelu, not ", o.activation);
  return gelu(x);
}

TransformerEncoderLayerImpl::TransformerEncoderLayerImpl(int64_t d_model, int64_t nhead, Options o)
    : options(o),
      self_attn(register_module("self_attn", MultiheadAttention(d_model, nhead, attention_options(o)))),
      linear1(register_module("linear1", Linear(d_model, o.dim_feedforward, {.bias = o.bias}))),
      dropout(register_module("dropout", Dropout(o.dropout))),
      linear2(register_module("linear2", Linear(o.dim_feedforward, d_model, {.bias = o.bias}))),
      norm1(register_module("norm1", LayerNorm(d_model, norm_options(o)))),
      norm2(register_module("norm2", LayerNorm(d_model, norm_options(o)))),
      dropout1(register_module("dropout1", Dropout(o.dropout))),
      dropout2(register_module("dropout2", Dropout(o.dropout))) {}

Tensor TransformerEncoderLayerImpl::forward(const Tensor& src, const EncoderCall& call) {
  const auto attend = [&](const Tensor& x) {
    const AttentionCall how{.key_padding_mask = call.src_key_padding_mask,
                            .attn_mask = call.src_mask,
                            .need_weights = false,
                            .is_causal = call.is_causal};
    return dropout1(std::get<0>(self_attn(x, x, x, how)));
  };
  const auto feed = [&](const Tensor& x) { return dropout2(linear2(dropout(activate(options, linear1(x))))); };
  if (options.norm_first) {
    const Tensor x = src + attend(norm1(src));
    return x + feed(norm2(x));
  }
  const Tensor x = norm1(src + attend(src));
  return norm2(x + feed(x));
}

TransformerDecoderLayerImpl::TransformerDecoderLayerImpl(int64_t d_model, int64_t nhead, Options o)
    : options(o),
      self_attn(register_module("self_attn", MultiheadAttention(d_model, nhead, attention_options(o)))),
      multihead_attn(register_module("multihead_attn", MultiheadAttention(d_model, nhead, attention_options(o)))),
      linear1(register_module("linear1", Linear(d_model, o.dim_feedforward, {.bias = o.bias}))),
      dropout(register_module("dropout", Dropout(o.dropout))),
      linear2(register_module("linear2", Linear(o.dim_feedforward, d_model, {.bias = o.bias}))),
      norm1(register_module("norm1", LayerNorm(d_model, norm_options(o)))),
      norm2(register_module("norm2", LayerNorm(d_model, norm_options(o)))),
      norm3(register_module("norm3", LayerNorm(d_model, norm_options(o)))),
      dropout1(register_module("dropout1", Dropout(o.dropout))),
      dropout2(register_module("dropout2", Dropout(o.dropout))),
      dropout3(register_module("dropout3", Dropout(o.dropout))) {}

Tensor TransformerDecoderLayerImpl::forward(const Tensor& tgt, const Tensor& memory, const DecoderCall& call) {
  const auto attend = [&](const Tensor& x) {
    const AttentionCall how{.key_padding_mask = call.tgt_key_padding_mask,
                            .attn_mask = call.tgt_mask,
                            .need_weights = false,
                            .is_causal = call.tgt_is_causal};
    return dropout1(std::get<0>(self_attn(x, x, x, how)));
  };
  const auto look_up = [&](const Tensor& x) {
    const AttentionCall how{.key_padding_mask = call.memory_key_padding_mask,
                            .attn_mask = call.memory_mask,
                            .need_weights = false,
                            .is_causal = call.memory_is_causal};
    return dropout2(std::get<0>(multihead_attn(x, memory, memory, how)));
  };
  const auto feed = [&](const Tensor& x) { return dropout3(linear2(dropout(activate(options, linear1(x))))); };
  if (options.norm_first) {
    Tensor x = tgt + attend(norm1(tgt));
    x = x + look_up(norm2(x));
    return x + feed(norm3(x));
  }
  Tensor x = norm1(tgt + attend(tgt));
  x = norm2(x + look_up(x));
  return norm3(x + feed(x));
}

// Python makes one layer and copies it, so that all start alike.
template <class Layer>
static std::vector<Layer> alike_layers(int64_t d_model, int64_t nhead, int64_t count,
                                       const TransformerLayerOptions& options) {
  std::vector<Layer> layers;
  const Layer first(d_model, nhead, options);
  for (int64_t i = 0; i < count; ++i) {
    layers.push_back(Layer(d_model, nhead, options));
    layers.back()->load_state_dict(first->state_dict());
  }
  return layers;
}

TransformerEncoderImpl::TransformerEncoderImpl(int64_t d_model, int64_t nhead, int64_t num_layers,
                                               TransformerLayerOptions options, bool final_norm)
    : layers(register_module("layers", ModuleList<TransformerEncoderLayer>(alike_layers<TransformerEncoderLayer>(
                                           d_model, nhead, num_layers, options)))) {
  if (final_norm) norm = register_module("norm", LayerNorm(d_model, norm_options(options)));
}
Tensor TransformerEncoderImpl::forward(const Tensor& src, const EncoderCall& call) {
  Tensor x = src;
  for (const TransformerEncoderLayer& layer : layers) x = layer(x, call);
  return norm ? norm(x) : x;
}

TransformerDecoderImpl::TransformerDecoderImpl(int64_t d_model, int64_t nhead, int64_t num_layers,
                                               TransformerLayerOptions options, bool final_norm)
    : layers(register_module("layers", ModuleList<TransformerDecoderLayer>(alike_layers<TransformerDecoderLayer>(
                                           d_model, nhead, num_layers, options)))) {
  if (final_norm) norm = register_module("norm", LayerNorm(d_model, norm_options(options)));
}
Tensor TransformerDecoderImpl::forward(const Tensor& tgt, const Tensor& memory, const DecoderCall& call) {
  Tensor x = tgt;
  for (const TransformerDecoderLayer& layer : layers) x = layer(x, memory, call);
  return norm ? norm(x) : x;
}

}  // namespace mica::nn
