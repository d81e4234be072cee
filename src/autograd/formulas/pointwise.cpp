#include "autograd/formulas/pointwise.h"

#include <cmath>

#include "autograd/formulas/formulas.h"
#include "autograd/formulas/seen.h"

namespace mica::formulas {

namespace {

constexpr double kPi = 3.14159265358979323846;
const Scalar kImaginary = Scalar(complex128(0, 1));

bool is_zero(const Scalar& s) { return s.to_complex() == complex128(0); }

Scalar minus_one(const Scalar& s) {
  if (s.is_complex()) return s.to_complex() - 1.0;
  return s.is_floating() ? Scalar(s.to_double() - 1) : Scalar(s.to_int() - 1);
}

Scalar one_minus(const Scalar& s) {
  return s.is_complex() ? Scalar(1.0 - s.to_complex()) : Scalar(1.0 - s.to_double());
}

Tensor real_part(const Tensor& t) { return t.is_complex() ? mica::real(t) : t; }

}  // namespace

// ---- arithmetic and powers -----------------------------------------------------------------------------------------

Tensor remainder_other_backward(const Tensor& grad, const Tensor& self, const Tensor& other) {
  return -grad * div(self, other, "floor");
}
Tensor remainder_other_backward(const Tensor& grad, const Scalar& self, const Tensor& other) {
  return remainder_other_backward(grad, zeros_like(other) + self, other);
}

Tensor pow_self_backward(const Tensor& grad, const Tensor& self, const Scalar& exponent) {
  if (is_zero(exponent)) return zeros_like(grad);
  return grad * conj_of(pow(self, minus_one(exponent)) * exponent);
}
Tensor pow_self_backward(const Tensor& grad, const Tensor& self, const Tensor& exponent) {
  return _masked(grad * conj_of(exponent * pow(self, exponent - 1)), exponent != 0);
}

// 0 ** exponent has slope zero for exponents that are not negative, although its logarithm is infinite.
Tensor pow_exponent_backward(const Tensor& grad, const Tensor& self, const Tensor& exponent, const Tensor& result) {
  const Tensor flat = logical_and(self == 0, real_part(exponent) >= 0);
  const Tensor base = self.is_complex() || !result.is_complex() ? self : self.to(result.dtype());
  return _masked(grad * conj_of(result * base.log()), logical_not(flat));
}
Tensor pow_exponent_backward(const Tensor& grad, const Scalar& self, const Tensor& exponent, const Tensor& result) {
  if (is_zero(self)) return _masked(grad * (result * -INFINITY), real_part(exponent) < 0);
  const bool complex_log = self.is_complex() || (result.is_complex() && self.to_double() < 0);
  const Scalar log_self = complex_log ? Scalar(std::log(self.to_complex())) : Scalar(std::log(self.to_double()));
  return grad * conj_of(result * log_self);
}

Tensor lerp_self_backward(const Tensor& grad, const Scalar& weight) { return grad * one_minus(weight).conj(); }
Tensor lerp_self_backward(const Tensor& grad, const Tensor& weight) { return grad * conj_of(1 - weight); }

Tensor copysign_self_backward(const Tensor& grad, const Tensor& self, const Tensor& result) {
  return _masked(grad * (result / self), self != 0);
}

Tensor xlogy_self_backward(const Tensor& grad, const Tensor& self, const Tensor& other) {
  return _masked(xlogy(grad, other), logical_not(logical_and(self == 0, other <= 0)));
}
Tensor xlogy_self_backward(const Tensor& grad, const Tensor& self, const Scalar& other) {
  const Tensor result = xlogy(grad, other);
  return other.to_double() > 0 ? result : _masked(result, self != 0);
}

Tensor xlog1py_self_backward(const Tensor& grad, const Tensor& self, const Tensor& other) {
  return _masked(special_xlog1py(grad, other), logical_not(logical_and(self == 0, other <= -1)));
}
Tensor xlog1py_self_backward(const Tensor& grad, const Tensor& self, const Scalar& other) {
  const Tensor result = special_xlog1py(grad, other);
  return other.to_double() > -1 ? result : _masked(result, self != 0);
}

Tensor zeta_other_backward(const Tensor& grad, const Tensor& self, const Tensor& other) {
  return grad * -self * special_zeta(self + 1, other);
}
Tensor zeta_other_backward(const Tensor& grad, const Scalar& self, const Tensor& other) {
  return grad * -self * special_zeta(Scalar(self.to_double() + 1), other);
}

// I1' = I0 - I1 / x, whose limit at zero is a half.
Tensor i1_backward(const Tensor& grad, const Tensor& self, const Tensor& result) {
  const Tensor at_zero = self == 0, x = where(at_zero, Scalar(1.0), self);
  return grad * where(at_zero, Scalar(0.5), i0(x) - result / x);
}
Tensor i1e_backward(const Tensor& grad, const Tensor& self, const Tensor& result) {
  const Tensor at_zero = self == 0, x = where(at_zero, Scalar(1.0), self);
  return grad * where(at_zero, Scalar(0.5), special_i0e(x) - result * (sgn(x) + reciprocal(x)));
}

// ---- the larger, the smaller, bounds -------------------------------------------------------------------------------

Tensor larger_backward(const Tensor& grad, const Tensor& larger, const Tensor& smaller) {
  // Written so that a NaN on either side, which becomes the result, passes the gradient on.
  return _masked(grad, logical_not(larger <= smaller)) + _masked(grad * 0.5, larger == smaller);
}

Tensor clamp_self_backward(const Tensor& grad, const Tensor& self, const Tensor& min, const Tensor& max) {
  if (!min.defined()) return _masked(grad, self <= max);
  if (!max.defined()) return _masked(grad, self >= min);
  return _masked(grad, logical_and(self >= min, self <= max));
}
Tensor clamp_self_backward(const Tensor& grad, const Tensor& self, const std::optional<Scalar>& min,
                           const std::optional<Scalar>& max) {
  if (!min) return _masked(grad, self <= *max);
  if (!max) return _masked(grad, self >= *min);
  return _masked(grad, logical_and(self >= *min, self <= *max));
}
Tensor clamp_min_backward(const Tensor& grad, const Tensor& self, const Tensor& min, const Tensor& max) {
  const Tensor below = self < min;
  return _masked(grad, max.defined() ? logical_and(below, min < max) : below);
}
Tensor clamp_max_backward(const Tensor& grad, const Tensor& self, const Tensor& min, const Tensor& max) {
  const Tensor above = self > max;
  return _masked(grad, min.defined() ? logical_or(above, max < min) : above);
}

// ---- functions of one operand --------------------------------------------------------------------------------------

Tensor angle_backward(const Tensor& grad, const Tensor& self) {
  if (!self.is_complex()) return zeros_like(grad);
  const Tensor magnitude = self.abs();
  return _masked(self * kImaginary * grad / (magnitude * magnitude), magnitude != 0);
}

Tensor polar_abs_backward(const Tensor& grad, const Tensor& angle) {
  return mica::real(grad) * angle.cos() + mica::imag(grad) * angle.sin();
}
Tensor polar_angle_backward(const Tensor& grad, const Tensor& result) {
  return mica::real(grad * conj_of(result * kImaginary));
}

Tensor sgn_backward(const Tensor& grad, const Tensor& self, const Tensor& result) {
  if (!self.is_complex()) return zeros_like(grad);
  const Tensor magnitude = self.abs();
  const Tensor along = mica::real(grad * conj_of(result)) * result;
  return _masked((grad - along) / magnitude, magnitude != 0);
}

Tensor sinc_backward(const Tensor& grad, const Tensor& self) {
  const Tensor angle = self * kPi;
  const Tensor below = angle * self;  // zero at other places than zero too
  return _masked(grad * conj_of((angle * angle.cos() - angle.sin()) / below), below != 0);
}

Tensor logit_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& self,
                             std::optional<double> eps) {
  return logit_backward(logit_backward(grad * grad_output, self, eps), self, eps) * (self * 2 - 1);
}

// ---- activations ---------------------------------------------------------------------------------------------------

Tensor glu_backward(const Tensor& grad, const Tensor& self, int64_t dim) {
  if (is_seen())
    return seen_one("glu_backward", {grad, self, dim}, {grad, self},
                    [=](const TensorVec& t) -> TensorVec { return {glu_backward(t[0], t[1], dim)}; });
  const int64_t half = self.size(dim) / 2;
  const Tensor gate = self.narrow(dim, half, half).sigmoid();
  const Tensor first = grad * gate;
  return cat({first, sigmoid_backward(grad * self.narrow(dim, 0, half), gate)}, dim);
}

std::tuple<Tensor, Tensor> prelu_backward(const Tensor& grad, const Tensor& self, const Tensor& weight,
                                          const std::array<bool, 2>& wanted) {
  if (is_seen()) {
    const TensorVec made = seen("_prelu_kernel_backward", {grad, self, weight}, 2, {grad, self, weight},
                                [=](const TensorVec& t) -> TensorVec {
                                  const auto [a, b] = prelu_backward(t[0], t[1], t[2], {true, true});
                                  return {a, b};
                                });
    return {made[0], made[1]};
  }
  return {wanted[0] ? _masked(grad, self > 0) + _masked(grad * weight, self <= 0) : Tensor(),
          wanted[1] ? _masked(grad * self, self < 0) : Tensor()};
}

Tensor elu_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& self, const Scalar& alpha,
                           const Scalar& scale, const Scalar& input_scale) {
  return _masked(elu_backward(grad * grad_output, self, alpha, scale, input_scale) * input_scale, self <= 0);
}

Tensor gelu_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& self,
                            std::string_view approximate) {
  const Tensor square = self * self;
  if (approximate != "tanh") {
    const Tensor density = (square * -0.5).exp() * (1 / std::sqrt(2 * kPi));
    return grad * grad_output * density * (2 - square);
  }
  constexpr double kCubic = 0.044715;
  const double scale = std::sqrt(2 / kPi);
  const Tensor t = (self * (square * kCubic + 1) * scale).tanh();
  const Tensor slope = (square * (3 * kCubic) + 1) * scale;
  const Tensor curvature = self * (6 * kCubic * scale);
  const Tensor second = (1 - t * t) * (slope + self * 0.5 * (curvature - t * slope * slope * 2));
  return grad * grad_output * second;
}

Tensor silu_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& self) {
  const Tensor s = self.sigmoid();
  return grad * grad_output * s * (1 - s) * (self * (1 - s * 2) + 2);
}

Tensor mish_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& self) {
  const Tensor s = self.sigmoid();
  const Tensor t = softplus(self).tanh();
  const Tensor slope = (1 - t * t) * s;
  return grad * grad_output * slope * (self * (1 - s - t * s * 2) + 2);
}

Tensor softplus_double_backward(const Tensor& grads, const Tensor& self, const Scalar& beta, const Scalar& threshold) {
  const Tensor scaled = self * beta;
  const Tensor s = scaled.sigmoid();
  return _masked(grads * s * (1 - s) * beta, scaled <= threshold);
}

}  // namespace mica::formulas
