#include "optim/rule.h"

namespace mica::optim {

Tensor new_state(const Tensor& param) { return zeros_like(param, {}, MemoryFormat::Preserve).detach(); }

Tensor new_counter(const Tensor& param, bool on_device, double value) {
  const DType dtype = default_dtype() == DType::Float64 ? DType::Float64 : DType::Float32;
  return full({}, value, TensorOptions(dtype).device(on_device ? param.device() : kCPU));
}

// Counters are nearly always a float or a double on the CPU, read and written without an operation.
template <class T>
static T* counter_data(const Tensor& t) {
  const bool direct =
      t.dtype() == dtype_v<T> && t.is_cpu() && t.numel() == 1 && !(t.impl()->bits & tensor_bit::kInference);
  return direct ? static_cast<T*>(t.data_ptr()) : nullptr;
}

double advance(const Tensor& step) {
  if (float* data = counter_data<float>(step)) {
    mark_changed(step);
    return *data += 1;
  }
  step.add_(1);
  return step.item().to_double();
}

double read(const Tensor& counter) {
  if (const float* data = counter_data<float>(counter)) return *data;
  return counter.item().to_double();
}

void write(const Tensor& counter, double value) {
  if (float* data = counter_data<float>(counter)) {
    mark_changed(counter);
    *data = static_cast<float>(value);
  } else {
    counter.fill_(value);
  }
}

void scale(const Tensor& counter, double factor) {
  if (float* data = counter_data<float>(counter)) {
    mark_changed(counter);
    *data *= static_cast<float>(factor);
  } else {
    counter.mul_(factor);
  }
}

Tensor as_real(const Tensor& t) { return t.is_complex() ? view_as_real(t.resolve_conj()) : t; }

Tensor effective_gradient(const Tensor& grad, const Tensor& param, bool maximize, const Number& weight_decay) {
  Tensor g = maximize ? -grad : grad;
  if (weight_decay.requires_grad() && grad_enabled()) return g.addcmul(param.clone(), weight_decay.tensor());
  const double decay = weight_decay.value();
  return decay == 0 ? g : g.add(param, decay);
}

void shrink(const Tensor& param, const Number& lr, const Number& weight_decay) {
  const Number factor = Number(1) - lr.without_history() * weight_decay.without_history();
  if (factor.is_tensor()) {
    param.mul_(factor.tensor());
  } else {
    param.mul_(factor.value());
  }
}

void add_scaled(const Tensor& self, const Tensor& other, const Number& factor) {
  if (factor.is_tensor()) {
    self.addcmul_(other, factor.tensor().to(self.dtype()));
  } else {
    self.add_(other, factor.value());
  }
}

void lerp_to(const Tensor& self, const Tensor& end, const Number& weight) {
  if (weight.is_tensor()) {
    self.lerp_(end, weight.tensor().to(self.dtype()));
  } else {
    self.lerp_(end, weight.value());
  }
}

void add_quotient(const Tensor& self, const Tensor& numerator, const Tensor& denominator, const Number& factor) {
  if (factor.is_tensor()) {
    self.addcdiv_(numerator * factor.tensor(), denominator);
  } else {
    self.addcdiv_(numerator, denominator, factor.value());
  }
}

void average_square(const Tensor& self, const Tensor& value, const Number& beta) {
  if (beta.is_tensor()) {
    self.lerp_(value.square(), (Number(1) - beta).tensor().to(self.dtype()));
  } else {
    self.mul_(beta.value()).addcmul_(value, value, 1 - beta.value());
  }
}

Tensor divided(const Tensor& a, const Number& b) { return b.is_tensor() ? a / b.tensor() : a / Scalar(b.value()); }
Tensor multiplied(const Tensor& a, const Number& b) { return b.is_tensor() ? a * b.tensor() : a * Scalar(b.value()); }

}  // namespace mica::optim
