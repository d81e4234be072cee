// extension("recurrent_library") of a backend: whole stacks of recurrent layers by a library that the backend knows.
// Where the backend has none, or it turns a stack down, layers run one by one through their kernels.
#pragma once

#include <vector>

#include "mica/backend/kernel_types.h"

namespace mica {

// Layers over packed sequences. Every width and every batch size is positive, and batch sizes do not grow.
struct RecurrentStack {
  int64_t mode;                 // 0: relu, 1: tanh, 2: LSTM, 3: GRU
  int64_t input, units, state;  // widths; `state` is that of the output of one direction: `units` without a projection
  int64_t layers, directions;
  bool has_biases;
  DType dtype;
  Device device;
  std::vector<int64_t> batch_sizes;

  int64_t batch() const { return batch_sizes[0]; }
  bool has_projection() const { return state != units; }
  int64_t parameters_of_run() const { return (has_biases ? 4 : 2) + (has_projection() ? 1 : 0); }
};

// How a stack is run: what the forward decides and the backward is told.
struct RecurrentPlan {
  int64_t choice = 0;            // which of the library's ways
  int64_t weights = 0;           // the number of elements of all parameters, as the library lays them out
  int64_t reserve = 0;           // what the forward keeps for the backward, in bytes
  std::vector<int64_t> offsets;  // where each parameter begins among `weights`
};

// All tensors are contiguous and aligned to 16 bytes; parameters are contiguous only. A tensor that is not wanted or
// not there is undefined.
struct RecurrentForward {
  TensorView output, hy, cy, reserve;  // for inference the reserve is undefined
  TensorView data, hx, cx;
  TensorViewList parameters;  // of each layer and direction: w_ih, w_hh, b_ih, b_hh, w_hr, those that there are
};
struct RecurrentBackward {
  // The first is always there, the last is laid out as the plan says.
  TensorView grad_data, grad_hx, grad_cx, grad_weights;
  TensorView grad_output, grad_hy, grad_cy;  // the first is always there
  TensorView output, data, hx, cx, reserve;  // the reserve may be changed
  TensorViewList parameters;
};

struct RecurrentLibrary {
  // False: the library does not take the stack.
  bool (*plan)(const RecurrentStack& stack, bool training, RecurrentPlan* plan);
  // Returns false where the library cannot run this plan after all. The next plan for this stack is then another one,
  // or there is none.
  bool (*forward)(const RecurrentStack& stack, const RecurrentPlan& plan, const RecurrentForward& call);
  void (*backward)(const RecurrentStack& stack, const RecurrentPlan& plan, const RecurrentBackward& call);
};

}  // namespace mica
