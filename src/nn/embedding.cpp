#include "mica/nn/embedding.h"

#include "mica/layers.h"

namespace mica::nn {

// Options whose padding row is counted from the front.
template <class Options>
static Options checked(Options options, int64_t rows) {
  if (std::optional<int64_t>& padding = options.padding_idx) {
    MICA_CHECK_KIND(*padding >= -rows && *padding < rows, Value, "Padding_idx must be within num_embeddings");
    if (*padding < 0) *padding += rows;
  }
  return options;
}
static void reset_rows(const Tensor& weight, std::optional<int64_t> padding_idx) {
  init_normal_(weight);
  if (padding_idx) init_zeros_(weight.detach().select(0, *padding_idx));
}
static const Tensor& matrix(const Tensor& embeddings) {
  MICA_CHECK_KIND(embeddings.dim() == 2, Value, "Embeddings parameter is expected to be 2-dimensional");
  return embeddings;
}
template <class Options>
static std::string norm_text(const Options& options) {
  std::string text;
  if (options.max_norm) text += cat(", max_norm=", *options.max_norm);
  if (options.norm_type != 2) text += cat(", norm_type=", options.norm_type);
  if (options.scale_grad_by_freq) text += ", scale_grad_by_freq=True";
  return text;
}
static std::string padding_text(std::optional<int64_t> padding_idx) {
  return padding_idx ? cat(", padding_idx=", *padding_idx) : "";
}

EmbeddingImpl::EmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim, Options options)
    : num_embeddings(num_embeddings),
      embedding_dim(embedding_dim),
      options(checked(options, num_embeddings)),
      weight(register_parameter("weight", empty({num_embeddings, embedding_dim}))) {
  reset_parameters();
}
EmbeddingImpl::EmbeddingImpl(const Tensor& embeddings, bool freeze, Options options)
    : num_embeddings(matrix(embeddings).size(0)),
      embedding_dim(embeddings.size(1)),
      options(checked(options, num_embeddings)),
      weight(register_parameter("weight", embeddings.detach(), !freeze)) {}
void EmbeddingImpl::reset_parameters() { reset_rows(weight, options.padding_idx); }
Tensor EmbeddingImpl::forward(const Tensor& indices) {
  return functional_embedding(indices, weight, options.padding_idx, options.max_norm, options.norm_type,
                              options.scale_grad_by_freq);
}
std::string EmbeddingImpl::extra_repr() const {
  return cat(num_embeddings, ", ", embedding_dim, padding_text(options.padding_idx), norm_text(options));
}

EmbeddingBagImpl::EmbeddingBagImpl(int64_t num_embeddings, int64_t embedding_dim, Options options)
    : num_embeddings(num_embeddings),
      embedding_dim(embedding_dim),
      options(checked(std::move(options), num_embeddings)),
      weight(register_parameter("weight", empty({num_embeddings, embedding_dim}))) {
  reset_parameters();
}
EmbeddingBagImpl::EmbeddingBagImpl(const Tensor& embeddings, bool freeze, Options options)
    : num_embeddings(matrix(embeddings).size(0)),
      embedding_dim(embeddings.size(1)),
      options(checked(std::move(options), num_embeddings)),
      weight(register_parameter("weight", embeddings.detach(), !freeze)) {}
void EmbeddingBagImpl::reset_parameters() { reset_rows(weight, options.padding_idx); }
Tensor EmbeddingBagImpl::forward(const Tensor& indices, const Tensor& offsets, const Tensor& per_sample_weights) {
  return functional_embedding_bag(indices, weight, offsets, options.max_norm, options.norm_type,
                                  options.scale_grad_by_freq, options.mode, false, per_sample_weights,
                                  options.include_last_offset, options.padding_idx);
}
std::string EmbeddingBagImpl::extra_repr() const {
  return cat(num_embeddings, ", ", embedding_dim, norm_text(options), ", mode='", options.mode, "'",
             padding_text(options.padding_idx));
}

}  // namespace mica::nn
