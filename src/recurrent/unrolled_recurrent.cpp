#include "recurrent/unrolled_recurrent.h"

#include <algorithm>
#include <vector>

#include "mica/ops.h"

namespace mica {

namespace {

enum : int64_t { kRelu, kTanh, kLstm, kGru };

// One time step: replaces the states of its rows.
void step(const Tensor& projected, Tensor& h, Tensor& c, const RecurrentWeights& w, int64_t mode) {
  const Tensor hidden = mica::linear(h, w.w_hh, w.b_hh);
  if (mode == kGru) {
    const auto x = mica::chunk(projected, 3, 1), y = mica::chunk(hidden, 3, 1);
    const Tensor r = mica::sigmoid(x[0] + y[0]), z = mica::sigmoid(x[1] + y[1]), n = mica::tanh(x[2] + r * y[2]);
    h = n + z * (h - n);
    return;
  }
  const Tensor gates = projected + hidden;
  if (mode != kLstm) {
    h = mode == kTanh ? mica::tanh(gates) : mica::relu(gates);
    return;
  }
  const auto g = mica::chunk(gates, 4, 1);
  c = mica::sigmoid(g[1]) * c + mica::sigmoid(g[0]) * mica::tanh(g[2]);
  h = mica::sigmoid(g[3]) * mica::tanh(c);
  if (w.w_hr.defined()) h = mica::linear(h, w.w_hr);
}

}  // namespace

RecurrentResult unroll_recurrent_layer(const Tensor& data, IntArrayRef batch_sizes, const Tensor& h0, const Tensor& c0,
                                       const RecurrentWeights& w, int64_t mode, bool reverse) {
  const int64_t steps = static_cast<int64_t>(batch_sizes.size());
  const bool has_cell = mode == kLstm;
  const Tensor projected = mica::linear(data, w.w_ih, w.b_ih);
  std::vector<Tensor> outputs(batch_sizes.size()), finished_h, finished_c;
  int64_t at = reverse ? data.size(0) : 0, rows = batch_sizes[reverse ? steps - 1 : 0];
  Tensor h = h0.narrow(0, 0, rows), c = has_cell ? c0.narrow(0, 0, rows) : Tensor();
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = reverse ? steps - 1 - i : i, count = batch_sizes[t];
    if (count < rows) {  // sequences that have ended
      finished_h.push_back(h.narrow(0, count, rows - count));
      h = h.narrow(0, 0, count);
      if (has_cell) finished_c.push_back(c.narrow(0, count, rows - count));
      if (has_cell) c = c.narrow(0, 0, count);
    } else if (count > rows) {  // sequences that begin here
      h = mica::cat({h, h0.narrow(0, rows, count - rows)}, 0);
      if (has_cell) c = mica::cat({c, c0.narrow(0, rows, count - rows)}, 0);
    }
    rows = count;
    if (reverse) at -= count;
    step(projected.narrow(0, at, count), h, c, w, mode);
    if (!reverse) at += count;
    outputs[t] = h;
  }
  const auto joined = [](std::vector<Tensor>& finished, const Tensor& last) {
    finished.push_back(last);
    std::reverse(finished.begin(), finished.end());
    return finished.size() == 1 ? last : mica::cat(finished, 0);
  };
  return {mica::cat(outputs, 0), joined(finished_h, h), has_cell ? joined(finished_c, c) : Tensor()};
}

}  // namespace mica
