// Attention with several heads.
#pragma once

#include "mica/generated/nn/attention.h"
#include "mica/nn/linear.h"

namespace mica::nn {

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
  // in_proj_weight is the weight of query, key and value where they have one size. Otherwise each has its own.
  Tensor in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight;
  Tensor in_proj_bias, bias_k, bias_v;
  Linear out_proj = nullptr;
};
MICA_MODULE(MultiheadAttention);

}  // namespace mica::nn
