#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/kept.h"
#include "mica/core/grad_mode.h"
#include "mica/generated/layers/recurrent_implementations.h"
#include "mica/backend/layer_backend.h"
#include "mica/ops.h"
#include "mica/backend/rounded_products.h"
#include "shapes/argument_checks.h"

namespace mica::shapes {

namespace {

enum : int64_t { kLstm = 2, kGru = 3 };

Tensor dense(const Tensor& t, DType dtype) { return t.defined() ? t.to(dtype).contiguous() : t; }

void check_product(const Tensor& a, const Tensor& weight) {
  MICA_CHECK(a.dtype() == weight.dtype(), "mat1 and mat2 must have the same dtype, but got ", a.dtype(), " and ",
             weight.dtype(), " (a recurrent layer's input or state and its weight)");
  MICA_CHECK(a.size(1) == weight.size(1), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x", a.size(1),
             " and ", weight.size(1), "x", weight.size(0), "), a recurrent layer's input or state and its weight");
}

void check_bias(const Tensor& bias, const Tensor& weight) {
  if (!bias.defined()) return;
  MICA_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0), "a recurrent layer's bias must have one element for ",
             "each of its ", weight.size(0), " gates, but got ", bias);
  MICA_CHECK(bias.dtype() == weight.dtype(), "a recurrent layer's bias must have the dtype of its weight, but got ",
             bias.dtype(), " and ", weight.dtype());
}

}  // namespace

void _recurrent_layer(Out& output, Out& hy, Out& cy, Out& gates, Out& cells, const Tensor& data,
                      IntArrayRef batch_sizes, const Tensor& h0, const Tensor& c0, const Tensor& w_ih,
                      const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, int64_t mode,
                      bool reverse) {
  for (const Tensor* t : {&data, &h0, &w_ih, &w_hh})
    MICA_CHECK(t->dim() == 2, "a recurrent layer takes matrices, but got ", *t);
  check_one_device("a recurrent layer", {&data, &h0, &c0, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr});
  const DType dtype = data.dtype();
  MICA_CHECK_KIND(data.is_floating_point(), NotImplemented, "recurrent layers are not implemented for ", dtype,
                  "; convert the input to a floating dtype");
  check_product(data, w_ih);
  check_product(h0, w_hh);
  MICA_CHECK(w_ih.size(0) == w_hh.size(0) && w_ih.dtype() == w_hh.dtype(),
             "the weights of a recurrent layer must agree in rows and dtype, but got ", w_ih, " and ", w_hh);
  check_bias(b_ih, w_ih);
  check_bias(b_hh, w_hh);
  const int64_t groups = mode == kLstm ? 4 : mode == kGru ? 3 : 1;
  const int64_t rows = data.size(0), batch = h0.size(0), state = h0.size(1), width = w_ih.size(0);
  const int64_t units = width / groups;
  MICA_CHECK(width % groups == 0 && units > 0, "a recurrent layer with ", groups, " gates cannot have weights of ",
             width, " rows");
  MICA_CHECK(w_hr.defined() || units == state, "mat1 and mat2 shapes cannot be multiplied (", batch, "x", state,
             " and ", units, "x", width, "), a recurrent layer's state and its hidden weight");
  if (w_hr.defined()) {
    MICA_CHECK(mode == kLstm, "only an LSTM takes a projection");
    MICA_CHECK(w_hr.sizes() == IntArrayRef({state, units}) && w_hr.dtype() == dtype,
               "an LSTM's projection must be of shape ", IntArrayRef({state, units}), " and ", dtype, ", but got ",
               w_hr);
  }
  if (mode == kLstm) {
    MICA_CHECK(c0.defined() && c0.sizes() == IntArrayRef({batch, units}) && c0.dtype() == dtype,
               "an LSTM's cell state must be of shape ", IntArrayRef({batch, units}), " and ", dtype, ", but got ", c0);
  }
  int64_t total = 0, last = batch;
  MICA_CHECK(!batch_sizes.empty(), "Expected sequence length to be larger than 0 in RNN");
  for (int64_t size : batch_sizes) {
    MICA_CHECK(size >= 0 && size <= last,
               "batch sizes of packed sequences must not grow from step to step, nor exceed ",
               "the batch of the state (", batch, "), but a step has ", size);
    total += last = size;
  }
  MICA_CHECK(total == rows, "packed sequences of ", total, " steps need as many rows, but got ", data);
  MICA_CHECK(batch_sizes[0] == batch, "Expected hidden batch size ", batch_sizes[0], ", got ", batch);

  const DType computed = is_narrow(dtype) ? DType::Float32 : dtype;
  const Device device = data.device();
  const Tensor& y = output.set({rows, state}, dtype, device);
  const Tensor& last_h = hy.set({batch, state}, dtype, device);
  const Tensor& last_c = cy.set({mode == kLstm ? batch : 0, units}, dtype, device);
  if (!output.needs_kernel()) {
    gates.set({rows, width}, computed, device);
    cells.set({mode >= kLstm ? rows : 0, units}, computed, device);
    return;
  }
  const ModeGuard exact(mode_bit::kAutocast, false);
  const ProductsOfLayer rounded(device);
  // The GRU's hidden bias is added within the cell: its last part is multiplied by the reset gate.
  Tensor bias = dense(b_ih, computed);
  if (mode != kGru && b_hh.defined()) bias = bias.defined() ? bias + dense(b_hh, computed) : dense(b_hh, computed);
  const Tensor& g = gates.take(mica::linear(data.to(computed), w_ih.to(computed), bias).contiguous());
  const Tensor& c = cells.set({mode >= kLstm ? rows : 0, units}, computed, device);
  const bool direct = computed == dtype;
  const auto place = [&](const Tensor& t) { return direct ? t : mica::empty(t.sizes(), t.options().dtype(computed)); };
  const Tensor y_place = place(y), h_place = place(last_h), c_place = place(last_c);
  const Tensor h = dense(h0, computed), cell = mode == kLstm ? dense(c0, computed) : Tensor(),
               w = dense(w_hh, computed);
  const Tensor hidden_bias = mode == kGru ? dense(b_hh, computed) : Tensor(), projection = dense(w_hr, computed);
  const kept::Scope scope(w);
  MICA_LAYER_KERNEL(device, recurrent_forward)
  (y_place.view_of(), h_place.view_of(), c_place.view_of(), g.view_of(), c.view_of(), h.view_of(), view_or_none(cell),
   kept::view_to_read(w), view_or_none(hidden_bias), view_or_none(projection), batch_sizes, mode, reverse, dtype);
  if (direct) return;
  Tensor(y).copy_(y_place);
  Tensor(last_h).copy_(h_place);
  Tensor(last_c).copy_(c_place);
}

}  // namespace mica::shapes
