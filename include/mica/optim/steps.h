// One step of each optimizer over a list of parameters. Torch's optimizers in Python and mica::optim's classes are both
// made of these. Options, states and the functions' declarations follow from ops/optim/*.toml.
//
// An item holds a parameter, its gradient and its state; a state that is undefined is made. The step runs as one fused
// pass where a kernel takes the tensors, otherwise as operations of the engine, which autograd follows if the options
// ask for it (differentiable). `capturable` and `fused` are torch's flags and only place counters on the parameter's
// device: the step is fused anyhow.
#pragma once

#include "mica/generated/optim/options.h"

namespace mica::optim {

// Torch makes this state when it makes the optimizer.
void adagrad_init(AdagradItem& item, const AdagradOptions& options);

}  // namespace mica::optim
