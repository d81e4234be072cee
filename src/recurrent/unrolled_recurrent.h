// One direction of a recurrent layer as operations, step by step. For tensors that the kernel does not take (complex
// and integer ones), and for derivatives that are themselves differentiated.
#pragma once

#include "mica/tensor.h"

namespace mica {

struct RecurrentWeights {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;  // all but the first two may be undefined
};
struct RecurrentResult {
  Tensor output, hy, cy;
};

// The arguments are those of _recurrent_layer.
RecurrentResult unroll_recurrent_layer(const Tensor& data, IntArrayRef batch_sizes, const Tensor& h0, const Tensor& c0,
                                       const RecurrentWeights& w, int64_t mode, bool reverse);

}  // namespace mica
