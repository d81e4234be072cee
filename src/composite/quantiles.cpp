// Medians and quantiles.
#include <cmath>

#include "core/geometry.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::composite {

Tensor median_all(const Tensor& self) {
  MICA_CHECK(self.numel() > 0 || is_floating(self.dtype()),
             "median() operation does not have an identity for an empty input of dtype ", self.dtype());
  if (self.numel() == 0) return mica::full({}, std::nan(""), self.options());
  return std::get<0>(mica::median(self.reshape({-1}), 0));
}
Tensor nanmedian_all(const Tensor& self) {
  MICA_CHECK(self.numel() > 0 || is_floating(self.dtype()),
             "nanmedian() operation does not have an identity for an empty input of dtype ", self.dtype());
  if (self.numel() == 0) return mica::full({}, std::nan(""), self.options());
  return std::get<0>(mica::nanmedian(self.reshape({-1}), 0));
}

namespace {

Tensor quantile_of(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation, bool ignore_nan) {
  const char* op = ignore_nan ? "nanquantile()" : "quantile()";
  MICA_CHECK(self.numel() > 0, op, " input tensor must be non-empty");
  MICA_CHECK(q.dim() <= 1, op, " q must be a scalar or 1D tensor");
  MICA_CHECK(self.dtype() == DType::Float32 || self.dtype() == DType::Float64, op,
             " input tensor must be either float or double dtype");
  MICA_CHECK(q.dtype() == self.dtype(), op, " q tensor must be same dtype as the input tensor");
  MICA_CHECK(q.numel() == 0 || q.is_meta() || mica::logical_and(q >= 0, q <= 1).all().item<bool>(), op,
             " q values must be in the range [0, 1]");
  MICA_CHECK(interpolation == "linear" || interpolation == "lower" || interpolation == "higher" ||
                 interpolation == "midpoint" || interpolation == "nearest",
             op, " interpolation must be one of linear, lower, higher, midpoint or nearest, but got ", interpolation);
  DimVector kept(self.sizes());
  int64_t d = 0;
  if (dim) {
    d = wrap_dim(*dim, self.dim());
    if (self.dim()) kept[d] = 1;
  } else {
    for (int64_t& s : kept) s = 1;
  }
  // Rows last and sorted; NaN sorts to the end.
  const Tensor rows = (!dim || self.dim() == 0 ? self.reshape({-1}) : self.movedim(d, -1)).contiguous();
  const Tensor sorted = std::get<0>(mica::sort(rows, -1));
  const int64_t n = sorted.size(-1);
  const Tensor fractions = q.reshape({-1});
  DimVector row_shape(sorted.sizes().slice(0, sorted.dim() - 1));
  row_shape.push_back(1);
  const Tensor nans = mica::isnan(sorted);
  Tensor rank;
  if (ignore_nan) {
    rank = mica::mul(fractions, (mica::logical_not(nans).sum(-1, true) - 1).to(self.dtype()));
    rank = mica::where(rank < 0, mica::zeros_like(rank), rank);
  } else {
    rank = mica::where(nans.any(-1, true), mica::full({}, static_cast<double>(n - 1), self.options()),
                       fractions * static_cast<double>(n - 1));
  }
  if (interpolation == "lower") rank = rank.floor();
  if (interpolation == "higher") rank = rank.ceil();
  if (interpolation == "nearest") rank = rank.round();
  const Tensor below = rank.floor().to(DType::Int64);
  DimVector wide(sorted.sizes());
  wide[wide.size() - 1] = fractions.numel();
  Tensor result = sorted.gather(-1, below.expand(wide));
  if (interpolation == "linear" || interpolation == "midpoint") {
    const Tensor above = mica::clamp(rank.ceil().to(DType::Int64), std::nullopt, Scalar(n - 1));
    const Tensor upper = sorted.gather(-1, above.expand(wide));
    const Tensor fraction = interpolation == "midpoint" ? mica::full_like(rank, 0.5) : rank - below.to(self.dtype());
    result = mica::lerp(result, upper, fraction);
  }
  // The quantiles become the first dimension. If q is a number, there is none.
  result = result.movedim(-1, 0);
  DimVector shape;
  if (q.dim() == 1) shape.push_back(q.size(0));
  DimVector reduced;
  for (size_t i = 0; i < kept.size(); ++i)
    if (keepdim || (dim && static_cast<int64_t>(i) != d)) reduced.push_back(kept[i]);
  for (int64_t s : reduced) shape.push_back(s);
  return result.reshape(shape);
}

}  // namespace

Tensor quantile(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  return quantile_of(self, q, dim, keepdim, interpolation, false);
}
Tensor quantile(const Tensor& self, double q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  MICA_CHECK(q >= 0 && q <= 1, "quantile() q must be in the range [0, 1] but got ", q);
  return quantile_of(self, mica::full({}, q, self.options()), dim, keepdim, interpolation, false);
}
Tensor nanquantile(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation) {
  return quantile_of(self, q, dim, keepdim, interpolation, true);
}
Tensor nanquantile(const Tensor& self, double q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation) {
  MICA_CHECK(q >= 0 && q <= 1, "nanquantile() q must be in the range [0, 1] but got ", q);
  return quantile_of(self, mica::full({}, q, self.options()), dim, keepdim, interpolation, true);
}

}  // namespace mica::composite
