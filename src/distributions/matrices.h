// Batches of covariance matrices by their Cholesky factors.
#pragma once

#include "mica/distributions/multivariate.h"

namespace mica::distributions {

Tensor batch_mv(const Tensor& matrices, const Tensor& vectors);  // products, batches broadcast
// The squared lengths of L^-1 x. The batch of L may differ from that of x. It is not expanded, so that its factors are
// reused.
Tensor batch_mahalanobis(const Tensor& factors, const Tensor& x);
Tensor log_diagonal(const Tensor& factor);  // the sum of the logarithms of the diagonals
// log |W W' + D| by the matrix determinant lemma, and x' (W W' + D)^-1 x by the Woodbury identity.
Tensor lowrank_log_det(const Tensor& diag, const Tensor& capacitance_tril);
Tensor lowrank_mahalanobis(const Tensor& factor, const Tensor& diag, const Tensor& x, const Tensor& capacitance_tril);

// Which of the three forms of a covariance was given.
struct GivenCovariance {
  enum Kind { Covariance, Precision, Factor };
  Kind kind;
  Tensor matrix;
};
constexpr const char* kCovarianceNames[] = {"covariance_matrix", "precision_matrix", "scale_tril"};
GivenCovariance given_covariance(const CovarianceOptions& options);  // throws unless there is exactly one
Tensor scale_tril_of(const GivenCovariance& given);                  // the Cholesky factor of the covariance
Constraint covariance_constraint(int kind);

}  // namespace mica::distributions
