#include <optional>
#include <utility>
#include <vector>

#include "composite/library_recurrent.h"
#include "core/host_data.h"
#include "core/kept.h"
#include "mica/autocast.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/recurrent.h"
#include "mica/generated/layers/recurrent_implementations.h"
#include "mica/ops.h"
#include "recurrent/unrolled_recurrent.h"

namespace mica::composite {

namespace {

enum : int64_t { kRelu, kTanh, kLstm, kGru };

// Stacked layers over packed sequences: the form that all public forms are brought into.
struct Stack {
  int64_t mode;
  TensorList params;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional;
  bool has_projection = false;
};

// Runs one layer in one direction: by the kernel, or by operations where it does not know the dtype. Autocast treats
// the layer as one operation.
RecurrentResult run_layer(const Tensor& data, IntArrayRef batch_sizes, const Tensor& h0, const Tensor& c0,
                          const RecurrentWeights& w, int64_t mode, bool reverse, autocast::Policy policy) {
  if (thread_modes & mode_bit::kAutocast) {
    if (autocast::Cast cast(policy, policy, data); cast.active()) {
      const RecurrentWeights cast_weights{cast(w.w_ih), cast(w.w_hh), cast(w.b_ih), cast(w.b_hh), cast(w.w_hr)};
      return run_layer(cast(data), batch_sizes, cast(h0), cast(c0), cast_weights, mode, reverse, policy);
    }
  }
  if (!data.is_floating_point() || !w.w_ih.is_floating_point() ||
      !MICA_LAYER_TAKES(data.device(), recurrent_forward, &data.view_of(), &kept::view_to_read(w.w_hh)))
    return unroll_recurrent_layer(data, batch_sizes, h0, c0, w, mode, reverse);
  auto r = mica::_recurrent_layer(data, batch_sizes, h0, c0, w.w_ih, w.w_hh, w.b_ih, w.b_hh, w.w_hr, mode, reverse);
  return {std::get<0>(r), std::get<1>(r), std::get<2>(r)};
}

RecurrentResult run_stack(const Stack& s, Tensor data, IntArrayRef batch_sizes, const Tensor& hx, const Tensor& cx) {
  const int64_t directions = s.bidirectional ? 2 : 1, runs = s.num_layers * directions;
  const size_t per_run = (s.has_biases ? 4 : 2) + (s.has_projection ? 1 : 0);
  MICA_CHECK(s.params.size() % per_run == 0, "got an incorrect number of RNN parameters: ", s.params.size(),
             ", where each layer and direction has ", per_run);
  MICA_CHECK(static_cast<int64_t>(s.params.size() / per_run) == runs, "Expected more weights in stacked_rnn: ", runs,
             " layers and directions need ", runs * static_cast<int64_t>(per_run), " parameters, but got ",
             s.params.size());
  MICA_CHECK(hx.dim() == 3 && hx.size(0) == runs, "Expected more hidden states in stacked_rnn: ", runs,
             " layers and directions, but the hidden state is ", hx);
  MICA_CHECK(!cx.defined() || (cx.dim() == 3 && cx.size(0) == runs),
             "Expected more hidden states in stacked_rnn: ", runs, " layers and directions, but the cell state is ",
             cx);
  if (thread_modes & mode_bit::kAutocast) {
    // On a GPU the whole stack runs in the lower dtype, as torch's does.
    if (autocast::Cast cast(autocast::Policy::None, autocast::Policy::Lower, data); cast.active()) {
      const std::vector<Tensor> params = cast(s.params);
      Stack lower = s;
      lower.params = params;
      return run_stack(lower, cast(data), batch_sizes, cast(hx), cast(cx));
    }
  }
  const auto policy = s.mode == kGru ? autocast::Policy::Float32 : autocast::Policy::Lower;  // as in torch
  const bool drops = s.dropout != 0 && s.train;
  bool by_library = !data.device().is_cpu() && !data.is_meta();
  std::vector<Tensor> hy, cy;
  for (int64_t layer = 0; layer < s.num_layers; ++layer) {
    const int64_t count = drops ? 1 : s.num_layers, first = layer * directions;
    std::optional<RecurrentResult> whole;
    if (by_library) {
      const auto begin = static_cast<size_t>(first) * per_run, size = static_cast<size_t>(count * directions) * per_run;
      const auto of_these = [&](const Tensor& t) { return t.defined() && drops ? t.narrow(0, first, directions) : t; };
      whole = run_recurrent_library(
          {s.mode, s.params.slice(begin, size), s.has_biases, s.has_projection, count, directions}, data, batch_sizes,
          of_these(hx), of_these(cx));
      if (whole && count == s.num_layers) return *whole;
      by_library = whole.has_value();
    }
    if (whole) {
      for (int64_t i = 0; i < directions; ++i) {
        hy.push_back(whole->hy.select(0, i));
        cy.push_back(whole->cy.defined() ? whole->cy.select(0, i) : Tensor());
      }
      data = whole->output;
    } else {
      std::vector<Tensor> outputs;
      for (int64_t direction = 0; direction < directions; ++direction) {
        const int64_t run = first + direction;
        const Tensor* w = s.params.data() + run * static_cast<int64_t>(per_run);
        const Tensor none;
        const RecurrentWeights weights{w[0], w[1], s.has_biases ? w[2] : none, s.has_biases ? w[3] : none,
                                       s.has_projection ? w[per_run - 1] : none};
        const RecurrentResult result =
            run_layer(data, batch_sizes, hx.select(0, run), cx.defined() ? cx.select(0, run) : none, weights, s.mode,
                      direction == 1, policy);
        outputs.push_back(result.output);
        hy.push_back(result.hy);
        cy.push_back(result.cy);
      }
      data = directions == 1 ? outputs[0] : mica::cat(outputs, 1);
    }
    if (drops && layer + 1 < s.num_layers) data = mica::dropout(data, s.dropout, true);
  }
  return {data, mica::stack(hy, 0), s.mode == kLstm ? mica::stack(cy, 0) : Tensor()};
}

RecurrentResult run_padded(const Stack& s, const Tensor& input, const Tensor& hx, const Tensor& cx, bool batch_first) {
  MICA_CHECK(input.dim() == 3, "input must have 3 dimensions, got ", input.dim());
  const Tensor x = batch_first ? input.transpose(0, 1) : input;
  const int64_t steps = x.size(0), batch = x.size(1);
  MICA_CHECK(steps > 0, "Expected sequence length to be larger than 0 in RNN");
  MICA_CHECK(hx.dim() != 3 || hx.size(1) == batch, "Expected hidden size (", hx.size(0), ", ", batch, ", ", hx.size(-1),
             "), got ", hx.sizes());
  const DimVector batch_sizes(static_cast<size_t>(steps), batch);
  RecurrentResult r = run_stack(s, x.reshape({steps * batch, x.size(2)}), batch_sizes, hx, cx);
  r.output = r.output.view({steps, batch, r.output.size(1)});
  if (batch_first) r.output = r.output.transpose(0, 1);
  return r;
}

DimVector sizes_from(const Tensor& batch_sizes) {
  MICA_CHECK(batch_sizes.dtype() == DType::Int64, "expected scalar type Long but found ", batch_sizes.dtype(),
             " (the batch sizes of packed sequences)");
  MICA_CHECK(batch_sizes.dim() == 1 && batch_sizes.is_cpu(),
             "batch_sizes should always be on CPU and one-dimensional, ", "but got ", batch_sizes);
  const Tensor dense = batch_sizes.contiguous();
  return DimVector(IntArrayRef(host_data<int64_t>(dense), static_cast<size_t>(dense.numel())));
}

bool has_projection(TensorList hx) { return hx[0].dim() == 3 && hx[1].dim() == 3 && hx[0].size(2) != hx[1].size(2); }

}  // namespace

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases,
                                        int64_t num_layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  MICA_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const Stack s{kLstm, params, has_biases, num_layers, dropout, train, bidirectional, has_projection(hx)};
  const RecurrentResult r = run_padded(s, input, hx[0], hx[1], batch_first);
  return {r.output, r.hy, r.cy};
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& data, const Tensor& batch_sizes, TensorList hx, TensorList params,
                                        bool has_biases, int64_t num_layers, double dropout, bool train,
                                        bool bidirectional) {
  MICA_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const Stack s{kLstm, params, has_biases, num_layers, dropout, train, bidirectional, has_projection(hx)};
  const RecurrentResult r = run_stack(s, data, sizes_from(batch_sizes), hx[0], hx[1]);
  return {r.output, r.hy, r.cy};
}

#define MICA_RECURRENT(name, mode)                                                                                    \
  std::tuple<Tensor, Tensor> name(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,          \
                                  int64_t num_layers, double dropout, bool train, bool bidirectional,                 \
                                  bool batch_first) {                                                                 \
    const Stack s{mode, params, has_biases, num_layers, dropout, train, bidirectional};                               \
    const RecurrentResult r = run_padded(s, input, hx, {}, batch_first);                                              \
    return {r.output, r.hy};                                                                                          \
  }                                                                                                                   \
  std::tuple<Tensor, Tensor> name(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params, \
                                  bool has_biases, int64_t num_layers, double dropout, bool train,                    \
                                  bool bidirectional) {                                                               \
    const Stack s{mode, params, has_biases, num_layers, dropout, train, bidirectional};                               \
    const RecurrentResult r = run_stack(s, data, sizes_from(batch_sizes), hx, {});                                    \
    return {r.output, r.hy};                                                                                          \
  }
MICA_RECURRENT(gru, kGru)
MICA_RECURRENT(rnn_tanh, kTanh)
MICA_RECURRENT(rnn_relu, kRelu)
#undef MICA_RECURRENT

// ---- cells -------------------------------------------------------------------------------------------------------

namespace {

void check_cell_state(const Tensor& input, const Tensor& state, int64_t hidden_size, int number) {
  MICA_CHECK(input.size(0) == state.size(0), "Input batch size ", input.size(0), " doesn't match hidden", number,
             " batch size ", state.size(0));
  MICA_CHECK(state.size(1) == hidden_size, "hidden", number, " has inconsistent hidden_size: got ", state.size(1),
             ", expected ", hidden_size);
}

std::pair<Tensor, Tensor> run_cell(int64_t mode, const Tensor& input, const Tensor& hx, const Tensor& cx,
                                   const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh) {
  MICA_CHECK(input.dim() == 2 && hx.dim() == 2,
             "a recurrent cell takes an input and states of two dimensions, but got ", input, " and ", hx);
  MICA_CHECK(w_ih.dim() == 2 && w_hh.dim() == 2, "a recurrent cell's weights must be matrices, but got ", w_ih, " and ",
             w_hh);
  MICA_CHECK(input.size(1) == w_ih.size(1), "input has inconsistent input_size: got ", input.size(1), " expected ",
             w_ih.size(1));
  const int64_t gates = mode == kLstm ? 4 : mode == kGru ? 3 : 1, hidden = w_hh.size(1);
  MICA_CHECK(w_ih.size(0) == gates * hidden, "weight_ih first dim must be ", gates, " * hidden_size = ", gates * hidden,
             ", but got ", w_ih.size(0));
  MICA_CHECK(w_hh.size(0) == gates * hidden, "weight_hh first dim must be ", gates, " * hidden_size = ", gates * hidden,
             ", but got ", w_hh.size(0));
  check_cell_state(input, hx, hidden, 0);
  if (cx.defined()) check_cell_state(input, cx, hidden, 1);
  const auto policy = mode >= kLstm ? autocast::Policy::Float32 : autocast::Policy::Lower;
  const RecurrentResult r = run_layer(input, input.size(0), hx, cx, {w_ih, w_hh, b_ih, b_hh, {}}, mode, false, policy);
  return {r.output, r.cy};
}

}  // namespace

std::tuple<Tensor, Tensor> lstm_cell(const Tensor& input, TensorList hx, const Tensor& w_ih, const Tensor& w_hh,
                                     const Tensor& b_ih, const Tensor& b_hh) {
  MICA_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  auto [h, c] = run_cell(kLstm, input, hx[0], hx[1], w_ih, w_hh, b_ih, b_hh);
  return {h, c};
}
Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                const Tensor& b_hh) {
  return run_cell(kGru, input, hx, {}, w_ih, w_hh, b_ih, b_hh).first;
}
Tensor rnn_tanh_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return run_cell(kTanh, input, hx, {}, w_ih, w_hh, b_ih, b_hh).first;
}
Tensor rnn_relu_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return run_cell(kRelu, input, hx, {}, w_ih, w_hh, b_ih, b_hh).first;
}

}  // namespace mica::composite
