// Carries out the calls in a pickle, which make tensors, containers and plain values and nothing else.
#pragma once

#include <string>

#include "io/buildable.h"
#include "io/pickle_values.h"

namespace mica::io {

[[noreturn]] void refuse(std::string message);
[[noreturn]] void refuse_name(const std::string& name);

// Throws for a name that a file must not use.
Builder builder_named(const std::string& name);

// The result of calling `name` with a tuple of arguments.
Value build(const std::string& name, const Value& arguments);

// A tensor as the first versions of torch pickled it: (storage, offset, sizes, strides, ...).
Value tensor_from_state(const Value& state);

}  // namespace mica::io
