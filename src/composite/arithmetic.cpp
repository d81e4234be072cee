#include <cctype>
#include <string>

#include "core/out_dtype.h"
#include "core/pointwise.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "shapes/indexing.h"

namespace mica {

namespace composite {

namespace {

void check_floor(std::string_view mode) {
  MICA_CHECK(mode == "floor", "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '", mode,
             "'");
}

template <class Other>
Tensor divide_rounded(const Tensor& self, const Other& other, std::optional<std::string_view> mode) {
  if (!mode) return mica::div(self, other);
  if (*mode == "trunc") return _div_trunc(self, other);
  check_floor(*mode);
  return _div_floor(self, other);
}

template <class Other>
void divide_rounded_into(const Tensor& out, const Tensor& self, const Other& other,
                         std::optional<std::string_view> mode) {
  if (!mode) {
    mica::div_out(out, self, other);
  } else if (*mode == "trunc") {
    _div_trunc_out(out, self, other);
  } else {
    check_floor(*mode);
    _div_floor_out(out, self, other);
  }
}

DType double_like(bool complex) { return complex ? DType::Complex128 : DType::Float64; }

}  // namespace

Tensor div_mode(const Tensor& self, const Tensor& other, std::optional<std::string_view> rounding_mode) {
  return divide_rounded(self, other, rounding_mode);
}
Tensor div_mode(const Tensor& self, const Scalar& other, std::optional<std::string_view> rounding_mode) {
  return divide_rounded(self, other, rounding_mode);
}
void div_mode_out(const Tensor& out, const Tensor& self, const Tensor& other,
                  std::optional<std::string_view> rounding_mode) {
  divide_rounded_into(out, self, other, rounding_mode);
}
void div_mode_out(const Tensor& out, const Tensor& self, const Scalar& other,
                  std::optional<std::string_view> rounding_mode) {
  divide_rounded_into(out, self, other, rounding_mode);
}

namespace {

template <class Base, class Exponent>
DType power_dtype(const Base& base, const Exponent& exponent) {
  return double_like(base.is_complex() || exponent.is_complex());
}
Tensor widened(const Tensor& t, DType dtype) { return t.to(dtype); }
const Scalar& widened(const Scalar& s, DType) { return s; }

template <class Base, class Exponent>
void float_power_into(const Tensor& out, const Base& base, const Exponent& exponent) {
  const DType dtype = power_dtype(base, exponent);
  check_dtype_of_out("float_power", out.dtype(), dtype);
  mica::pow_out(out, widened(base, dtype), widened(exponent, dtype));
}

}  // namespace

Tensor float_power(const Tensor& self, const Tensor& exponent) {
  const DType dtype = power_dtype(self, exponent);
  return mica::pow(self.to(dtype), exponent.to(dtype));
}
Tensor float_power(const Tensor& self, const Scalar& exponent) {
  return mica::pow(self.to(power_dtype(self, exponent)), exponent);
}
Tensor float_power(const Scalar& self, const Tensor& exponent) {
  return mica::pow(self, exponent.to(power_dtype(self, exponent)));
}
void float_power_out(const Tensor& out, const Tensor& self, const Tensor& exponent) {
  float_power_into(out, self, exponent);
}
void float_power_out(const Tensor& out, const Tensor& self, const Scalar& exponent) {
  float_power_into(out, self, exponent);
}
void float_power_out(const Tensor& out, const Scalar& self, const Tensor& exponent) {
  float_power_into(out, self, exponent);
}

DType result_type(const Tensor& tensor, const Tensor& other) {
  ResultType r;
  r.add(tensor);
  r.add(other);
  return r.get();
}

DType result_type(const Tensor& tensor, const Scalar& other) {
  ResultType r;
  r.add(tensor);
  r.add(other);
  return r.get();
}

}  // namespace composite

namespace checks {

namespace {

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool is_bool(const Tensor& t) { return t.dtype() == DType::Bool; }
bool is_bool(const Scalar& s) { return s.is_bool(); }

template <class Other>
void check_alpha(const Tensor& self, const Other& other, const Scalar& alpha) {
  MICA_CHECK(!alpha.is_bool() || (is_bool(self) && is_bool(other)),
             "Boolean alpha only supported for Boolean results.");
  if (!alpha.is_floating() && !alpha.is_complex()) return;
  const DType common = mica::result_type(self, other);
  MICA_CHECK(is_floating(common) || is_complex(common),
             "For integral input tensors, argument alpha must not be a floating point number.");
  MICA_CHECK(!alpha.is_complex() || is_complex(common),
             "For non-complex input tensors, argument alpha must not be a complex number.");
}

template <class Other>
void check_sub(const Tensor& self, const Other& other, const Scalar& alpha) {
  MICA_CHECK(!is_bool(self) || !is_bool(other),
             "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` "
             "operator instead.");
  MICA_CHECK(!is_bool(self) && !is_bool(other),
             "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
             "use the `~` or "
             "`logical_not()` operator instead.");
  check_alpha(self, other, alpha);
}

}  // namespace

void add_sub(const Tensor& self, const Tensor& other, const Scalar& alpha) { check_alpha(self, other, alpha); }
void add_sub(const Tensor& self, const Scalar& other, const Scalar& alpha) { check_alpha(self, other, alpha); }
void sub(const Tensor& self, const Tensor& other, const Scalar& alpha) { check_sub(self, other, alpha); }
void sub(const Tensor& self, const Scalar& other, const Scalar& alpha) { check_sub(self, other, alpha); }

void pow(const Tensor& self, const Scalar& exponent) {
  const bool integers = is_integral(self.dtype()) || is_bool(self);
  MICA_CHECK(!integers || !exponent.is_integral() || exponent.to_double() >= 0,
             "Integers to negative integer powers are not allowed.");
  if (is_integral(self.dtype()) && exponent.is_integral()) check_number_fits(exponent, self.dtype());
}
void pow(const Tensor&, const Tensor&) {}
void pow(const Scalar&, const Tensor&) {}

void addcdiv(const Tensor&, const Tensor& tensor1, const Tensor& tensor2, const Scalar&) {
  const auto whole = [](const Tensor& t) { return is_integral(t.dtype()) || is_bool(t); };
  MICA_CHECK(
      !whole(tensor1) || !whole(tensor2),
      "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true "
      "division of "
      "tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * torch.trunc(tensor1 / "
      "tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for float inputs. The "
      "future "
      "addcdiv behavior is just the latter implementation: (input + value * tensor1 / tensor2), for all dtypes.");
}

namespace {
void check_lerp_dtype(const Tensor& self, const Tensor& t, const char* argument) {
  MICA_CHECK(self.dtype() == t.dtype(), "expected dtype ", lower_case(info(self.dtype()).legacy), " for `", argument,
             "` but got dtype ", lower_case(info(t.dtype()).legacy));
}
}  // namespace
void lerp(const Tensor& self, const Tensor& end, const Scalar&) { check_lerp_dtype(self, end, "end"); }
void lerp(const Tensor& self, const Tensor& end, const Tensor& weight) {
  check_lerp_dtype(self, end, "end");
  if (weight.dim() > 0) check_lerp_dtype(self, weight, "weight");  // a tensor of one number may have any dtype
}

void neg(const Tensor& self) {
  MICA_CHECK(
      !is_bool(self),
      "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the "
      "`~` or `logical_not()` operator instead.");
}

}  // namespace checks
}  // namespace mica
