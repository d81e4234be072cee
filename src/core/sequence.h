// Writing the numbers of arange, linspace and their like into a given tensor.
#pragma once

#include "mica/tensor.h"

namespace mica::entry {

// out <- sequence: a tensor of as many elements keeps its shape, any other is given the sequence's. Where `warns`, the
// latter is said, unless out is empty.
void write_sequence(const Tensor& out, const Tensor& sequence, bool warns);

}  // namespace mica::entry
