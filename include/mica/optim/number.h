// A hyperparameter: torch takes a number or a tensor of one element for it.
#pragma once

#include <cmath>

#include "mica/core/grad_mode.h"
#include "mica/ops.h"

namespace mica::optim {

class Number {
 public:
  Number(double value = 0) : value_(value) {}
  Number(Tensor tensor) : tensor_(std::move(tensor)) {
    MICA_CHECK_KIND(tensor_.defined() && tensor_.numel() == 1, Value, "a hyperparameter must be a 1-element tensor");
    if (tensor_.dim() != 0) tensor_ = tensor_.squeeze();
  }

  bool is_tensor() const { return tensor_.defined(); }
  bool requires_grad() const { return is_tensor() && tensor_.requires_grad(); }
  double value() const { return is_tensor() ? tensor_.item().to_double() : value_; }
  const Tensor& tensor() const { return tensor_; }

  // The number without a history, unless autograd has to follow it.
  Number without_history() const { return requires_grad() && grad_enabled() ? *this : Number(value()); }

 private:
  double value_ = 0;
  Tensor tensor_;
};

#define MICA_NUMBER_OPERATOR(op)                                         \
  inline Number operator op(const Number& a, const Number& b) {          \
    if (!a.is_tensor() && !b.is_tensor()) return a.value() op b.value(); \
    if (!b.is_tensor()) return Number(a.tensor() op b.value());          \
    if (!a.is_tensor()) return Number(a.value() op b.tensor());          \
    return Number(a.tensor() op b.tensor());                             \
  }
MICA_NUMBER_OPERATOR(+)
MICA_NUMBER_OPERATOR(-)
MICA_NUMBER_OPERATOR(*)
MICA_NUMBER_OPERATOR(/)
#undef MICA_NUMBER_OPERATOR
inline Number operator-(const Number& a) { return a.is_tensor() ? Number(-a.tensor()) : Number(-a.value()); }
inline Number pow(const Number& base, double exponent) {
  return base.is_tensor() ? Number(base.tensor().pow(exponent)) : Number(std::pow(base.value(), exponent));
}
inline Number sqrt(const Number& a) { return a.is_tensor() ? Number(a.tensor().sqrt()) : Number(std::sqrt(a.value())); }

}  // namespace mica::optim
