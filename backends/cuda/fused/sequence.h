// The text of generated code for a sequence of short loops and sums.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/fused/layout.h"

namespace mica::cuda {

// The same as text.h for a sequence: loops and sums of rows by one block of kSequenceThreads. They run one after the
// other, but for neighbouring loops that share no memory which one of them writes: those run side by side.
struct SequencePart {
  const FusedLoop* loop;  // null: the sum
  FusedLayout layout;
  FusedSum sum;
  bool waits = true;     // until all threads have done the parts before
  int first_thread = 0;  // that has the loop's first piece
};
inline constexpr int kSequenceThreads = 256, kSequenceWarps = kSequenceThreads / 32;

// Fills in which parts wait, and which threads begin.
void set_side_by_side(std::vector<SequencePart>& parts);

std::string signature(const std::vector<SequencePart>& parts);
std::string ptx_of(const std::vector<SequencePart>& parts, int capability);
void pack_arguments(const std::vector<SequencePart>& parts, std::vector<char>& bytes);

}  // namespace mica::cuda
