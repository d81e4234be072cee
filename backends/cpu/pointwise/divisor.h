// Integer divisors are checked before anything is written, so that a division by zero leaves its output as it was.
#pragma once

#include "mica/backend/pointwise_loop.h"

namespace mica::cpu {

void check_divisor(const PointwiseLoop& loop, int operand);  // throws torch's ZeroDivisionError

}  // namespace mica::cpu
