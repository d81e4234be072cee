// PointwisePlan is what all pointwise operations share. It promotes dtypes, broadcasts, allocates or checks the output,
// and builds the loop that the kernel runs. The generated entry of an operation only adds its operands and calls its
// kernel.
#pragma once

#include <optional>

#include "core/recorded_call.h"
#include "mica/backend/pointwise_loop.h"
#include "mica/core/grad_mode.h"
#include "mica/tensor.h"

namespace mica {

enum class Promotion : uint8_t { Arithmetic, Float, Compare, Real, FloatReal, None };

struct PointwiseOp {
  const char* name;
  Promotion promotion;
  int noutputs = 1;
};

// Operands are kept by reference: a plan lives no longer than the call that makes it and the outputs that it hands out.
class PointwisePlan {
 public:
  explicit PointwisePlan(const PointwiseOp& op) : op_(op) {}
  PointwisePlan(const PointwisePlan&) = delete;

  void input(const Tensor& t) {
    if (!t.defined()) [[unlikely]]
      refuse_undefined();
    operands_[ninputs_++] = {&t, nullptr};
  }
  void input(const Scalar& s) { operands_[ninputs_++] = {nullptr, &s}; }
  // For Promotion::None: the dtype of the result, when it is not that of the first input.
  void set_result_dtype(DType t) { forced_result_ = t; }

  Tensor fresh(int output = 0);                  // a new output
  void in_place(const Tensor& self);             // writes into self: its shape and dtype must hold the result
  void into(const Tensor& out, int output = 0);  // out=: resized, cast into, checked for overlap
  void prepare();                                // after the outputs are named: builds the loop
  bool has_work() const { return loop.numel > 0 && !loop.device.is_meta(); }
  // Whether the kernel is called. It is called for a loop without elements too, because the kernel knows which dtypes
  // it refuses.
  bool has_kernel() const { return !loop.device.is_meta(); }
  // Calls the kernel, or puts the call off while a compiled function runs.
  template <class... P, class... A>
  void run(const char* slot, void (*kernel)(const PointwiseLoop&, P...), const A&... arguments) {
    if (!deferred_) [[likely]]
      return kernel(loop, arguments...);
    recording::set_kernel(begin_call(slot), kernel, arguments...);
    if (recording::end_call()) return;
    deferred_ = false;
    prepare();
    kernel(loop, arguments...);
  }
  void finish();  // copies a temporary into the target where one was needed

  PointwiseLoop loop;

 private:
  struct Operand {
    const Tensor* tensor;  // null: a number
    const Scalar* number;  // null beside a null tensor: a 0-dim CPU tensor among another device's, already in values_
  };
  // Facts that are needed only where operands are not alike.
  struct General {
    std::vector<Tensor> cast;  // owns converted inputs
    DimVector shape;
    DimVector permutation;  // permutation[k]: the dimension that is k-th fastest
  };
  [[noreturn, gnu::cold]] void refuse_undefined() const;
  void resolve();        // finds out the facts below, once
  bool resolve_alike();  // the common case: contiguous operands of one shape, dtype and device
  void promote();
  void compute_shape();
  void cast_inputs();
  DType result_of(DType common) const;
  IntArrayRef shape() const { return alike_ ? lead_->sizes() : general_->shape.ref(); }
  void give_up_alike();
  void compute_permutation();
  void nest(const TensorView* const* views);
  bool can_wait() const;  // whether the call may be put off
  void write_number(int k);
  recording::Call& begin_call(const char* slot);
  Tensor allocate_output(DType dtype);

  const PointwiseOp& op_;
  Operand operands_[PointwiseLoop::kMaxOperands];
  alignas(16) unsigned char values_[PointwiseLoop::kMaxOperands][16];  // numbers, as elements; by operand of the loop
  int ninputs_ = 0;
  bool resolved_ = false;
  bool deferred_ = false;
  bool alike_ = false;
  bool flat_ = false;  // every operand is contiguous and of the full shape, or a number: one loop will do
  DType common_ = DType::Undefined;
  DType result_ = DType::Undefined;
  DType forced_result_ = DType::Undefined;
  Device device_;
  const Tensor* lead_ = nullptr;
  const TensorImpl* outputs_[2] = {};
  const Tensor* given_[2] = {};  // out=
  Tensor temporaries_[2];        // what is computed in place of a given output that cannot hold it
  std::optional<General> general_;
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
