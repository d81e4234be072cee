// What a pickle's calls make: tensors, containers and plain values, and nothing else.
#pragma once

#include <string>

#include "io/buildable.h"
#include "io/pickle_values.h"

namespace mica::io {

[[noreturn]] void refuse(std::string message);
[[noreturn]] void refuse_name(const std::string& name);

// Throws for a name that a file must not use.
Builder builder_named(const std::string& name);

// What calling `name` with a tuple of arguments gives.
Value build(const std::string& name, const Value& arguments);

// Of a tensor as the first versions of torch pickled it: (storage, offset, sizes, strides, ...).
Value tensor_from_state(const Value& state);

}  // namespace mica::io
