// What torch says where out= has a dtype that an operation does not take.
#pragma once

#include "mica/dtype.h"

namespace mica {

// Refuses an out= of dtype `given` for a result of dtype `result`, in the words that torch has for the operation. Some
// operations take the result's own dtype alone, all others what it can be cast to.
void check_dtype_of_out(const char* op, DType given, DType result);

}  // namespace mica
