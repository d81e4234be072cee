// One step of each optimizer over a list of parameters. Torch's optimizers in Python and mica::optim's classes are both
// made of these.
//
// An item holds a parameter, its gradient and its state; a state that is undefined is made. The step runs as one fused
// pass where a kernel takes the tensors, otherwise as operations of the engine, which autograd follows if the options
// ask for it (differentiable). `capturable` and `fused` are torch's flags and only place counters on the parameter's
// device: the step is fused anyhow.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include "mica/optim/number.h"

namespace mica::optim {

struct SGDOptions {
  Number lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  Number weight_decay = 0;
  bool nesterov = false;
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
struct SGDItem {
  Tensor param, grad, momentum_buffer;
};
void sgd_step(std::span<SGDItem> items, const SGDOptions& options);

struct AdamOptions {
  Number lr = 1e-3;
  std::array<Number, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  Number weight_decay = 0;
  bool amsgrad = false;
  bool decoupled_weight_decay = false;  // AdamW
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
struct AdamItem {
  Tensor param, grad, step, exp_avg, exp_avg_sq, max_exp_avg_sq;
};
void adam_step(std::span<AdamItem> items, const AdamOptions& options);

struct AdamaxOptions {
  Number lr = 2e-3;
  std::array<Number, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  Number weight_decay = 0;
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
struct AdamaxItem {
  Tensor param, grad, step, exp_avg, exp_inf;
};
void adamax_step(std::span<AdamaxItem> items, const AdamaxOptions& options);

struct NAdamOptions {
  Number lr = 2e-3;
  std::array<Number, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  Number weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
struct NAdamItem {
  Tensor param, grad, step, mu_product, exp_avg, exp_avg_sq;
};
void nadam_step(std::span<NAdamItem> items, const NAdamOptions& options);

struct RAdamOptions {
  Number lr = 1e-3;
  std::array<Number, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  Number weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
struct RAdamItem {
  Tensor param, grad, step, exp_avg, exp_avg_sq;
};
void radam_step(std::span<RAdamItem> items, const RAdamOptions& options);

struct RMSpropOptions {
  Number lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  Number weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
struct RMSpropItem {
  Tensor param, grad, step, square_avg, momentum_buffer, grad_avg;
};
void rmsprop_step(std::span<RMSpropItem> items, const RMSpropOptions& options);

struct AdagradOptions {
  Number lr = 1e-2;
  double lr_decay = 0;
  Number weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
struct AdagradItem {
  Tensor param, grad, step, sum;
};
void adagrad_step(std::span<AdagradItem> items, const AdagradOptions& options);
void adagrad_init(AdagradItem& item, const AdagradOptions& options);  // torch makes the state with the optimizer

struct AdadeltaOptions {
  Number lr = 1.0;
  double rho = 0.9;
  double eps = 1e-6;
  Number weight_decay = 0;
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
struct AdadeltaItem {
  Tensor param, grad, step, square_avg, acc_delta;
};
void adadelta_step(std::span<AdadeltaItem> items, const AdadeltaOptions& options);

struct RpropOptions {
  Number lr = 1e-2;
  std::array<double, 2> etas = {0.5, 1.2};
  std::array<double, 2> step_sizes = {1e-6, 50};
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
struct RpropItem {
  Tensor param, grad, step, prev, step_size;
};
void rprop_step(std::span<RpropItem> items, const RpropOptions& options);

struct ASGDOptions {
  Number lr = 1e-2;
  double lambd = 1e-4;
  double alpha = 0.75;
  double t0 = 1e6;
  Number weight_decay = 0;
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
struct ASGDItem {
  Tensor param, grad, step, eta, mu, ax;
};
void asgd_step(std::span<ASGDItem> items, const ASGDOptions& options);

struct AdafactorOptions {
  Number lr = 1e-2;
  double beta2_decay = -0.8;
  std::optional<double> eps1 = std::nullopt;  // absent: the epsilon of the parameter's dtype
  double eps2 = 1e-3;
  double d = 1.0;
  double weight_decay = 0;
  bool maximize = false;
};
struct AdafactorItem {
  Tensor param, grad, step, row_var, col_var, variance;
};
void adafactor_step(std::span<AdafactorItem> items, const AdafactorOptions& options);

struct MuonOptions {
  Number lr = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};
  double eps = 1e-7;
  int64_t ns_steps = 5;
  std::string adjust_lr_fn = "original";  // or match_rms_adamw
};
struct MuonItem {
  Tensor param, grad, momentum_buffer;
};
void muon_step(std::span<MuonItem> items, const MuonOptions& options);

}  // namespace mica::optim
