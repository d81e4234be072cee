#include "core/geometry.h"
#include "core/pointwise.h"
#include "mica/autograd.h"
#include "mica/generated/layers/distance.h"
#include "mica/generated/layers/distance_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim, double eps) {
  const DType common = result_type({x1, x2});
  MICA_CHECK(is_floating(common) || is_complex(common),
             "expected common dtype to be floating point, yet common dtype is ", info(common).legacy);
  MICA_CHECK(eps >= 0, "eps must be non-negative, got: ", eps);
  const DimVector sizes = broadcast_sizes(x1.sizes(), x2.sizes());
  const Tensor a = x1.to(common).expand(sizes), b = x2.to(common).expand(sizes);
  Tensor norm1 = norm(a, Scalar(2), IntArrayRef(dim), true).clone();
  Tensor norm2 = norm(b, Scalar(2), IntArrayRef(dim), true).clone();
  {
    NoGradGuard unrecorded;  // a norm below eps keeps its slope
    norm1.clamp_(Scalar(eps));
    norm2.clamp_(Scalar(eps));
  }
  return sum((a / norm1) * (b / norm2), dim);
}

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  const int64_t last = std::max(x1.dim(), x2.dim()) - 1;
  return norm(x1 - x2 + Scalar(eps), Scalar(p), IntArrayRef(last), keepdim);
}

Tensor pdist(const Tensor& self, double p) {
  MICA_CHECK(self.dim() == 2, "pdist only supports 2D tensors, got: ", self.dim(), "D");
  MICA_CHECK(self.is_floating_point(), "pdist only supports floating-point dtypes");
  MICA_CHECK(p >= 0, "pdist only supports non-negative p values");
  return mica::_pdist_forward(self, p);
}

}  // namespace mica::composite
