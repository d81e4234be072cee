// The messages about a node whose evaluation failed.
#pragma once

#include "mica/autograd.h"

namespace mica {

// Called in a handler: rethrows the exception with the node's name added to the end of its message.
[[noreturn]] void explain_failure(const Node& node);

void check_for_nan(const Node& node, const TensorVec& out);

}  // namespace mica
