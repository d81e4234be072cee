// Writing the numbers of arange, linspace and their like into a given tensor.
#pragma once

#include "mica/tensor.h"

namespace mica::entry {

// out <- sequence. A tensor of the same number of elements keeps its shape; any other takes the sequence's, with a
// warning where `warns`, unless it is empty.
void write_sequence(const Tensor& out, const Tensor& sequence, bool warns);

}  // namespace mica::entry
