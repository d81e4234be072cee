// extension("draw_dropout") of a backend: what dropout multiplies by, 1 / keep or 0, where the backend draws it
// otherwise than bernoulli_ does.
#pragma once

#include "mica/backend/kernel_types.h"

namespace mica {

// `noise` is dense and has self's shape and dtype; `dense` says whether self lies in memory as noise does.
using DropoutFunction = void(const TensorView& noise, const TensorView& self, bool dense, double keep,
                             const Generator& generator);

}  // namespace mica
