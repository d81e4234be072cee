// Gradients that reach one leaf from several threads are added one after the other, without a lock. The thread that
// adds has a record here, which the others see.
#pragma once

#include "mica/autograd.h"
#include "mica/parallel.h"

namespace mica {

// Calls add(gradient) so that no other call for this leaf runs at the same time. If a call of another thread is under
// way that runs kernels only, this one waits for it. If that call may run code of the program (under a mode, or because
// this very call comes from it), nobody may wait for it: then the gradient is left with it, and it adds the gradient
// before it ends.
void accumulate(const AutogradMeta& leaf, Tensor& gradient, FunctionRef<void(Tensor&)> add);

// Makes `gradient`, which nobody else knows, the leaf's first one, and leaves an undefined tensor behind. False where
// the leaf has a gradient or a call of accumulate() for it is under way: nothing has changed then.
bool place_first(AutogradMeta& leaf, Tensor& gradient);

}  // namespace mica
