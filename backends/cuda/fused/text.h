// The text of generated code: a kernel in PTX that computes a fused loop.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/fused/layout.h"

namespace mica::cuda {

// The facts on which the code depends: loops of one signature share it. Addresses, sizes, strides and numbers are its
// arguments.
std::string signature(const FusedLoop& loop, const FusedLayout& layout);

// The kernel "fused" for GPUs of a compute capability (90 is 9.0) and newer ones.
std::string ptx_of(const FusedLoop& loop, const FusedLayout& layout, int capability);

// Adds the kernel's one argument to `bytes`.
void pack_arguments(const FusedLoop& loop, const FusedLayout& layout, std::vector<char>& bytes);

// Functions for kernels of several loops.

// Text that the parts of a kernel have in common: the functions that they call, and how many of them were written out.
struct SharedText {
  std::string called;
  int instances = 0;
};

// The instructions of a loop for piece number %i, whose part of the argument is from `begin`, a multiple of eight, to
// `end`.
struct LoopText {
  std::string registers, body;
  int end;
};
LoopText loop_text(const FusedLoop& loop, const FusedLayout& layout, SharedText& shared, int begin);

// The kernel "fused" with an argument `p` of so many bytes, after all that was queued before it.
std::string kernel_text(int capability, const SharedText& shared, int argument, int threads, const std::string& text);

inline int padded(int bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace mica::cuda
