// Tables of vectors that are looked up by number.
#pragma once

#include "mica/generated/nn/embedding.h"

namespace mica::nn {

class EmbeddingImpl : public Module {
 public:
  using Options = EmbeddingOptions;
  EmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim, Options options = {});
  // The rows of a matrix, not trained if `freeze`.
  explicit EmbeddingImpl(const Tensor& embeddings, bool freeze = true, Options options = {});
  Tensor forward(const Tensor& indices);
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t num_embeddings, embedding_dim;
  const Options options;
  Tensor weight;
};
class Embedding : public ModuleHolder<EmbeddingImpl> {
 public:
  using ModuleHolder<EmbeddingImpl>::ModuleHolder;
  static Embedding from_pretrained(const Tensor& embeddings, bool freeze = true, const Options& options = {}) {
    return Embedding(embeddings, freeze, options);
  }
};

// Sums, means or maxima of bags of rows. A bag is a row of `indices`; or `indices` is one list, of which `offsets` says
// where each bag begins.
class EmbeddingBagImpl : public Module {
 public:
  using Options = EmbeddingBagOptions;
  EmbeddingBagImpl(int64_t num_embeddings, int64_t embedding_dim, Options options = {});
  explicit EmbeddingBagImpl(const Tensor& embeddings, bool freeze = true, Options options = {});
  Tensor forward(const Tensor& indices, const Tensor& offsets = {}, const Tensor& per_sample_weights = {});
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t num_embeddings, embedding_dim;
  const Options options;
  Tensor weight;
};
class EmbeddingBag : public ModuleHolder<EmbeddingBagImpl> {
 public:
  using ModuleHolder<EmbeddingBagImpl>::ModuleHolder;
  static EmbeddingBag from_pretrained(const Tensor& embeddings, bool freeze = true, const Options& options = {}) {
    return EmbeddingBag(embeddings, freeze, options);
  }
};

}  // namespace mica::nn
