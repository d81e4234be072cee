// PointwisePlan: what every pointwise operation shares. It promotes dtypes, broadcasts, allocates or checks the output and builds the
// loop that the kernel runs; the generated entry of an operation only adds its operands and calls its kernel.
#pragma once

#include "mica/pointwise_loop.h"
#include "mica/tensor.h"

namespace mica {

enum class Promotion : uint8_t { Arithmetic, Float, Compare, Real, FloatReal, None };

struct PointwiseOp {
  const char* name;
  Promotion promotion;
  int noutputs = 1;
};

class PointwisePlan {
 public:
  explicit PointwisePlan(const PointwiseOp& op) : op_(op) {}
  PointwisePlan(const PointwisePlan&) = delete;

  void input(const Tensor& t);
  void input(const Scalar& s);
  // For Promotion::None: the dtype of the result, when it is not that of the first input.
  void set_result_dtype(DType t) { forced_result_ = t; }

  Tensor fresh(int output = 0);                  // a new output
  void in_place(const Tensor& self);             // writes into self: its shape and dtype must hold the result
  void into(const Tensor& out, int output = 0);  // out=: resized, cast into, checked for overlap
  void prepare();                                // after the outputs are named: builds the loop
  bool has_work() const { return loop.numel > 0 && !loop.device.is_meta(); }
  void finish();  // copies a temporary into out= where one was needed

  const Tensor& output(int i = 0) const { return outputs_[i]; }
  DType compute_dtype() const { return loop.dtype; }

  PointwiseLoop loop;

 private:
  struct Operand {
    const Tensor* tensor = nullptr;  // null: a number
    Scalar number;
    Tensor cast;  // owns a converted input
    alignas(16) unsigned char value[16];
  };
  void promote();
  void compute_shape();
  void resolve();  // promote + compute_shape, once
  void add_number_as_tensor(int i);
  void compute_permutation();
  Tensor allocate_output(DType dtype);
  bool try_fast();

  const PointwiseOp& op_;
  Operand operands_[PointwiseLoop::kMaxOperands];
  int ninputs_ = 0;
  Tensor outputs_[2];
  Tensor given_[2];
  bool resolved_ = false;
  bool fast_ = false;  // all operands are contiguous, of one shape (or numbers), of one dtype
  DType common_ = DType::Undefined;
  DType result_ = DType::Undefined;
  DType forced_result_ = DType::Undefined;
  Device device_;
  DimVector shape_;
  DimVector permutation_;  // permutation_[k]: the dimension that is k-th fastest
};

// torch's rule for the dtype of a mix of tensors, 0-dim tensors and numbers.
class ResultType {
 public:
  void add(const Tensor& t);
  void add(const Scalar& s);
  DType get() const;

 private:
  DType dims_ = DType::Undefined, zero_dim_ = DType::Undefined, numbers_ = DType::Undefined;
};
DType result_type(TensorList tensors);

}  // namespace mica
