// Distances and angles between vectors.
#pragma once

#include "mica/nn/module.h"

namespace mica::nn {

class CosineSimilarityImpl : public Module {
 public:
  explicit CosineSimilarityImpl(int64_t dim = 1, double eps = 1e-8) : dim(dim), eps(eps) {}
  Tensor forward(const Tensor& x1, const Tensor& x2);
  const int64_t dim;
  const double eps;
};
MICA_MODULE(CosineSimilarity);

// The p-norm of differences along the last dimension.
class PairwiseDistanceImpl : public Module {
 public:
  explicit PairwiseDistanceImpl(double p = 2, double eps = 1e-6, bool keepdim = false)
      : p(p), eps(eps), keepdim(keepdim) {}
  Tensor forward(const Tensor& x1, const Tensor& x2);
  const double p, eps;
  const bool keepdim;
};
MICA_MODULE(PairwiseDistance);

}  // namespace mica::nn
