// Derivatives in the form in which a mode (TorchDispatchMode) sees them. The engine computes them in one piece; the
// mode gets them by the name and with the arguments of torch's operator.
#pragma once

#include <functional>

#include "mica/autograd.h"
#include "mica/core/dispatch.h"

namespace mica::formulas {

// Whether a mode is to be asked. A derivative that is being computed by operations is not handed over a second time.
bool is_seen();

// Zeros of the dtype and device of a gradient. In a pass through tensors of a class that answers for its operations,
// they are of the gradient's class.
Tensor zeros_like_gradient(const Tensor& grad, IntArrayRef sizes);

// Computes the derivative by operations, from the tensors by which it may be differentiated again.
using Composed = std::function<TensorVec(const TensorVec& inputs)>;

// The mode's answer for the operator. Where derivatives are recorded, the answer's history is that of `composed`, which
// runs only if a pass reaches it.
TensorVec seen(const char* name, dispatch::Arguments arguments, int count, TensorVec inputs, Composed composed);
Tensor seen_one(const char* name, dispatch::Arguments arguments, TensorVec inputs, Composed composed);

}  // namespace mica::formulas
