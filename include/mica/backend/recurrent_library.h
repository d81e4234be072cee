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
  int64_t choice = 0;            // of the library's ways
  int64_t weights = 0;           // all parameters as the library lays them, in elements
  int64_t reserve = 0;           // what the forward keeps for the backward, in bytes
  std::vector<int64_t> offsets;  // of each parameter among `weights`
};

// All tensors are contiguous and aligned to 16 bytes, but for the parameters, which are contiguous. Those that are not
// wanted or not there are undefined.
struct RecurrentForward {
  TensorView output, hy, cy, reserve;  // no reserve: for inference
  TensorView data, hx, cx;
  TensorViewList parameters;  // of each layer and direction: w_ih, w_hh, b_ih, b_hh, w_hr, as far as there are any
};
struct RecurrentBackward {
  TensorView grad_data, grad_hx, grad_cx, grad_weights;  // the first is always there, the last is laid as a plan says
  TensorView grad_output, grad_hy, grad_cy;              // the first is always there
  TensorView output, data, hx, cx, reserve;              // the reserve may be changed
  TensorViewList parameters;
};

struct RecurrentLibrary {
  bool (*plan)(const RecurrentStack& stack, bool training, RecurrentPlan* plan);  // false: it is not taken
  // False: it cannot be done so after all, and the next plan for this stack is another one, or none.
  bool (*forward)(const RecurrentStack& stack, const RecurrentPlan& plan, const RecurrentForward& call);
  void (*backward)(const RecurrentStack& stack, const RecurrentPlan& plan, const RecurrentBackward& call);
};

}  // namespace mica
