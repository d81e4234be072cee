// L-BFGS: a quasi-Newton step from the last gradients, with a line search if asked for.
#pragma once

#include <functional>
#include <vector>

#include "mica/optim/number.h"

namespace mica::optim {

// A plain number, or one that was computed from tensors and rounds as a tensor of that dtype. torch mixes Python floats
// and 0-dim tensors here, with the same effect.
class Real {
 public:
  Real(double value = 0) : value_(value) {}
  Real(double value, DType dtype);
  explicit Real(const Tensor& zero_dim) : Real(zero_dim.item().to_double(), zero_dim.dtype()) {}

  double value() const { return value_; }
  bool is_tensor() const { return dtype_ != DType::Undefined; }
  Tensor tensor() const { return full({}, value_, TensorOptions(dtype_)); }

  friend Real operator+(const Real& a, const Real& b);
  friend Real operator-(const Real& a, const Real& b);
  friend Real operator*(const Real& a, const Real& b);
  friend Real operator/(const Real& a, const Real& b);
  friend bool operator<(const Real& a, const Real& b);
  friend bool operator<=(const Real& a, const Real& b);
  friend bool operator>(const Real& a, const Real& b) { return b < a; }
  friend bool operator>=(const Real& a, const Real& b) { return b <= a; }
  Real operator-() const { return Real(-value_, dtype_); }
  friend Real abs(const Real& a) { return Real(std::abs(a.value_), a.dtype_); }
  friend Real sqrt(const Real& a) { return Real(std::sqrt(a.value_), a.dtype_); }
  friend const Real& smaller(const Real& a, const Real& b) { return b < a ? b : a; }
  friend const Real& larger(const Real& a, const Real& b) { return a < b ? b : a; }

 private:
  double value_;
  DType dtype_ = DType::Undefined;
};

struct LBFGSOptions {
  Number lr = 1;
  int64_t max_iter = 20;
  int64_t max_eval = -1;  // negative: a quarter more than max_iter
  double tolerance_grad = 1e-7;
  double tolerance_change = 1e-9;
  int64_t history_size = 100;
  bool strong_wolfe = false;
};

struct LBFGSState {
  int64_t func_evals = 0, n_iter = 0;
  Tensor d;                                // the direction
  Real t;                                  // the length of the step along it
  std::vector<Tensor> old_dirs, old_stps;  // differences of gradients and of parameters
  std::vector<Real> ro;                    // the reciprocals of their products
  std::vector<Real> al;                    // scratch of the recursion, which torch keeps too
  Real h_diag = 1;
  Tensor prev_flat_grad;
  double prev_loss = 0;
};

// `closure` computes the loss and leaves gradients in the parameters; it is called with autograd recording.
void lbfgs_step(TensorList params, LBFGSState& state, const LBFGSOptions& options,
                const std::function<double()>& closure);

}  // namespace mica::optim
