// Derivatives as a mode (TorchDispatchMode) is to see them: what the engine computes in one piece is handed over by the
// name and with the arguments of torch's operator.
#pragma once

#include <functional>

#include "mica/autograd.h"
#include "mica/core/dispatch.h"

namespace mica::formulas {

// Whether a mode is to be asked. A derivative that is being made of operations is not asked for a second time.
bool is_seen();

// The derivative in terms of the tensors by which it may be differentiated again, made of operations.
using Composed = std::function<TensorVec(const TensorVec& inputs)>;

// What the mode answers for the operator. Where derivatives are recorded, the answer's history is that of `composed`,
// which runs only if a pass comes to it.
TensorVec seen(const char* name, dispatch::Arguments arguments, int count, TensorVec inputs, Composed composed);
Tensor seen_one(const char* name, dispatch::Arguments arguments, TensorVec inputs, Composed composed);

}  // namespace mica::formulas
