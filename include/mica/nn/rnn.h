// Recurrent layers over whole sequences, and their cells for one step at a time.
#pragma once

#include "mica/generated/nn/rnn.h"
#include "mica/nn/packed_sequence.h"

namespace mica::nn {

using utils::rnn::PackedSequence;

// The parameters of all layers and directions, named as in Python: weight_ih_l0, weight_hh_l0_reverse...
class RNNBase : public Module {
 public:
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t input_size, hidden_size;
  const RNNOptions options;

 protected:
  RNNBase(int64_t gates, int64_t input_size, int64_t hidden_size, RNNOptions options);
  int64_t output_size() const { return options.proj_size ? options.proj_size : hidden_size; }
  void check_input(const Tensor& input, int64_t dims) const;
  // The state of all layers for a batch: zeros if there is none, checked otherwise. `what` names it in errors.
  Tensor state_for(int64_t batch, const Tensor& input, const Tensor& given, int64_t size, const char* what) const;

  std::vector<Tensor> weights_;
};

// Inputs are (length, batch, input_size), (batch, length, input_size) if batch_first, or a single sequence (length,
// input_size). States are (layers * directions, batch, hidden_size), zeros unless given. Results are the output of the
// last layer and the last states of all layers.
class LSTMImpl : public RNNBase {
 public:
  using Options = RNNOptions;
  using State = std::tuple<Tensor, Tensor>;  // the hidden state and the cell state
  LSTMImpl(int64_t input_size, int64_t hidden_size, Options options = {})
      : RNNBase(4, input_size, hidden_size, std::move(options)) {}
  std::tuple<Tensor, State> forward(const Tensor& input, const State& state = {});
  std::tuple<PackedSequence, State> forward(const PackedSequence& input, const State& state = {});
};
MICA_MODULE(LSTM);

class GRUImpl : public RNNBase {
 public:
  using Options = RNNOptions;
  GRUImpl(int64_t input_size, int64_t hidden_size, Options options = {})
      : RNNBase(3, input_size, hidden_size, std::move(options)) {}
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& state = {});
  std::tuple<PackedSequence, Tensor> forward(const PackedSequence& input, const Tensor& state = {});
};
MICA_MODULE(GRU);

class RNNImpl : public RNNBase {
 public:
  using Options = RNNOptions;
  RNNImpl(int64_t input_size, int64_t hidden_size, Options options = {});
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& state = {});
  std::tuple<PackedSequence, Tensor> forward(const PackedSequence& input, const Tensor& state = {});
};
MICA_MODULE(RNN);

// ---- one step of (batch, input_size) or (input_size)

class RNNCellBase : public Module {
 public:
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t input_size, hidden_size;
  const RNNCellOptions options;
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  RNNCellBase(int64_t gates, int64_t input_size, int64_t hidden_size, RNNCellOptions options);
  Tensor state_for(const Tensor& input,
                   const Tensor& given) const;  // zeros unless given, with a batch
};

class LSTMCellImpl : public RNNCellBase {
 public:
  using Options = RNNCellOptions;
  using State = std::tuple<Tensor, Tensor>;
  LSTMCellImpl(int64_t input_size, int64_t hidden_size, Options options = {})
      : RNNCellBase(4, input_size, hidden_size, std::move(options)) {}
  State forward(const Tensor& input, const State& state = {});
};
MICA_MODULE(LSTMCell);

class GRUCellImpl : public RNNCellBase {
 public:
  using Options = RNNCellOptions;
  GRUCellImpl(int64_t input_size, int64_t hidden_size, Options options = {})
      : RNNCellBase(3, input_size, hidden_size, std::move(options)) {}
  Tensor forward(const Tensor& input, const Tensor& state = {});
};
MICA_MODULE(GRUCell);

class RNNCellImpl : public RNNCellBase {
 public:
  using Options = RNNCellOptions;
  RNNCellImpl(int64_t input_size, int64_t hidden_size, Options options = {})
      : RNNCellBase(1, input_size, hidden_size, std::move(options)) {}
  Tensor forward(const Tensor& input, const Tensor& state = {});
};
MICA_MODULE(RNNCell);

}  // namespace mica::nn
