// Recurrent layers: one pass backwards over time by a kernel, and the same layer unrolled into operations where the
// derivative is itself differentiated.
#include "autograd/formulas/recurrent.h"

#include "core/kernel_arguments.h"
#include "mica/backend/layer_backend.h"
#include "mica/backend/rounded_products.h"
#include "mica/core/dispatch.h"
#include "mica/ops.h"
#include "recurrent/unrolled_recurrent.h"

namespace mica::formulas {

namespace {

enum : int64_t { kLstm = 2, kGru = 3 };

Tensor dense(const Tensor& t, DType dtype) { return t.defined() ? t.to(dtype).contiguous() : t; }

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> recurrent_layer_backward(
    const TensorVec& grads, const Tensor& data, IntArrayRef batch_sizes, const Tensor& h0, const Tensor& c0,
    const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, int64_t mode,
    bool reverse, const Tensor& output, const Tensor& gates, const Tensor& cells, const std::array<bool, 8>& wanted) {
  if (!grads[0].defined() && !grads[1].defined() && !grads[2].defined()) return {};
  if (grad_enabled() || dispatch::active) {
    const bool again = grad_enabled();
    const EnableGradGuard recording(true);
    // Views of the inputs, so that one tensor given twice gets two gradients.
    std::array<Tensor, 8> x{data, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr}, result;
    TensorVec inputs, outputs, output_grads;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!wanted[i] || !x[i].defined()) continue;
      x[i] = again ? x[i].view_as(x[i]) : x[i].detach().requires_grad_(true);
      inputs.push_back(x[i]);
    }
    const RecurrentResult u =
        unroll_recurrent_layer(x[0], batch_sizes, x[1], x[2], {x[3], x[4], x[5], x[6], x[7]}, mode, reverse);
    const std::array<Tensor, 3> made{u.output, u.hy, u.cy};
    for (size_t i = 0; i < made.size(); ++i) {
      if (!grads[i].defined() || !made[i].defined()) continue;
      outputs.push_back(made[i]);
      output_grads.push_back(grads[i]);
    }
    const TensorVec found = autograd::grad(outputs, inputs, output_grads, again, again, true);
    for (size_t i = 0, at = 0; i < x.size(); ++i)
      if (wanted[i] && x[i].defined()) result[i] = found[at++];
    return std::tuple_cat(result);
  }

  const ModeGuard exact(mode_bit::kAutocast, false);
  const DType dtype = gates.dtype();
  const int64_t rows = data.size(0), state = h0.size(1);
  const bool projected = w_hr.defined(), has_cell = mode == kLstm;
  const Tensor h = dense(h0, dtype), c = dense(c0, dtype), hidden_weight = dense(w_hh, dtype), wr = dense(w_hr, dtype);
  const Tensor y = output.to(dtype);
  Tensor grad_output = grads[0].defined() ? grads[0].to(dtype) : Tensor();
  if (grad_output.defined() && grad_output.stride(1) != 1) grad_output = grad_output.contiguous();
  const auto initial = [&](const Tensor& grad, const Tensor& like) {
    return grad.defined() ? grad.to(dtype).clone(MemoryFormat::Contiguous) : mica::zeros(like.sizes(), h.options());
  };
  const Tensor grad_h = initial(grads[1], h), grad_c = has_cell ? initial(grads[2], c) : Tensor();
  const Tensor grad_gates = mica::empty(gates.sizes(), gates.options());
  const Tensor grad_hidden_gates = mode == kGru ? mica::empty(gates.sizes(), gates.options()) : grad_gates;
  const auto when = [&](bool condition, int64_t width) {
    return condition ? mica::empty({rows, width}, gates.options()) : Tensor();
  };
  const Tensor previous = when(wanted[4], state);
  const Tensor unprojected = when(projected, cells.size(1)), grad_projected = when(projected, state);
  if (rows > 0 && !data.is_meta()) {
    MICA_LAYER_KERNEL(data.device(), recurrent_backward)
    (grad_gates.view_of(), grad_hidden_gates.view_of(), grad_h.view_of(), view_or_none(grad_c), view_or_none(previous),
     view_or_none(unprojected), view_or_none(grad_projected), view_or_none(grad_output), y.view_of(), gates.view_of(),
     cells.view_of(), h.view_of(), view_or_none(c), hidden_weight.view_of(), view_or_none(wr), batch_sizes, mode,
     reverse, data.dtype());
  }
  const ProductsOfLayer rounded(data.device());
  Tensor grad_data, grad_w_ih, grad_w_hh, grad_b_ih, grad_b_hh, grad_w_hr;
  if (wanted[0]) grad_data = mica::mm(grad_gates, w_ih.to(dtype));
  if (wanted[3]) grad_w_ih = mica::mm(grad_gates.t(), data.to(dtype));
  if (wanted[4]) grad_w_hh = mica::mm(grad_hidden_gates.t(), previous);
  if (wanted[5]) grad_b_ih = mica::sum(grad_gates, 0);
  if (wanted[6]) grad_b_hh = mode != kGru && grad_b_ih.defined() ? grad_b_ih : mica::sum(grad_hidden_gates, 0);
  if (wanted[7]) grad_w_hr = mica::mm(grad_projected.t(), unprojected);
  return {grad_data, grad_h, grad_c, grad_w_ih, grad_w_hh, grad_b_ih, grad_b_hh, grad_w_hr};
}

}  // namespace mica::formulas
