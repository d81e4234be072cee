// Distances and angles between vectors.
#pragma once

#include "mica/generated/nn/distance.h"

namespace mica::nn {

class CosineSimilarityImpl : public CosineSimilarityBase {
 public:
  using CosineSimilarityBase::CosineSimilarityBase;
  Tensor forward(const Tensor& x1, const Tensor& x2);
};
MICA_MODULE(CosineSimilarity);

// The p-norm of differences along the last dimension.
class PairwiseDistanceImpl : public PairwiseDistanceBase {
 public:
  using PairwiseDistanceBase::PairwiseDistanceBase;
  Tensor forward(const Tensor& x1, const Tensor& x2);
};
MICA_MODULE(PairwiseDistance);

}  // namespace mica::nn
