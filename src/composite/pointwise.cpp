// Pointwise operations that choose between others, and checks that they make before anything is computed.
#include "core/entry.h"
#include "core/out.h"
#include "core/pointwise.h"
#include "mica/autograd.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "shapes/indexing.h"

namespace mica {

namespace {

void require_bound(bool any) { MICA_CHECK(any, "torch.clamp: At least one of 'min' or 'max' must not be None"); }

void refuse_complex_clamp(bool is_complex) {
  MICA_CHECK_KIND(!is_complex, NotImplemented, "clamp is not supported for complex types");
}

// Checks that a bound can be converted to the dtype of the result. A bound of a wider kind makes that dtype wider.
void check_bound(const Tensor& self, const Scalar& bound) {
  refuse_complex_clamp(self.is_complex() || bound.is_complex());
  ResultType type;
  type.add(self);
  type.add(bound);
  check_number_fits(bound, type.get());
}

enum class Bounds { Lower, Upper, Both };

// Which bounds of clamp are given, once they are found to be in order.
Bounds bounds_of(const Tensor& self, const Tensor& min, const Tensor& max) {
  require_bound(min.defined() || max.defined());
  refuse_complex_clamp(self.is_complex());
  return !max.defined() ? Bounds::Lower : !min.defined() ? Bounds::Upper : Bounds::Both;
}
Bounds bounds_of(const Tensor& self, const std::optional<Scalar>& min, const std::optional<Scalar>& max) {
  require_bound(min || max);
  refuse_complex_clamp(self.is_complex());
  if (!max) return Bounds::Lower;
  if (!min) return Bounds::Upper;
  check_bound(self, *min);
  check_bound(self, *max);
  return Bounds::Both;
}

const Tensor& given(const Tensor& bound) { return bound; }
const Scalar& given(const std::optional<Scalar>& bound) { return *bound; }

template <class Bound>
Tensor clamped(const Tensor& self, const Bound& min, const Bound& max) {
  switch (bounds_of(self, min, max)) {
    case Bounds::Lower:
      return mica::clamp_min(self, given(min));
    case Bounds::Upper:
      return mica::clamp_max(self, given(max));
    default:
      return _clamp(self, given(min), given(max));
  }
}

template <class Bound>
void clamp_into(const Tensor& out, const Tensor& self, const Bound& min, const Bound& max) {
  switch (bounds_of(self, min, max)) {
    case Bounds::Lower:
      mica::clamp_min_out(out, self, given(min));
      break;
    case Bounds::Upper:
      mica::clamp_max_out(out, self, given(max));
      break;
    default:
      _clamp_out(out, self, given(min), given(max));
  }
}

template <class Bound>
void clamp_in_place(const Tensor& self, const Bound& min, const Bound& max) {
  const UncountedSteps steps(self);
  switch (bounds_of(self, min, max)) {
    case Bounds::Lower:
      mica::clamp_min_(self, given(min));
      break;
    case Bounds::Upper:
      mica::clamp_max_(self, given(max));
      break;
    default:
      _clamp_(self, given(min), given(max));
  }
}

using OptionalScalar = std::optional<Scalar>;

}  // namespace

namespace composite {

Tensor clamp(const Tensor& self, const Tensor& min, const Tensor& max) { return clamped(self, min, max); }
Tensor clamp(const Tensor& self, const OptionalScalar& min, const OptionalScalar& max) {
  return clamped(self, min, max);
}
void clamp_out(const Tensor& out, const Tensor& self, const Tensor& min, const Tensor& max) {
  clamp_into(out, self, min, max);
}
void clamp_out(const Tensor& out, const Tensor& self, const OptionalScalar& min, const OptionalScalar& max) {
  clamp_into(out, self, min, max);
}

Tensor ldexp(const Tensor& self, const Tensor& other) {
  if (other.is_floating_point() || other.is_complex()) return self * mica::pow(Scalar(2.0), other);
  // A power may be out of range where the product is not. Two powers of half the exponent are in range.
  const Tensor whole = other.to(DType::Int64), half = mica::bitwise_right_shift(whole, Scalar(1)), rest = whole - half;
  const DType dtype = self.is_floating_point() || self.is_complex() ? self.dtype() : default_dtype();
  const Tensor wide = self.to(self.is_complex() ? DType::Complex128 : DType::Float64);
  const auto power = [](const Tensor& exponent) { return mica::pow(Scalar(2.0), exponent.to(DType::Float64)); };
  return (wide * power(half) * power(rest)).to(dtype);
}

Tensor square(const Tensor& self) { return mica::pow(self, 2); }
void square_out(const Tensor& out, const Tensor& self) { mica::pow_out(out, self, 2); }

Tensor positive(const Tensor& self) {
  MICA_CHECK(self.dtype() != DType::Bool, "The `+` operator, on a bool tensor is not supported.");
  return self;
}

Tensor conj_physical(const Tensor& self) { return self.is_complex() ? _conj_physical(self) : self; }
void conj_physical_out(const Tensor& out, const Tensor& self) {
  if (self.is_complex()) {
    _conj_physical_out(out, self);
  } else {
    write_out("conj_physical", out, self);
  }
}

std::tuple<Tensor, Tensor> frexp(const Tensor& self) {
  MICA_CHECK(is_floating(self.dtype()), "torch.frexp() only supports floating-point dtypes");
  return {_frexp_mantissa(self), _frexp_exponent(self)};
}

Tensor mvlgamma(const Tensor& self, int64_t p) {
  MICA_CHECK(p >= 1, "p has to be greater than or equal to 1");
  MICA_CHECK(!self.is_complex() && self.dtype() != DType::Bool, "mvlgamma is not implemented for ", self.dtype());
  const Tensor x = self.is_floating_point() ? self : self.to(default_dtype());
  const Tensor steps = mica::arange(0, p, 1, x.options()) * -0.5;  // 0, -1/2, ..., -(p - 1) / 2
  const double scale = 0.25 * static_cast<double>(p) * static_cast<double>(p - 1) * 1.14472988584940017414;  // log(pi)
  return mica::lgamma(x.unsqueeze(-1) + steps).sum(-1) + scale;
}

Tensor isreal(const Tensor& self) {
  if (self.is_complex()) return mica::imag(self.detach()) == 0;
  return ones_like(self, TensorOptions(DType::Bool));
}

Tensor isclose(const Tensor& self, const Tensor& other, double rtol, double atol, bool equal_nan) {
  MICA_CHECK(self.dtype() == other.dtype(), info(self.dtype()).legacy, " did not match ", info(other.dtype()).legacy);
  MICA_CHECK(rtol >= 0, "rtol must be greater than or equal to zero, but got ", rtol);
  MICA_CHECK(atol >= 0, "atol must be greater than or equal to zero, but got ", atol);
  NoGradGuard no_grad;
  Tensor close = self == other;
  const bool inexact = is_floating(self.dtype()) || self.is_complex();
  if (equal_nan && inexact) close = logical_or(close, logical_and(isnan(self), isnan(other)));
  if (rtol == 0 && atol == 0) return close;
  const Tensor a = inexact ? self : self.to(default_dtype());
  const Tensor b = inexact ? other : other.to(default_dtype());
  const Tensor allowed = (b * rtol).abs() + atol;
  const Tensor distance = (a - b).abs();
  return logical_or(close, logical_and(isfinite(distance), distance <= allowed));
}

}  // namespace composite

namespace inplace {

void clamp_(const Tensor& self, const Tensor& min, const Tensor& max) { clamp_in_place(self, min, max); }
void clamp_(const Tensor& self, const OptionalScalar& min, const OptionalScalar& max) {
  clamp_in_place(self, min, max);
}

}  // namespace inplace

namespace checks {

namespace {

void refuse_complex(const char* op, const Tensor& a, const Tensor& b) {
  MICA_CHECK(!a.is_complex() && !b.is_complex(), op, " not implemented for complex tensors.");
}

}  // namespace

void maximum(const Tensor& self, const Tensor& other) { refuse_complex("maximum", self, other); }
void minimum(const Tensor& self, const Tensor& other) { refuse_complex("minimum", self, other); }
void fmax(const Tensor& self, const Tensor& other) { refuse_complex("fmax", self, other); }
void fmin(const Tensor& self, const Tensor& other) { refuse_complex("fmin", self, other); }

void clamp_min(const Tensor& self, const Scalar& min) { check_bound(self, min); }
void clamp_min(const Tensor&, const Tensor&) {}
void clamp_max(const Tensor& self, const Scalar& max) { check_bound(self, max); }
void clamp_max(const Tensor&, const Tensor&) {}

void heaviside(const Tensor& self, const Tensor& values) {
  MICA_CHECK(!self.is_complex() && !values.is_complex(), "heaviside is not yet implemented for complex tensors.");
  MICA_CHECK(self.dtype() == values.dtype(),
             "heaviside is not yet implemented for tensors with different dtypes. (input is ", self.dtype(),
             ", values is ", values.dtype(), ")");
}

void complex_parts(const Tensor& a, const Tensor& b) {
  const auto fits = [](DType t) { return t == DType::Float16 || t == DType::Float32 || t == DType::Float64; };
  MICA_CHECK(fits(a.dtype()) && fits(b.dtype()), "Expected both inputs to be Half, Float or Double tensors but got ",
             info(a.dtype()).legacy, " and ", info(b.dtype()).legacy);
  MICA_CHECK(a.dtype() == b.dtype(), "Expected object of scalar type ", info(a.dtype()).legacy, " but got scalar type ",
             info(b.dtype()).legacy, " for second argument");
}

void isposinf(const Tensor& self) { MICA_CHECK(!self.is_complex(), "isposinf does not support complex inputs."); }
void isneginf(const Tensor& self) { MICA_CHECK(!self.is_complex(), "isneginf does not support complex inputs."); }
void signbit(const Tensor& self) {
  MICA_CHECK_KIND(!self.is_complex(), NotImplemented, "signbit is not implemented for complex tensors.");
}
void real_only_ceil(const Tensor& self) {
  MICA_CHECK_KIND(!self.is_complex(), NotImplemented, "ceil is not supported for complex inputs");
}
void real_only_floor(const Tensor& self) {
  MICA_CHECK_KIND(!self.is_complex(), NotImplemented, "floor is not supported for complex inputs");
}
void real_only_trunc(const Tensor& self) {
  MICA_CHECK_KIND(!self.is_complex(), NotImplemented, "trunc is not supported for complex inputs");
}
void deg2rad(const Tensor& self) { MICA_CHECK(!self.is_complex(), "deg2rad is not supported for complex tensors."); }
void rad2deg(const Tensor& self) { MICA_CHECK(!self.is_complex(), "rad2deg is not supported for complex tensors."); }
void sign(const Tensor& self) {
  MICA_CHECK_KIND(!self.is_complex(), NotImplemented,
                  "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead.");
}
void polygamma(int64_t n, const Tensor&) { MICA_CHECK(n >= 0, "polygamma(n, x) does not support negative n."); }

}  // namespace checks
}  // namespace mica
