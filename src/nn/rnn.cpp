#include "mica/nn/rnn.h"

#include <array>
#include <cmath>

#include "mica/autocast.h"
#include "mica/layers.h"

namespace mica::nn {

static void reset_uniformly(const std::vector<Tensor>& parameters, int64_t hidden_size) {
  const double bound = hidden_size > 0 ? 1 / std::sqrt(static_cast<double>(hidden_size)) : 0;
  for (const Tensor& p : parameters) init_uniform_(p, -bound, bound);
}

RNNBase::RNNBase(int64_t gates, int64_t input_size, int64_t hidden_size, RNNOptions given)
    : input_size(input_size), hidden_size(hidden_size), options(std::move(given)) {
  MICA_CHECK_KIND(options.num_layers > 0, Value, "num_layers must be greater than zero");
  MICA_CHECK_KIND(input_size > 0, Value, "input_size must be greater than zero");
  MICA_CHECK_KIND(hidden_size > 0, Value, "hidden_size must be greater than zero");
  MICA_CHECK_KIND(options.dropout >= 0 && options.dropout <= 1, Value, "dropout should be a number in range [0, 1] ",
                  "representing the probability of an element being zeroed");
  MICA_CHECK_KIND(options.proj_size >= 0, Value,
                  "proj_size should be a positive integer or zero to disable projections");
  MICA_CHECK_KIND(options.proj_size < hidden_size, Value, "proj_size has to be smaller than hidden_size");
  MICA_CHECK_KIND(options.proj_size == 0 || gates == 4, Value,
                  "proj_size argument is only supported for LSTM, not RNN or GRU");
  const int64_t directions = options.bidirectional ? 2 : 1;
  for (int64_t layer = 0; layer < options.num_layers; ++layer)
    for (int64_t direction = 0; direction < directions; ++direction) {
      const std::string suffix = cat("_l", layer, direction ? "_reverse" : "");
      const int64_t in = layer == 0 ? input_size : output_size() * directions;
      const auto add = [&](const std::string& name, IntArrayRef sizes) {
        weights_.push_back(register_parameter(name + suffix, empty(sizes)));
      };
      add("weight_ih", {gates * hidden_size, in});
      add("weight_hh", {gates * hidden_size, output_size()});
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
  if (options.dropout != 0) text += cat(", dropout=", options.dropout);
  if (options.bidirectional) text += ", bidirectional=True";
  return text;
}

void RNNBase::check_input(const Tensor& input, int64_t dims) const {
  const DType dtype = weights_[0].dtype();
  MICA_CHECK_KIND(input.dtype() == dtype || autocast::is_enabled(input.device().type()), Value, "RNN input dtype (",
                  input.dtype(), ") does not match weight dtype (", dtype, ")");
  MICA_CHECK(input.dim() == dims, "input must have ", dims, " dimensions, got ", input.dim());
  MICA_CHECK(input.size(-1) == input_size, "input.size(-1) must be equal to input_size. Expected ", input_size,
             ", got ", input.size(-1));
}

Tensor RNNBase::state_for(int64_t batch, const Tensor& input, const Tensor& given, int64_t size,
                          const char* what) const {
  const DimVector sizes{options.num_layers * (options.bidirectional ? 2 : 1), batch, size};
  if (!given.defined()) return zeros(sizes, input.options());
  MICA_CHECK(given.sizes() == sizes.ref(), "Expected ", what, " size ", tuple_text(sizes), ", got ", given.sizes());
  return given;
}

// ---- batches: one is given to a single sequence, and taken from its results

namespace {

int64_t batch_dim(const RNNBase& m) { return m.options.batch_first ? 0 : 1; }

bool lacks_batch(const RNNBase& m, const Tensor& input) {
  MICA_CHECK_KIND(input.dim() == 2 || input.dim() == 3, Value, m.name(), ": Expected input to be 2D or 3D, got ",
                  input.dim(), "D instead");
  return input.dim() == 2;
}

void check_state_dims(const Tensor& input, const Tensor& state) {
  MICA_CHECK(!state.defined() || state.dim() == input.dim(), "For ", input.dim() == 3 ? "batched 3-D" : "unbatched 2-D",
             " input, hx should also be ", input.dim(), "-D but got ", state.dim(), "-D tensor");
}

Tensor with_batch(const Tensor& state) { return state.defined() ? state.unsqueeze(1) : state; }
Tensor in_order(const Tensor& state, const Tensor& permutation) {
  return state.defined() && permutation.defined() ? state.index_select(1, permutation) : state;
}
int64_t batch_of(const PackedSequence& input) { return input.batch_sizes[0].item<int64_t>(); }
PackedSequence like(const PackedSequence& input, const Tensor& data) {
  return {data, input.batch_sizes, input.sorted_indices, input.unsorted_indices};
}

}  // namespace

std::tuple<Tensor, LSTMImpl::State> LSTMImpl::forward(const Tensor& input, const State& state) {
  const auto& [h, c] = state;
  const bool single = lacks_batch(*this, input);
  check_state_dims(input, h);
  check_state_dims(input, c);
  if (single) {
    auto [out, end] = forward(input.unsqueeze(batch_dim(*this)), {with_batch(h), with_batch(c)});
    return {out.squeeze(batch_dim(*this)), {std::get<0>(end).squeeze(1), std::get<1>(end).squeeze(1)}};
  }
  check_input(input, 3);
  const int64_t batch = input.size(batch_dim(*this));
  const std::array<Tensor, 2> start{state_for(batch, input, h, output_size(), "hidden[0]"),
                                    state_for(batch, input, c, hidden_size, "hidden[1]")};
  auto [out, h_end, c_end] = lstm(input, TensorList(start.data(), 2), weights_, options.bias, options.num_layers,
                                  options.dropout, is_training(), options.bidirectional, options.batch_first);
  return {out, {h_end, c_end}};
}

std::tuple<PackedSequence, LSTMImpl::State> LSTMImpl::forward(const PackedSequence& input, const State& state) {
  check_input(input.data, 2);
  const auto& [h, c] = state;
  const std::array<Tensor, 2> start{
      state_for(batch_of(input), input.data, in_order(h, input.sorted_indices), output_size(), "hidden[0]"),
      state_for(batch_of(input), input.data, in_order(c, input.sorted_indices), hidden_size, "hidden[1]")};
  auto [out, h_end, c_end] = lstm(input.data, input.batch_sizes, TensorList(start.data(), 2), weights_, options.bias,
                                  options.num_layers, options.dropout, is_training(), options.bidirectional);
  return {like(input, out), {in_order(h_end, input.unsorted_indices), in_order(c_end, input.unsorted_indices)}};
}

// The layers with one state, GRU and RNN, which differ only in the function.
#define MICA_RNN_FORWARD(Name, call)                                                                          \
  std::tuple<Tensor, Tensor> Name##Impl::forward(const Tensor& input, const Tensor& state) {                  \
    const bool single = lacks_batch(*this, input);                                                            \
    check_state_dims(input, state);                                                                           \
    if (single) {                                                                                             \
      auto [out, end] = forward(input.unsqueeze(batch_dim(*this)), with_batch(state));                        \
      return {out.squeeze(batch_dim(*this)), end.squeeze(1)};                                                 \
    }                                                                                                         \
    check_input(input, 3);                                                                                    \
    const Tensor start = state_for(input.size(batch_dim(*this)), input, state, hidden_size, "hidden");        \
    return call(input, start, weights_, options.bias, options.num_layers, options.dropout, is_training(),     \
                options.bidirectional, options.batch_first);                                                  \
  }                                                                                                           \
  std::tuple<PackedSequence, Tensor> Name##Impl::forward(const PackedSequence& input, const Tensor& state) {  \
    check_input(input.data, 2);                                                                               \
    const Tensor start =                                                                                      \
        state_for(batch_of(input), input.data, in_order(state, input.sorted_indices), hidden_size, "hidden"); \
    auto [out, end] = call(input.data, input.batch_sizes, start, weights_, options.bias, options.num_layers,  \
                           options.dropout, is_training(), options.bidirectional);                            \
    return {like(input, out), in_order(end, input.unsorted_indices)};                                         \
  }
MICA_RNN_FORWARD(GRU, gru)

RNNImpl::RNNImpl(int64_t input_size, int64_t hidden_size, Options given)
    : RNNBase(1, input_size, hidden_size, std::move(given)) {
  MICA_CHECK_KIND(options.nonlinearity == "tanh" || options.nonlinearity == "relu", Value, "Unknown nonlinearity '",
                  options.nonlinearity, "'. Select from 'tanh' or 'relu'.");
}
#define MICA_RNN_OF_CHOICE(...) (options.nonlinearity == "tanh" ? rnn_tanh(__VA_ARGS__) : rnn_relu(__VA_ARGS__))
MICA_RNN_FORWARD(RNN, MICA_RNN_OF_CHOICE)
#undef MICA_RNN_OF_CHOICE
#undef MICA_RNN_FORWARD

// ---- cells

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
  return cat(input_size, ", ", hidden_size, options.bias ? "" : ", bias=False",
             options.nonlinearity == "tanh" ? "" : cat(", nonlinearity=", options.nonlinearity));
}
Tensor RNNCellBase::state_for(const Tensor& input, const Tensor& given) const {
  MICA_CHECK_KIND(input.dim() == 1 || input.dim() == 2, Value, name(), ": Expected input to be 1D or 2D, got ",
                  input.dim(), "D instead");
  if (!given.defined()) return zeros({input.dim() == 2 ? input.size(0) : 1, hidden_size}, input.options());
  MICA_CHECK_KIND(given.dim() == 1 || given.dim() == 2, Value, name(), ": Expected hidden to be 1D or 2D, got ",
                  given.dim(), "D instead");
  return input.dim() == 2 ? given : given.unsqueeze(0);
}

static Tensor batched(const Tensor& input) { return input.dim() == 2 ? input : input.unsqueeze(0); }
static Tensor as_given(const Tensor& input, const Tensor& result) {
  return input.dim() == 2 ? result : result.squeeze(0);
}

LSTMCellImpl::State LSTMCellImpl::forward(const Tensor& input, const State& state) {
  const std::array<Tensor, 2> start{state_for(input, std::get<0>(state)), state_for(input, std::get<1>(state))};
  auto [h, c] = lstm_cell(batched(input), TensorList(start.data(), 2), weight_ih, weight_hh, bias_ih, bias_hh);
  return {as_given(input, h), as_given(input, c)};
}
Tensor GRUCellImpl::forward(const Tensor& input, const Tensor& state) {
  const Tensor start = state_for(input, state);
  return as_given(input, gru_cell(batched(input), start, weight_ih, weight_hh, bias_ih, bias_hh));
}
Tensor RNNCellImpl::forward(const Tensor& input, const Tensor& state) {
  MICA_CHECK(options.nonlinearity == "tanh" || options.nonlinearity == "relu",
             "Unknown nonlinearity: ", options.nonlinearity);
  const auto step = options.nonlinearity == "tanh" ? rnn_tanh_cell : rnn_relu_cell;
  const Tensor start = state_for(input, state);
  return as_given(input, step(batched(input), start, weight_ih, weight_hh, bias_ih, bias_hh));
}

}  // namespace mica::nn
