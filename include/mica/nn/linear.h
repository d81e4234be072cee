// Layers made of matrices, tables of rows, and changes of shape.
#pragma once

#include <optional>

#include "mica/nn/module.h"

namespace mica::nn {

class IdentityImpl : public Module {
 public:
  Tensor forward(const Tensor& x) { return x; }
};
MICA_MODULE(Identity);

struct LinearOptions {
  bool bias = true;
};
class LinearImpl : public Module {
 public:
  using Options = LinearOptions;
  LinearImpl(int64_t in_features, int64_t out_features, Options options = {});
  Tensor forward(const Tensor& x);
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t in_features, out_features;
  Tensor weight, bias;
};
MICA_MODULE(Linear);

class BilinearImpl : public Module {
 public:
  using Options = LinearOptions;
  BilinearImpl(int64_t in1_features, int64_t in2_features, int64_t out_features, Options options = {});
  Tensor forward(const Tensor& x1, const Tensor& x2);
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t in1_features, in2_features, out_features;
  Tensor weight, bias;
};
MICA_MODULE(Bilinear);

struct EmbeddingOptions {
  std::optional<int64_t> padding_idx = {};
  std::optional<double> max_norm = {};
  double norm_type = 2;
  bool scale_grad_by_freq = false;
};
class EmbeddingImpl : public Module {
 public:
  using Options = EmbeddingOptions;
  EmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim, Options options = {});
  Tensor forward(const Tensor& indices);
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t num_embeddings, embedding_dim;
  Options options;
  Tensor weight;
};
MICA_MODULE(Embedding);

struct EmbeddingBagOptions {
  std::string mode = "mean";
  std::optional<double> max_norm = {};
  double norm_type = 2;
  bool scale_grad_by_freq = false;
  bool include_last_offset = false;
  std::optional<int64_t> padding_idx = {};
};
class EmbeddingBagImpl : public Module {
 public:
  using Options = EmbeddingBagOptions;
  EmbeddingBagImpl(int64_t num_embeddings, int64_t embedding_dim, Options options = {});
  Tensor forward(const Tensor& indices, const Tensor& offsets = {}, const Tensor& per_sample_weights = {});
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t num_embeddings, embedding_dim;
  Options options;
  Tensor weight;
};
MICA_MODULE(EmbeddingBag);

class FlattenImpl : public Module {
 public:
  explicit FlattenImpl(int64_t start_dim = 1, int64_t end_dim = -1) : start_dim(start_dim), end_dim(end_dim) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;

  const int64_t start_dim, end_dim;
};
MICA_MODULE(Flatten);

class UnflattenImpl : public Module {
 public:
  UnflattenImpl(int64_t dim, DimVector sizes) : dim(dim), sizes(std::move(sizes)) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;

  const int64_t dim;
  const DimVector sizes;
};
MICA_MODULE(Unflatten);

}  // namespace mica::nn
