#include <limits>

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
    NoGradGuard unrecorded;  // unrecorded, so that a norm below eps keeps its slope
    // A number and no tensor of it, which modes do not see; infinite where eps is beyond the dtype.
    const bool is_half = norm1.dtype() == DType::Float16;
    const double largest = is_half                           ? 65504
                           : norm1.dtype() == DType::Float64 ? std::numeric_limits<double>::max()
                                                             : double{std::numeric_limits<float>::max()};
    const Scalar least(eps > largest ? std::numeric_limits<double>::infinity() : eps);
    norm1.copy_(clamp_min(norm1, least));
    norm2.copy_(clamp_min(norm2, least));
  }
  return sum((a / norm1) * (b / norm2), dim);
}

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  const int64_t last = std::max(x1.dim(), x2.dim()) - 1;
  return norm(x1 - x2 + Scalar(eps), Scalar(p), IntArrayRef(last), keepdim);
}

Tensor pdist(const Tensor& self, double p) {
  MICA_CHECK(self.dim() == 2, "pdist only supports 2D tensors, got: ", self.dim(), "D");
  MICA_CHECK(self.is_floating_point(), "pdist only supports floating-point dtypes, but got torch.", self.dtype());
  MICA_CHECK(p >= 0, "pdist only supports non-negative p values, but got ", p);
  return mica::_pdist_forward(self, p);
}

Tensor cdist(const Tensor& x1, const Tensor& x2, double p, std::optional<std::string_view> compute_mode) {
  constexpr int64_t kRowsWorthAProduct = 25;
  const auto check = [](const char* name, const Tensor& x) {
    MICA_CHECK(x.dim() >= 2, "cdist only supports at least 2D tensors, ", name, " got: ", x.dim(), "D");
    MICA_CHECK(x.is_floating_point(), "cdist only supports floating-point dtypes, ", name,
               " got: ", info(x.dtype()).legacy);
  };
  check("X1", x1);
  check("X2", x2);
  MICA_CHECK(x1.dtype() == x2.dtype(), "expected scalar type ", info(x1.dtype()).legacy, " but found ",
             info(x2.dtype()).legacy);
  MICA_CHECK(x1.size(-1) == x2.size(-1), "X1 and X2 must have the same number of columns. X1: ", x1.size(-1),
             " X2: ", x2.size(-1));
  MICA_CHECK(x1.device() == x2.device(), "X1 and X2 must be on the same device, but X1 is on ", x1.device(),
             " and X2 is on ", x2.device());
  MICA_CHECK(p >= 0, "cdist only supports non-negative p values, but got ", p);
  const std::string_view mode = compute_mode.value_or("use_mm_for_euclid_dist_if_necessary");
  const int64_t rows1 = x1.size(-2), rows2 = x2.size(-2);
  bool by_product = rows1 > kRowsWorthAProduct || rows2 > kRowsWorthAProduct;
  if (mode == "use_mm_for_euclid_dist") {
    by_product = true;
  } else if (mode == "donot_use_mm_for_euclid_dist") {
    by_product = false;
  } else {
    MICA_CHECK_KIND(mode == "use_mm_for_euclid_dist_if_necessary", Value, mode,
                    " is not a valid value for compute_mode");
  }
  DimVector shape =
      broadcast_sizes(x1.sizes().slice(0, x1.sizes().size() - 2), x2.sizes().slice(0, x2.sizes().size() - 2));
  int64_t batch = 1;
  for (int64_t n : shape) batch *= n;
  const auto stacked = [&](const Tensor& x, int64_t rows) {
    DimVector full = shape;
    full.push_back(rows);
    full.push_back(x.size(-1));
    return x.expand(full).reshape({batch, rows, x.size(-1)});
  };
  const Tensor result = mica::_cdist_forward(stacked(x1, rows1), stacked(x2, rows2), p, by_product && p == 2);
  shape.push_back(rows1);
  shape.push_back(rows2);
  return mica::_unsafe_view(result.contiguous(), shape);
}

}  // namespace mica::composite
