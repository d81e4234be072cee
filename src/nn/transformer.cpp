#include "mica/nn/transformer.h"

#include <limits>

#include "mica/layers.h"

namespace mica::nn {

TransformerActivation::TransformerActivation(const std::string& name) {
  MICA_CHECK(name == "relu" || name == "gelu", "activation should be relu/gelu, not ", name);
  if (name == "relu")
    function_ = [](const Tensor& x) { return relu(x); };
  else
    function_ = [](const Tensor& x) { return gelu(x); };
}

static MultiheadAttentionOptions attention_options(const TransformerLayerOptions& o) {
  return {.dropout = o.dropout, .bias = o.bias, .batch_first = o.batch_first};
}
static LayerNormOptions norm_options(const TransformerLayerOptions& o) {
  return {.eps = o.layer_norm_eps, .bias = o.bias};
}

// ---- masks

// Turns the encoder's masks into numbers that are added to scores.
static EncoderCall with_added_masks(const EncoderCall& call, DType dtype) {
  EncoderCall added = call;
  std::optional<DType> other;
  if (call.src_mask.defined()) {
    other = call.src_mask.dtype();
    added.src_mask = _canonical_mask(call.src_mask, "src_mask", {}, "", dtype, false);
  }
  if (call.src_key_padding_mask.defined())
    added.src_key_padding_mask =
        _canonical_mask(call.src_key_padding_mask, "src_key_padding_mask", other, "src_mask", dtype);
  return added;
}

// Whether attention is causal: as the caller says, or as the mask says where the caller does not.
static bool sees_only_before(const Tensor& mask, std::optional<bool> told, const Tensor& x, bool batch_first) {
  if (told || !mask.defined()) return told.value_or(false);
  const int64_t length = x.dim() == 2 ? x.size(0) : x.size(batch_first ? 1 : 0);
  if (mask.dim() != 2 || mask.size(0) != length || mask.size(1) != length) return false;
  return mask.eq(TransformerImpl::generate_square_subsequent_mask(length, mask.options())).all().item<bool>();
}

// ---- layers

TransformerEncoderLayerImpl::TransformerEncoderLayerImpl(int64_t d_model, int64_t nhead, Options given)
    : options(std::move(given)),
      self_attn(register_module("self_attn", MultiheadAttention(d_model, nhead, attention_options(options)))),
      linear1(register_module("linear1", Linear(d_model, options.dim_feedforward, {.bias = options.bias}))),
      dropout(register_module("dropout", Dropout(options.dropout))),
      linear2(register_module("linear2", Linear(options.dim_feedforward, d_model, {.bias = options.bias}))),
      norm1(register_module("norm1", LayerNorm(d_model, norm_options(options)))),
      norm2(register_module("norm2", LayerNorm(d_model, norm_options(options)))),
      dropout1(register_module("dropout1", Dropout(options.dropout))),
      dropout2(register_module("dropout2", Dropout(options.dropout))) {}

Tensor TransformerEncoderLayerImpl::forward(const Tensor& src, const EncoderCall& given) {
  const EncoderCall call = with_added_masks(given, src.dtype());
  const auto attend = [&](const Tensor& x) {
    const AttentionCall how{.key_padding_mask = call.src_key_padding_mask,
                            .attn_mask = call.src_mask,
                            .need_weights = false,
                            .is_causal = call.is_causal.value_or(false)};
    return dropout1(std::get<0>(self_attn(x, x, x, how)));
  };
  const auto feed = [&](const Tensor& x) { return dropout2(linear2(dropout(options.activation(linear1(x))))); };
  if (options.norm_first) {
    const Tensor x = src + attend(norm1(src));
    return x + feed(norm2(x));
  }
  const Tensor x = norm1(src + attend(src));
  return norm2(x + feed(x));
}

TransformerDecoderLayerImpl::TransformerDecoderLayerImpl(int64_t d_model, int64_t nhead, Options given)
    : options(std::move(given)),
      self_attn(register_module("self_attn", MultiheadAttention(d_model, nhead, attention_options(options)))),
      multihead_attn(register_module("multihead_attn", MultiheadAttention(d_model, nhead, attention_options(options)))),
      linear1(register_module("linear1", Linear(d_model, options.dim_feedforward, {.bias = options.bias}))),
      dropout(register_module("dropout", Dropout(options.dropout))),
      linear2(register_module("linear2", Linear(options.dim_feedforward, d_model, {.bias = options.bias}))),
      norm1(register_module("norm1", LayerNorm(d_model, norm_options(options)))),
      norm2(register_module("norm2", LayerNorm(d_model, norm_options(options)))),
      norm3(register_module("norm3", LayerNorm(d_model, norm_options(options)))),
      dropout1(register_module("dropout1", Dropout(options.dropout))),
      dropout2(register_module("dropout2", Dropout(options.dropout))),
      dropout3(register_module("dropout3", Dropout(options.dropout))) {}

Tensor TransformerDecoderLayerImpl::forward(const Tensor& tgt, const Tensor& memory, const DecoderCall& call) {
  const auto attend = [&](const Tensor& x) {
    const AttentionCall how{.key_padding_mask = call.tgt_key_padding_mask,
                            .attn_mask = call.tgt_mask,
                            .need_weights = false,
                            .is_causal = call.tgt_is_causal.value_or(false)};
    return dropout1(std::get<0>(self_attn(x, x, x, how)));
  };
  const auto look_up = [&](const Tensor& x) {
    const AttentionCall how{.key_padding_mask = call.memory_key_padding_mask,
                            .attn_mask = call.memory_mask,
                            .need_weights = false,
                            .is_causal = call.memory_is_causal};
    return dropout2(std::get<0>(multihead_attn(x, memory, memory, how)));
  };
  const auto feed = [&](const Tensor& x) { return dropout3(linear2(dropout(options.activation(linear1(x))))); };
  if (options.norm_first) {
    Tensor x = tgt + attend(norm1(tgt));
    x = x + look_up(norm2(x));
    return x + feed(norm3(x));
  }
  Tensor x = norm1(tgt + attend(tgt));
  x = norm2(x + look_up(x));
  return norm3(x + feed(x));
}

// ---- stacks

// Python copies one layer, so that all start alike.
template <class Layer>
static std::vector<Layer> clones(const Layer& layer, int64_t count) {
  std::vector<Layer> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(clone(layer));
  return all;
}

TransformerEncoderImpl::TransformerEncoderImpl(const TransformerEncoderLayer& layer, int64_t num_layers,
                                               const LayerNorm& norm)
    : layers(register_module("layers", ModuleList<TransformerEncoderLayer>(clones(layer, num_layers)))), norm(norm) {
  if (norm) register_module("norm", norm);
}
Tensor TransformerEncoderImpl::forward(const Tensor& src, const EncoderCall& given) {
  EncoderCall call = with_added_masks(given, src.dtype());
  if (layers.size() > 0)
    call.is_causal = sees_only_before(call.src_mask, call.is_causal, src, layers[0]->options.batch_first);
  Tensor x = src;
  for (const TransformerEncoderLayer& layer : layers) x = layer(x, call);
  return norm ? norm(x) : x;
}

TransformerDecoderImpl::TransformerDecoderImpl(const TransformerDecoderLayer& layer, int64_t num_layers,
                                               const LayerNorm& norm)
    : layers(register_module("layers", ModuleList<TransformerDecoderLayer>(clones(layer, num_layers)))), norm(norm) {
  if (norm) register_module("norm", norm);
}
Tensor TransformerDecoderImpl::forward(const Tensor& tgt, const Tensor& memory, const DecoderCall& given) {
  DecoderCall call = given;
  if (layers.size() > 0)
    call.tgt_is_causal = sees_only_before(call.tgt_mask, call.tgt_is_causal, tgt, layers[0]->options.batch_first);
  Tensor x = tgt;
  for (const TransformerDecoderLayer& layer : layers) x = layer(x, memory, call);
  return norm ? norm(x) : x;
}

TransformerImpl::TransformerImpl(Options given) : options(std::move(given)) {
  const auto final_norm = [&] { return LayerNorm(options.d_model, norm_options(options.layer)); };
  encoder = register_module("encoder",
                            TransformerEncoder(TransformerEncoderLayer(options.d_model, options.nhead, options.layer),
                                               options.num_encoder_layers, final_norm()));
  decoder = register_module("decoder",
                            TransformerDecoder(TransformerDecoderLayer(options.d_model, options.nhead, options.layer),
                                               options.num_decoder_layers, final_norm()));
  reset_parameters();
}
void TransformerImpl::reset_parameters() {
  for (const Tensor& p : parameters())
    if (p.dim() > 1) init_xavier_uniform_(p);
}
Tensor TransformerImpl::forward(const Tensor& src, const Tensor& tgt, const EncoderCall& encoder_call,
                                const DecoderCall& decoder_call) {
  const int64_t batch_dim = options.layer.batch_first ? 0 : 1;
  MICA_CHECK(src.dim() != 3 || src.size(batch_dim) == tgt.size(batch_dim),
             "the batch number of src and tgt must be equal");
  MICA_CHECK(src.size(-1) == options.d_model && tgt.size(-1) == options.d_model,
             "the feature number of src and tgt must be equal to d_model");
  return decoder(tgt, encoder(src, encoder_call), decoder_call);
}
Tensor TransformerImpl::generate_square_subsequent_mask(int64_t size, const TensorOptions& options) {
  return full({size, size}, -std::numeric_limits<double>::infinity(), options).triu(1);
}

}  // namespace mica::nn
