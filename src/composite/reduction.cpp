#include "core/entry.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/out_dtype.h"
#include "core/pointwise.h"
#include "mica/backend.h"
#include "mica/core/recording.h"
#include "mica/generated/implementations.h"
#include "mica/generated/layers/linalg.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

// ---- sums

Tensor sum_to_size(const Tensor& self, IntArrayRef size) {
  if (size.empty()) return self.sum();
  if (self.sizes() == size) return self;
  const int64_t lead = self.dim() - static_cast<int64_t>(size.size());
  MICA_CHECK(lead >= 0, "size {", size, "} is not expandable to size {", self.sizes(), "}.");
  DimVector dims;
  for (int64_t d = 0; d < lead; ++d) dims.push_back(d);
  for (int64_t d = lead; d < self.dim(); ++d) {
    const int64_t wanted = size[d - lead];
    MICA_CHECK(wanted == self.sizes()[d] || wanted == 1, "size {", size, "} is not expandable to size {", self.sizes(),
               "}.");
    if (wanted == 1 && self.sizes()[d] != 1) dims.push_back(d);
  }
  Tensor result = dims.empty() ? self : self.sum(dims.ref(), true);
  return lead > 0 ? result.view(size) : result;
}

Tensor nanmean(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, std::optional<DType> dtype) {
  MICA_CHECK(is_floating(self.dtype()) || self.is_complex(),
             "nanmean(): expected input to have floating point or complex dtype but got ", info(self.dtype()).legacy);
  const Tensor count = mica::sum(mica::logical_not(mica::isnan(self.detach())), dim, keepdim);
  return mica::nansum(self, dim, keepdim, dtype) / count;
}

Tensor trace(const Tensor& self) {
  MICA_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  return self.diagonal().sum();
}

// ---- the element-wise overloads of max and min

Tensor max_of_two(const Tensor& self, const Tensor& other) { return mica::maximum(self, other); }
Tensor min_of_two(const Tensor& self, const Tensor& other) { return mica::minimum(self, other); }
void max_of_two_out(const Tensor& out, const Tensor& self, const Tensor& other) { mica::maximum_out(out, self, other); }
void min_of_two_out(const Tensor& out, const Tensor& self, const Tensor& other) { mica::minimum_out(out, self, other); }

// ---- comparing whole tensors

bool equal(const Tensor& self, const Tensor& other) {
  recording::ask_for_values("torch.equal");
  MICA_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
             " and ", other.device());
  MICA_CHECK_KIND(!self.is_meta(), NotImplemented, "equal(): tensors on the meta device have no elements to compare");
  if (!(self.sizes() == other.sizes())) return false;
  if (self.numel() == 0) return true;
  const NoGradGuard guard;
  Tensor a = entry::plain(self), b = entry::plain(other);
  if (a.dtype() != b.dtype()) {
    const DType common = promote_types(a.dtype(), b.dtype());
    a = a.to(common);
    b = b.to(common);
  }
  if (is_float8(a.dtype())) return mica::eq(a, b).all().item<bool>();
  bool result = false;
  MICA_KERNEL(a.device(), equal)(a.view_of(), b.view_of(), &result);
  return result;
}

bool allclose(const Tensor& self, const Tensor& other, double rtol, double atol, bool equal_nan) {
  recording::ask_for_values("torch.allclose");
  return mica::isclose(self, other, rtol, atol, equal_nan).all().item<bool>();
}

// ---- moments

namespace {

std::optional<Scalar> correction_of(bool unbiased) { return Scalar(int64_t{unbiased}); }

}  // namespace

#define MICA_MOMENT(name, Result)                                                         \
  Result name(const Tensor& self, bool unbiased) {                                        \
    return mica::name(self, std::nullopt, correction_of(unbiased), false);                \
  }                                                                                       \
  Result name(const Tensor& self, OptionalIntArrayRef dim, bool unbiased, bool keepdim) { \
    return mica::name(self, dim, correction_of(unbiased), keepdim);                       \
  }
MICA_MOMENT(var, Tensor)
MICA_MOMENT(std, Tensor)
using TensorPair = ::std::tuple<Tensor, Tensor>;
MICA_MOMENT(var_mean, TensorPair)
MICA_MOMENT(std_mean, TensorPair)
#undef MICA_MOMENT

namespace {

constexpr const char* kNoFreedom =
    "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.";

void check_weights(const char* name, const Tensor& weights, const char* kind, bool is_kind, int64_t observations) {
  MICA_CHECK(weights.dim() <= 1, "cov(): expected ", name, " to have one or fewer dimensions but got ", name, " with ",
             weights.dim(), " dimensions");
  MICA_CHECK(is_kind, "cov(): expected ", name, " to have ", kind, " dtype but got ", name, " with ",
             info(weights.dtype()).legacy, " dtype");
  MICA_CHECK(weights.numel() == observations, "cov(): expected ", name,
             " to have the same numel as there are observations in the input but got ", weights.numel(),
             " != ", observations);
  MICA_CHECK(observations == 0 || weights.is_meta() || mica::ge(weights.min(), Scalar(0)).item<bool>(), "cov(): ", name,
             " cannot be negative");
}

}  // namespace

Tensor cov(const Tensor& self, int64_t correction, const Tensor& fweights, const Tensor& aweights) {
  MICA_CHECK(self.dim() <= 2, "cov(): expected input to have two or fewer dimensions but got an input with ",
             self.dim(), " dimensions");
  MICA_CHECK(self.dtype() != DType::Bool, "cov(): bool dtype is not supported for input");
  const Tensor in = self.dim() < 2 ? self.reshape({1, -1}) : self;
  const int64_t observations = in.size(1);
  Tensor weights;
  if (fweights.defined()) {
    check_weights("fweights", fweights, "integral", is_integral(fweights.dtype()), observations);
    weights = fweights;
  }
  if (aweights.defined()) {
    check_weights("aweights", aweights, "floating point", is_floating(aweights.dtype()), observations);
    weights = weights.defined() ? weights * aweights : aweights;
  }
  if (!weights.defined()) {
    const Tensor centred = in - (in.sum(1) / Scalar(observations)).unsqueeze(1);
    const int64_t degrees = observations - correction;
    if (degrees <= 0) warn(kNoFreedom);
    return (mica::mm(centred, centred.t().conj()) / Scalar(::std::max<int64_t>(degrees, 0))).squeeze();
  }
  const Tensor total = weights.sum();
  MICA_CHECK(total.is_meta() || observations == 0 || mica::ne(total, Scalar(0)).item<bool>(),
             "cov(): weights sum to zero, can't be normalized");
  const Tensor centred = in - ((in * weights).sum(1) / total).unsqueeze(1);
  Tensor degrees = aweights.defined() && correction != 0
                       ? total - (weights * aweights).sum() * Scalar(correction) / total
                       : total - Scalar(correction);
  if (!degrees.is_meta() && mica::le(degrees, Scalar(0)).item<bool>()) {
    warn(kNoFreedom);
    degrees = mica::zeros_like(degrees);
  }
  return (mica::mm(centred, (centred * weights).t().conj()) / degrees).squeeze();
}

Tensor corrcoef(const Tensor& self) {
  MICA_CHECK(self.dim() <= 2, "corrcoef(): expected input to have two or fewer dimensions but got an input with ",
             self.dim(), " dimensions");
  const Tensor c = mica::cov(self);
  if (c.dim() == 0) return c / c;
  const Tensor diagonal = c.diagonal();
  const Tensor deviation = mica::sqrt(diagonal.is_complex() ? mica::real(diagonal) : diagonal);
  const Tensor scaled = c / deviation.unsqueeze(1) / deviation.unsqueeze(0);
  // Rounding may carry a perfect correlation beyond one.
  if (!scaled.is_complex()) return mica::clamp(scaled, Scalar(-1), Scalar(1));
  return mica::complex(mica::clamp(mica::real(scaled), Scalar(-1), Scalar(1)),
                       mica::clamp(mica::imag(scaled), Scalar(-1), Scalar(1)));
}

// ---- norms

Tensor frobenius_norm(const Tensor& self, IntArrayRef dim, bool keepdim) {
  MICA_CHECK(dim.size() <= 2, "Expected at most 2 dimensions, but got ", dim.size(), " dimensions instead.");
  return mica::norm(self, Scalar(2), dim, keepdim);
}

Tensor norm_except_dim(const Tensor& v, int64_t pow, int64_t dim) {
  if (dim == -1) return v.norm(Scalar(pow));
  const int64_t kept = wrap_dim(dim, v.dim());
  DimVector others;
  for (int64_t d = 0; d < v.dim(); ++d)
    if (d != kept) others.push_back(d);
  return others.empty() ? mica::abs(v) : mica::norm(v, Scalar(pow), others.ref(), true);
}

Tensor dist(const Tensor& self, const Tensor& other, const Scalar& p) { return (self - other).norm(p); }

namespace {

// What the slices along a dimension are multiplied by.
Tensor renorm_factor(const Tensor& self, const Scalar& p, int64_t dim, const Scalar& maxnorm) {
  MICA_CHECK(!p.is_complex(), "renorm: p must be real-valued");
  MICA_CHECK(p.to_double() > 0, "renorm: non-positive-norm not supported");
  MICA_CHECK(!maxnorm.is_complex(), "renorm: maxnorm must be real-valued");
  MICA_CHECK(maxnorm.to_double() >= 0, "renorm: expected maxnorm to be >= 0 but got ", maxnorm);
  MICA_CHECK(self.dim() > 1, "renorm: input needs at least 2 dimensions, got ", self.dim(), " dimensions");
  const int64_t kept = wrap_dim(dim, self.dim());
  DimVector others;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != kept) others.push_back(d);
  const bool narrow = is_narrow(self.dtype());
  const Tensor norms =
      mica::norm(self, p, others.ref(), true, narrow ? ::std::optional<DType>(DType::Float32) : ::std::nullopt);
  // The small term keeps the scaled norm below the limit in spite of rounding.
  const Tensor factor = mica::where(mica::gt(norms, maxnorm), maxnorm / (norms + Scalar(1e-7)), Scalar(1.0));
  return factor.to(to_real(self.dtype()));
}

}  // namespace

Tensor renorm(const Tensor& self, const Scalar& p, int64_t dim, const Scalar& maxnorm) {
  return self * renorm_factor(self, p, dim, maxnorm);
}
void renorm_out(const Tensor& out, const Tensor& self, const Scalar& p, int64_t dim, const Scalar& maxnorm) {
  check_dtype_of_out("renorm", out.dtype(), self.dtype());
  mica::mul_out(out, self, renorm_factor(self, p, dim, maxnorm));
}

Tensor normalize(const Tensor& input, double p, IntArrayRef dim, double eps) {
  return input / mica::clamp_min(mica::norm(input, Scalar(p), dim, true), Scalar(eps));
}

}  // namespace mica::composite
