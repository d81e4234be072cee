// Neighbouring calls of a group that machine code computes together: one pass over the piece instead of one for each.
#pragma once

#include <vector>

#include "compiler/code.h"
#include "compiler/groups.h"

namespace mica::recording {

struct Segment {
  Code code = nullptr;
  int inner = 0;  // the dimension along which streams are dense or have one value
  int streams = 0;
  const Operand* operands[Program::kStreams];  // one access of each stream
  Program::Kind kinds[Program::kStreams];
  const int64_t* shape = nullptr;  // of its calls
  float constants[Program::kConstants];
  double divisor = 1;  // of the sum of a row
};

// A call that runs by its kernel, or a segment.
struct Unit {
  int first, count;  // in the order of the group's calls
  int segment = -1;  // its index, or none
};

// What a group's calls have in common as they are cut.
struct PieceShape {
  int cut;
  int64_t range;
};

// Whether a pointwise call is of a kernel that machine code can compute.
bool is_simple(const Call& call);

// A group's calls, with halves in the place of those whose results are read in halves of their rows only. Halves are
// written behind the `used` calls, as long as there is room.
std::vector<int> split_into_halves(const std::vector<int>& members, Call* calls, int& used, int capacity,
                                   const std::vector<char>& in_memory);

// The calls of a group in an order in which more neighbours can be one segment: each as late as what reads it allows.
std::vector<int> schedule(const std::vector<int>& members, const Call* calls, int slots);

// The units of a group's calls in that order. `in_memory` tells which slots somebody else may read; results that only a
// segment itself reads are stored nowhere: `in_registers` says which. A segment has at least `least` calls.
std::vector<Unit> make_units(const std::vector<int>& order, const Call* calls, const PieceShape& piece,
                             const std::vector<char>& in_memory, std::vector<Segment>& segments,
                             std::vector<char>& in_registers, int least = 2);

// A segment's nest of loops for pieces of `range` indices, and its addresses.
struct PreparedSegment {
  CodeArguments arguments;
  int64_t rows;
  int outer;  // loops around the rows
  int64_t extents[kDims], strides[kDims][Program::kStreams];
};
void prepare(PreparedSegment& prepared, const Segment& segment, const PieceShape& piece);
void execute(PreparedSegment& prepared, const Segment& segment, char* const* addresses);

}  // namespace mica::recording
