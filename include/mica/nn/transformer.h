// Attention with several heads, and the layers of a Transformer.
#pragma once

#include <optional>

#include "mica/nn/activation.h"
#include "mica/nn/container.h"
#include "mica/nn/linear.h"
#include "mica/nn/normalization.h"

namespace mica::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;
  bool bias = true;
  bool add_bias_kv = false, add_zero_attn = false;
  std::optional<int64_t> kdim = {}, vdim = {};
  bool batch_first = false;
};
struct AttentionCall {
  Tensor key_padding_mask = {}, attn_mask = {};
  bool need_weights = true, average_attn_weights = true, is_causal = false;
};
class MultiheadAttentionImpl : public Module {
 public:
  using Options = MultiheadAttentionOptions;
  MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads, Options options = {});
  // The result, and the weights of the heads if they are wanted.
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const AttentionCall& call = {});
  void reset_parameters();

  const int64_t embed_dim, num_heads;
  const Options options;
  Tensor q_proj_weight, k_proj_weight, v_proj_weight, in_proj_weight, in_proj_bias, bias_k, bias_v;
  Linear out_proj = nullptr;
};
MICA_MODULE(MultiheadAttention);

struct TransformerLayerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";  // or "gelu"
  double layer_norm_eps = 1e-5;
  bool batch_first = false, norm_first = false, bias = true;
};

struct EncoderCall {
  Tensor src_mask = {}, src_key_padding_mask = {};
  bool is_causal = false;
};
class TransformerEncoderLayerImpl : public Module {
 public:
  using Options = TransformerLayerOptions;
  TransformerEncoderLayerImpl(int64_t d_model, int64_t nhead, Options options = {});
  Tensor forward(const Tensor& src, const EncoderCall& call = {});

  const Options options;
  MultiheadAttention self_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2;
  Dropout dropout1, dropout2;
};
MICA_MODULE(TransformerEncoderLayer);

struct DecoderCall {
  Tensor tgt_mask = {}, memory_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  bool tgt_is_causal = false, memory_is_causal = false;
};
class TransformerDecoderLayerImpl : public Module {
 public:
  using Options = TransformerLayerOptions;
  TransformerDecoderLayerImpl(int64_t d_model, int64_t nhead, Options options = {});
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderCall& call = {});

  const Options options;
  MultiheadAttention self_attn, multihead_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout1, dropout2, dropout3;
};
MICA_MODULE(TransformerDecoderLayer);

// Layers one after the other, each with weights of its own; `norm` may be null.
class TransformerEncoderImpl : public Module {
 public:
  TransformerEncoderImpl(int64_t d_model, int64_t nhead, int64_t num_layers, TransformerLayerOptions options = {},
                         bool final_norm = false);
  Tensor forward(const Tensor& src, const EncoderCall& call = {});

  ModuleList<TransformerEncoderLayer> layers;
  LayerNorm norm = nullptr;
};
MICA_MODULE(TransformerEncoder);

class TransformerDecoderImpl : public Module {
 public:
  TransformerDecoderImpl(int64_t d_model, int64_t nhead, int64_t num_layers, TransformerLayerOptions options = {},
                         bool final_norm = false);
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderCall& call = {});

  ModuleList<TransformerDecoderLayer> layers;
  LayerNorm norm = nullptr;
};
MICA_MODULE(TransformerDecoder);

}  // namespace mica::nn
