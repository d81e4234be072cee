// Spreads the parameters of a fused step over the threads.
#pragma once

#include "mica/optim/fused_step.h"
#include "mica/parallel.h"

namespace mica::cpu {

// Calls run(parameter, begin, end) for ranges that cover every parameter. All parameters together are split as if they
// were one array, at multiples of 64 elements, so that no two threads write to one cache line.
void share_work(const FusedStep& step, FunctionRef<void(const FusedParameter&, int64_t, int64_t)> run);

}  // namespace mica::cpu
