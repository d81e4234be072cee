#include "mica/nn/linear.h"

#include <cmath>

#include "mica/init.h"
#include "mica/layers.h"
#include "mica/nn/dims.h"
#include "nn/text.h"

namespace mica::nn {

std::string tuple_text(IntArrayRef sizes) {
  std::string text = "(";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + (sizes.size() == 1 ? ",)" : ")");
}

DimVector Dims::expand(size_t ndim, const char* what) const {
  if (sizes_.size() == ndim) return sizes_;
  MICA_CHECK_KIND(sizes_.size() == 1, Value, what, " must be one number or ", ndim, " of them, but got ", sizes_);
  return DimVector(ndim, sizes_[0]);
}

// The bias of a layer is drawn from the range that its weight's fan gives.
static void reset_bias(const Tensor& bias, double fan_in) {
  if (!bias.defined()) return;
  const double bound = fan_in > 0 ? 1 / std::sqrt(fan_in) : 0;
  init_uniform_(bias, -bound, bound);
}

LinearImpl::LinearImpl(int64_t in_features, int64_t out_features, Options options)
    : in_features(in_features),
      out_features(out_features),
      weight(register_parameter("weight", empty({out_features, in_features}))),
      bias(register_parameter("bias", options.bias ? empty({out_features}) : Tensor())) {
  reset_parameters();
}
void LinearImpl::reset_parameters() {
  init_kaiming_uniform_(weight, std::sqrt(5.0));
  reset_bias(bias, static_cast<double>(in_features));
}
Tensor LinearImpl::forward(const Tensor& x) { return linear(x, weight, bias); }
std::string LinearImpl::extra_repr() const {
  return cat("in_features=", in_features, ", out_features=", out_features, ", bias=", truth(bias.defined()));
}

BilinearImpl::BilinearImpl(int64_t in1_features, int64_t in2_features, int64_t out_features, Options options)
    : in1_features(in1_features),
      in2_features(in2_features),
      out_features(out_features),
      weight(register_parameter("weight", empty({out_features, in1_features, in2_features}))),
      bias(register_parameter("bias", options.bias ? empty({out_features}) : Tensor())) {
  reset_parameters();
}
void BilinearImpl::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(in1_features));
  init_uniform_(weight, -bound, bound);
  if (bias.defined()) init_uniform_(bias, -bound, bound);
}
Tensor BilinearImpl::forward(const Tensor& x1, const Tensor& x2) { return bilinear(x1, x2, weight, bias); }
std::string BilinearImpl::extra_repr() const {
  return cat("in1_features=", in1_features, ", in2_features=", in2_features, ", out_features=", out_features,
             ", bias=", truth(bias.defined()));
}

// The row that stands for padding, counted from the front.
static std::optional<int64_t> padding_row(std::optional<int64_t> padding_idx, int64_t rows) {
  if (!padding_idx) return {};
  MICA_CHECK_KIND(*padding_idx >= -rows && *padding_idx < rows, Value, "Padding_idx must be within num_embeddings");
  return *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
}
static void reset_rows(const Tensor& weight, std::optional<int64_t> padding_idx) {
  init_normal_(weight);
  if (padding_idx) init_zeros_(weight.detach().select(0, *padding_idx));
}

EmbeddingImpl::EmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim, Options given)
    : num_embeddings(num_embeddings),
      embedding_dim(embedding_dim),
      options(given),
      weight(register_parameter("weight", empty({num_embeddings, embedding_dim}))) {
  options.padding_idx = padding_row(options.padding_idx, num_embeddings);
  reset_parameters();
}
void EmbeddingImpl::reset_parameters() { reset_rows(weight, options.padding_idx); }
Tensor EmbeddingImpl::forward(const Tensor& indices) {
  if (options.max_norm) embedding_renorm_(weight.detach(), indices.contiguous(), *options.max_norm, options.norm_type);
  return embedding(weight, indices, options.padding_idx.value_or(-1), options.scale_grad_by_freq);
}
std::string EmbeddingImpl::extra_repr() const {
  std::string text = cat(num_embeddings, ", ", embedding_dim);
  if (options.padding_idx) text += cat(", padding_idx=", *options.padding_idx);
  if (options.max_norm) text += cat(", max_norm=", number(*options.max_norm));
  if (options.norm_type != 2) text += cat(", norm_type=", number(options.norm_type));
  if (options.scale_grad_by_freq) text += ", scale_grad_by_freq=True";
  return text;
}

EmbeddingBagImpl::EmbeddingBagImpl(int64_t num_embeddings, int64_t embedding_dim, Options given)
    : num_embeddings(num_embeddings),
      embedding_dim(embedding_dim),
      options(std::move(given)),
      weight(register_parameter("weight", empty({num_embeddings, embedding_dim}))) {
  options.padding_idx = padding_row(options.padding_idx, num_embeddings);
  reset_parameters();
}
void EmbeddingBagImpl::reset_parameters() { reset_rows(weight, options.padding_idx); }
Tensor EmbeddingBagImpl::forward(const Tensor& indices, const Tensor& offsets, const Tensor& per_sample_weights) {
  return functional_embedding_bag(indices, weight, offsets, options.max_norm, options.norm_type,
                                  options.scale_grad_by_freq, options.mode, false, per_sample_weights,
                                  options.include_last_offset, options.padding_idx);
}
std::string EmbeddingBagImpl::extra_repr() const {
  return cat(num_embeddings, ", ", embedding_dim, ", mode='", options.mode, "'");
}

Tensor FlattenImpl::forward(const Tensor& x) { return x.flatten(start_dim, end_dim); }
std::string FlattenImpl::extra_repr() const { return cat("start_dim=", start_dim, ", end_dim=", end_dim); }

Tensor UnflattenImpl::forward(const Tensor& x) { return x.unflatten(dim, sizes); }
std::string UnflattenImpl::extra_repr() const { return cat("dim=", dim, ", unflattened_size=", tuple_text(sizes)); }

}  // namespace mica::nn
