#include "mica/nn/distance.h"

#include "mica/layers.h"

namespace mica::nn {

Tensor CosineSimilarityImpl::forward(const Tensor& x1, const Tensor& x2) { return cosine_similarity(x1, x2, dim, eps); }
Tensor PairwiseDistanceImpl::forward(const Tensor& x1, const Tensor& x2) {
  return pairwise_distance(x1, x2, p, eps, keepdim);
}

}  // namespace mica::nn
