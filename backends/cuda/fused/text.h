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

// Its one argument, behind what `bytes` holds.
void pack_arguments(const FusedLoop& loop, const FusedLayout& layout, std::vector<char>& bytes);

// The same for loops and sums of rows, one after the other, by one block of kSequenceThreads.
struct SequencePart {
  const FusedLoop* loop;  // null: the sum
  FusedLayout layout;
  FusedSum sum;
};
inline constexpr int kSequenceThreads = 256, kSequenceWarps = kSequenceThreads / 32;

std::string signature(const std::vector<SequencePart>& parts);
std::string ptx_of(const std::vector<SequencePart>& parts, int capability);
void pack_arguments(const std::vector<SequencePart>& parts, std::vector<char>& bytes);

}  // namespace mica::cuda
