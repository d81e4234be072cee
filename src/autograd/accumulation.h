// Gradients that reach one leaf from several threads are added one after the other, without a lock: who adds has a
// record here, and the others see it.
#pragma once

#include "mica/autograd.h"
#include "mica/parallel.h"

namespace mica {

// Calls add(gradient), and no other call for this leaf runs at the same time. Where another thread's call is under way,
// this one waits for it if it runs kernels alone. If it may run code of the program (a mode, or this very call is made
// by it), nobody may wait for it: then the gradient is left with it, and that call adds it before it ends.
void accumulate(const AutogradMeta& leaf, Tensor& gradient, FunctionRef<void(Tensor&)> add);

}  // namespace mica
