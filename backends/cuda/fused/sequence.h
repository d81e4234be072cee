// The text of generated code for a sequence of short loops and sums.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/fused/layout.h"

namespace mica::cuda {

// The same as text.h for a sequence: loops and sums of rows, one after the other, by one block of kSequenceThreads.
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
