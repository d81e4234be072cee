// The text of generated code: a kernel in PTX that computes a fused loop.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/fused/layout.h"

namespace mica::cuda {

// What the code depends on: loops of one signature share it. Addresses, sizes, strides and numbers are its arguments.
std::string signature(const FusedLoop& loop, const FusedLayout& layout);

// The kernel "fused" for GPUs of a compute capability (90 is 9.0) and newer ones.
std::string ptx_of(const FusedLoop& loop, const FusedLayout& layout, int capability);

// Its one argument.
void pack_arguments(const FusedLoop& loop, const FusedLayout& layout, std::vector<char>& bytes);

}  // namespace mica::cuda
