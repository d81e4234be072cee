// The errors of torch for an out= whose dtype an operation does not take.
#pragma once

#include <span>
#include <string_view>

#include "mica/dtype.h"

namespace mica {

// The rule of the table for an operation (`out_dtype` in ops/*.toml). In `words`, {result} and {given} stand for the
// names of the result's dtype and out's, {c10 result} and {c10 given} for their names in C++.
struct OutDtypeRule {
  enum Takes { Exact, Castable, Any };
  std::string_view op;
  Takes takes;
  std::string_view words;
};
std::span<const OutDtypeRule> out_dtype_rules();  // ordered by name; written by codegen/out_dtypes.py

// Refuses an out= of dtype `given` for a result of dtype `result`, in torch's words for the operation. Some operations
// take only the result's own dtype; the others take any dtype that it can be cast to.
void check_dtype_of_out(const char* op, DType given, DType result);

}  // namespace mica
