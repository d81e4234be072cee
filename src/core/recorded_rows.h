// Kernels on rows within compiled functions: those that compute each index of some leading dimensions for itself, as a
// sum over the last dimension does, are put off with pointwise ones.
#pragma once

#include <initializer_list>

#include "core/recorded_call.h"
#include "mica/core/grad_mode.h"
#include "mica/tensor.h"

namespace mica::recording {

// Fills in which part of which storage a tensor is.
void describe(Operand& o, const Tensor& t);

// The call to fill in, or null where it cannot be put off: no compiled function runs, tensors are small, or somebody
// outside knows the address of their memory. Every tensor has `lead` leading dimensions, which are computed index by
// index.
Call* begin_rows(const char* name, std::initializer_list<const Tensor*> outputs,
                 std::initializer_list<const Tensor*> inputs, int lead);

// Puts off body(views, dropped): views of the outputs, then of the inputs, without the first `dropped` dimensions.
template <class Body>
bool put_off(const char* name, std::initializer_list<const Tensor*> outputs,
             std::initializer_list<const Tensor*> inputs, int lead, const Body& body) {
  if (!(thread_modes & mode_bit::kRecord)) [[likely]]
    return false;
  Call* call = begin_rows(name, outputs, inputs, lead);
  if (!call) return false;
  set_rows(*call, body);
  return end_call();
}

// Whether a tensor that is made of pieces is made by one call for each piece: on the CPU, and in a graph that is
// captured.
bool puts_pieces_off(Device device);

// Puts off out = a @ b, plus the row `bias` if it is given, where the device's backend computes such a product of one
// row side by side with others. That pays in a graph that is captured, where launches cost little.
bool put_off_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* bias = nullptr);

// Puts off self.select(dim, *index) = source, whose size in `dim` is one, in such a graph.
bool put_off_copy_to(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source);

// Puts off layer_norm, or rms_norm (no mean), of contiguous tensors, where the device's backend computes it together
// with what stands before and after it. False where a result was given that cannot wait.
bool put_off_norm(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& input, const Tensor& weight,
                  const Tensor& bias, int64_t count, double eps);
// The same for the gradients, of which those that are not wanted are undefined. The last is that of the result.
struct NormGradients {
  const Tensor &grad_input, &grad_weight, &grad_bias, &grad;
};
bool put_off_norm_gradient(const NormGradients& gradients, const Tensor& input, const Tensor& mean, const Tensor& rstd,
                           const Tensor& weight, int64_t count);
// Whether such a norm can be put off, by its input and parameters, of which those that are not there are undefined. To
// be asked once for each call, before its results are declared.
bool layer_norm_waits(const Tensor& input, const Tensor& weight, const Tensor& bias, int64_t count);
bool rms_norm_waits(const Tensor& input, const Tensor& weight, int64_t count);
bool norm_gradient_waits(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, int64_t count);

// Whether a kernel on rows of this tensor may be put off, and whether a copy of it to the device may be.
bool rows_may_wait(const Tensor& input);
bool copy_may_wait(const Tensor& input, Device device);

// While one lives that is `on`, the memory of results that operations declare is only promised: it comes with what it
// holds. A promise in vain costs more than an allocation, so only operations open one whose kernel may be put off.
class Promises {
 public:
  explicit Promises(bool on) : before_(active_) { active_ = on; }
  Promises(const Promises&) = delete;
  Promises& operator=(const Promises&) = delete;
  ~Promises() { active_ = before_; }
  static bool active() { return active_; }

 private:
  static constinit thread_local bool active_;
  bool before_;
};

// The call to fill in by put_off_sum, or null where it cannot be put off.
Call* begin_sum(const char* name, const Tensor& out, const Tensor& row, bool is_mean);

// Puts off the sum or the mean of all elements of `row`, where the device's backend computes it between loops of few
// elements; body(views, dropped) computes it alone. That pays in a graph that is captured.
template <class Body>
bool put_off_sum(const char* name, const Tensor& out, const Tensor& row, bool is_mean, const Body& body) {
  Call* call = begin_sum(name, out, row, is_mean);
  if (!call) return false;
  set_rows(*call, body);
  call->form = Call::Form::Sum;
  return end_call();
}

}  // namespace mica::recording
