#include "mica/nn/rnn.h"

#include <array>
#include <cmath>

#include "mica/layers.h"
#include "nn/text.h"

namespace mica::nn {

static void reset_uniformly(const std::vector<Tensor>& parameters, int64_t hidden_size) {
  const double bound = hidden_size > 0 ? 1 / std::sqrt(static_cast<double>(hidden_size)) : 0;
  for (const Tensor& p : parameters) init_uniform_(p, -bound, bound);
}

RNNBase::RNNBase(int64_t gates, int64_t input_size, int64_t hidden_size, RNNOptions given)
    : input_size(input_size), hidden_size(hidden_size), options(std::move(given)) {
  MICA_CHECK_KIND(options.num_layers > 0, Value, "num_layers must be greater than zero");
  MICA_CHECK_KIND(hidden_size > 0, Value, "hidden_size must be greater than zero");
  MICA_CHECK_KIND(options.dropout >= 0 && options.dropout <= 1, Value, "dropout should be a number in range [0, 1] ",
                  "representing the probability of an element being zeroed");
  MICA_CHECK_KIND(options.proj_size >= 0 && options.proj_size < hidden_size, Value,
                  "proj_size has to be smaller than hidden_size");
  MICA_CHECK_KIND(options.proj_size == 0 || gates == 4, Value,
                  "proj_size argument is only supported for LSTM, not RNN or GRU");
  const int64_t out_size = options.proj_size ? options.proj_size : hidden_size;
  for (int64_t layer = 0; layer < options.num_layers; ++layer)
    for (int64_t direction = 0; direction < directions(); ++direction) {
      const std::string suffix = cat("_l", layer, direction ? "_reverse" : "");
      const int64_t in = layer == 0 ? input_size : out_size * directions();
      const auto add = [&](const std::string& name, IntArrayRef sizes) {
        weights_.push_back(register_parameter(name + suffix, empty(sizes)));
      };
      add("weight_ih", {gates * hidden_size, in});
      add("weight_hh", {gates * hidden_size, out_size});
      if (options.bias) {
        add("bias_ih", {gates * hidden_size});
        add("bias_hh", {gates * hidden_size});
      }
      if (options.proj_size) add("weight_hr", {options.proj_size, hidden_size});
    }
  reset_parameters();
}

void RNNBase::reset_parameters() { reset_uniformly(weights_, hidden_size); }

std::string RNNBase::extra_repr() const {
  std::string text = cat(input_size, ", ", hidden_size);
  if (options.proj_size) text += cat(", proj_size=", options.proj_size);
  if (options.num_layers != 1) text += cat(", num_layers=", options.num_layers);
  if (!options.bias) text += ", bias=False";
  if (options.batch_first) text += ", batch_first=True";
  if (options.dropout != 0) text += cat(", dropout=", number(options.dropout));
  if (options.bidirectional) text += ", bidirectional=True";
  return text;
}

Tensor RNNBase::zero_state(const Tensor& input, int64_t size) const {
  const int64_t layers = options.num_layers * directions();
  MICA_CHECK(input.dim() == 3, "RNN: Expected input to be 2D or 3D, got ", input.dim(), "D instead");
  return zeros({layers, input.size(options.batch_first ? 0 : 1), size}, input.options());
}

std::tuple<Tensor, LSTMImpl::State> LSTMImpl::forward(const Tensor& input, const State& state) {
  if (input.dim() == 2) {  // one sequence without a batch
    const int64_t batch_dim = options.batch_first ? 0 : 1;
    const auto& [h, c] = state;
    const State batched = h.defined() ? State(h.unsqueeze(1), c.unsqueeze(1)) : State();
    auto [out, end] = forward(input.unsqueeze(batch_dim), batched);
    return {out.squeeze(batch_dim), {std::get<0>(end).squeeze(1), std::get<1>(end).squeeze(1)}};
  }
  auto [h, c] = state;
  if (!h.defined()) h = zero_state(input, options.proj_size ? options.proj_size : hidden_size);
  if (!c.defined()) c = zero_state(input, hidden_size);
  const std::array<Tensor, 2> start{h, c};
  auto [out, h_end, c_end] = lstm(input, TensorList(start.data(), 2), weights_, options.bias, options.num_layers,
                                  options.dropout, is_training(), options.bidirectional, options.batch_first);
  return {out, {h_end, c_end}};
}

// The batch that a single sequence lacks, given and taken away again.
template <class Run>
static std::tuple<Tensor, Tensor> run_batched(const Tensor& input, const Tensor& state, bool batch_first,
                                              const Run& run) {
  if (input.dim() != 2) return run(input, state);
  const int64_t batch_dim = batch_first ? 0 : 1;
  auto [out, end] = run(input.unsqueeze(batch_dim), state.defined() ? state.unsqueeze(1) : state);
  return {out.squeeze(batch_dim), end.squeeze(1)};
}

std::tuple<Tensor, Tensor> GRUImpl::forward(const Tensor& input, const Tensor& state) {
  return run_batched(input, state, options.batch_first, [&](const Tensor& x, const Tensor& h) {
    return gru(x, h.defined() ? h : zero_state(x, hidden_size), weights_, options.bias, options.num_layers,
               options.dropout, is_training(), options.bidirectional, options.batch_first);
  });
}

std::tuple<Tensor, Tensor> RNNImpl::forward(const Tensor& input, const Tensor& state) {
  MICA_CHECK_KIND(options.nonlinearity == "tanh" || options.nonlinearity == "relu", Value, "Unknown nonlinearity '",
                  options.nonlinearity, "'. Select from 'tanh' or 'relu'.");
  return run_batched(input, state, options.batch_first, [&](const Tensor& x, const Tensor& h) {
    const Tensor start = h.defined() ? h : zero_state(x, hidden_size);
    if (options.nonlinearity == "tanh")
      return rnn_tanh(x, start, weights_, options.bias, options.num_layers, options.dropout, is_training(),
                      options.bidirectional, options.batch_first);
    return rnn_relu(x, start, weights_, options.bias, options.num_layers, options.dropout, is_training(),
                    options.bidirectional, options.batch_first);
  });
}

RNNCellBase::RNNCellBase(int64_t gates, int64_t input_size, int64_t hidden_size, RNNCellOptions given)
    : input_size(input_size),
      hidden_size(hidden_size),
      options(std::move(given)),
      weight_ih(register_parameter("weight_ih", empty({gates * hidden_size, input_size}))),
      weight_hh(register_parameter("weight_hh", empty({gates * hidden_size, hidden_size}))),
      bias_ih(register_parameter("bias_ih", options.bias ? empty({gates * hidden_size}) : Tensor())),
      bias_hh(register_parameter("bias_hh", options.bias ? empty({gates * hidden_size}) : Tensor())) {
  reset_parameters();
}
void RNNCellBase::reset_parameters() { reset_uniformly(parameters(), hidden_size); }
std::string RNNCellBase::extra_repr() const {
  return cat(input_size, ", ", hidden_size, options.bias ? "" : ", bias=False");
}
Tensor RNNCellBase::zero_state(const Tensor& input) const {
  if (input.dim() == 1) return zeros({hidden_size}, input.options());
  return zeros({input.size(0), hidden_size}, input.options());
}

LSTMCellImpl::State LSTMCellImpl::forward(const Tensor& input, const State& state) {
  auto [h, c] = state;
  if (!h.defined()) h = zero_state(input);
  if (!c.defined()) c = zero_state(input);
  const std::array<Tensor, 2> start{h, c};
  return lstm_cell(input, TensorList(start.data(), 2), weight_ih, weight_hh, bias_ih, bias_hh);
}
Tensor GRUCellImpl::forward(const Tensor& input, const Tensor& state) {
  return gru_cell(input, state.defined() ? state : zero_state(input), weight_ih, weight_hh, bias_ih, bias_hh);
}
Tensor RNNCellImpl::forward(const Tensor& input, const Tensor& state) {
  const Tensor start = state.defined() ? state : zero_state(input);
  if (options.nonlinearity == "relu") return rnn_relu_cell(input, start, weight_ih, weight_hh, bias_ih, bias_hh);
  MICA_CHECK(options.nonlinearity == "tanh", "Unknown nonlinearity: ", options.nonlinearity);
  return rnn_tanh_cell(input, start, weight_ih, weight_hh, bias_ih, bias_hh);
}

}  // namespace mica::nn
