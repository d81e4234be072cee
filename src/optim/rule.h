// The building blocks of rules that are written in terms of operations.
#pragma once

#include "mica/autograd.h"
#include "mica/optim/steps.h"
#include "optim/fused_batch.h"

namespace mica::optim {

// A step is not recorded by autograd unless it is asked for.
struct StepMode : EnableGradGuard {
  explicit StepMode(bool differentiable) : EnableGradGuard(differentiable) {}
};

// ---- states

Tensor new_state(const Tensor& param);                                      // zeros, laid out as the parameter
Tensor new_counter(const Tensor& param, bool on_device, double value = 0);  // a 0-dim tensor
double advance(const Tensor& step);                                         // adds one; returns the new value
double read(const Tensor& counter);                                         // its value
void write(const Tensor& counter, double value);
void scale(const Tensor& counter, double factor);  // in the counter's precision

// ---- the flags that all rules share

template <class Options>
uint32_t flags_of(const Options& o) {
  return o.maximize ? FusedParameter::kMaximize : 0;
}

// Weight decay for the fused kernels: added to the gradient, or shrinking the parameter by 1 - lr * decay.
inline void set_decay(FusedParameter& p, double weight_decay, bool decoupled, double lr) {
  if (weight_decay == 0) return;
  p.flags |= decoupled ? FusedParameter::kShrink : FusedParameter::kDecay;
  p.decay = decoupled ? 1 - lr * weight_decay : weight_decay;
}

// ---- sparse gradients

// Every element moves the averages of such a rule, so it refuses sparse gradients, before it changes anything.
template <class Item>
void refuse_sparse(std::span<Item> items, const char* name, const char* advice = "") {
  for (const Item& item : items) MICA_CHECK(!item.grad.is_sparse(), name, " does not support sparse gradients", advice);
}

// ---- operations with a Number

// A complex tensor as pairs of reals: every rule treats the two parts alike. For a lazily conjugated tensor the result
// is a copy, so only gradients may be conjugated.
Tensor as_real(const Tensor& t);

// The gradient that is minimised by, with the weight decay that is part of it.
Tensor effective_gradient(const Tensor& grad, const Tensor& param, bool maximize, const Number& weight_decay);
void shrink(const Tensor& param, const Number& lr, const Number& weight_decay);  // param *= 1 - lr * weight_decay

void add_scaled(const Tensor& self, const Tensor& other, const Number& factor);  // self += factor * other
void lerp_to(const Tensor& self, const Tensor& end, const Number& weight);
// self += factor * numerator / denominator
void add_quotient(const Tensor& self, const Tensor& numerator, const Tensor& denominator, const Number& factor);
// self = beta * self + (1 - beta) * value^2
void average_square(const Tensor& self, const Tensor& value, const Number& beta);
Tensor divided(const Tensor& a, const Number& b);
Tensor multiplied(const Tensor& a, const Number& b);

// A copy where autograd records: a later step changes the tensor in place, and autograd must not keep that one.
inline Tensor kept(const Tensor& t, bool differentiable) { return differentiable ? t.clone() : t; }

}  // namespace mica::optim
