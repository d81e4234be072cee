// The layers of a Transformer, and stacks of them.
#pragma once

#include <optional>

#include "mica/generated/nn/transformer.h"
#include "mica/nn/activation.h"
#include "mica/nn/attention.h"
#include "mica/nn/container.h"
#include "mica/nn/normalization.h"

namespace mica::nn {

// A mask of floats is added to scores; a mask of bools forbids where it is true. Where `is_causal` is not set, stacks
// of layers find it out from the mask.
struct EncoderCall {
  Tensor src_mask = {}, src_key_padding_mask = {};
  std::optional<bool> is_causal = {};
};
struct DecoderCall {
  Tensor tgt_mask = {}, memory_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  std::optional<bool> tgt_is_causal = {};
  bool memory_is_causal = false;
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

// Clones of a layer, one after the other, and a norm at the end unless that is null.
class TransformerEncoderImpl : public Module {
 public:
  TransformerEncoderImpl(const TransformerEncoderLayer& layer, int64_t num_layers, const LayerNorm& norm = nullptr);
  Tensor forward(const Tensor& src, const EncoderCall& call = {});

  ModuleList<TransformerEncoderLayer> layers;
  LayerNorm norm;
};
MICA_MODULE(TransformerEncoder);

class TransformerDecoderImpl : public Module {
 public:
  TransformerDecoderImpl(const TransformerDecoderLayer& layer, int64_t num_layers, const LayerNorm& norm = nullptr);
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderCall& call = {});

  ModuleList<TransformerDecoderLayer> layers;
  LayerNorm norm;
};
MICA_MODULE(TransformerDecoder);

struct TransformerOptions {
  int64_t d_model = 512, nhead = 8, num_encoder_layers = 6, num_decoder_layers = 6;
  TransformerLayerOptions layer = {};
};
class TransformerImpl : public Module {
 public:
  using Options = TransformerOptions;
  explicit TransformerImpl(Options options = {});
  Tensor forward(const Tensor& src, const Tensor& tgt, const EncoderCall& encoder_call = {},
                 const DecoderCall& decoder_call = {});
  void reset_parameters();
  // A mask that is added to scores: query i sees keys up to i.
  static Tensor generate_square_subsequent_mask(int64_t size, const TensorOptions& options = {});

  const Options options;
  TransformerEncoder encoder = nullptr;
  TransformerDecoder decoder = nullptr;
};
MICA_MODULE(Transformer);

}  // namespace mica::nn
