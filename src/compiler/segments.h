// A segment is some neighbouring calls of a group that machine code computes together: one pass over the piece, instead
// of a pass for each call.
#pragma once

#include <vector>

#include "compiler/code.h"
#include "compiler/groups.h"

namespace mica::recording {

struct Segment {
  Code code = nullptr;
  int inner = 0;  // the dimension of the rows: along it a stream is dense or has one value
  int streams = 0;
  const Operand* operands[Program::kStreams];  // by stream: an operand of the calls that says where it lies
  Program::Kind kinds[Program::kStreams];
  const int64_t* shape = nullptr;  // the shape that all its calls have
  float constants[Program::kConstants];
  double divisor = 1;  // the sum of a row is divided by it
};

// What runs at once on a piece: either one call, by its kernel, or a segment.
struct Unit {
  int first, count;  // its calls, as positions in the order in which the group's calls run
  int segment = -1;  // the segment's index, or -1
};

// How a group's calls are cut into pieces: a piece has `range` indices of dimension `cut`.
struct PieceShape {
  int cut;
  int64_t range;
};

// Whether machine code can compute what the call's kernel computes.
bool is_simple(const Call& call);
// The further argument of such a call on float32, as add's alpha, that its machine code depends on. Returns false where
// it has none.
bool factor_of(const Call& call, double& factor);

// Replaces each call whose result is only read in halves of its rows by two calls, one for each half. These are written
// into `calls` behind the first `used` ones, as long as `capacity` allows. Returns the group's calls afterwards.
std::vector<int> split_into_halves(const std::vector<int>& members, Call* calls, int& used, int capacity,
                                   const std::vector<char>& in_memory);

// Puts the calls of a group into an order in which more neighbours can be one segment: each call runs as late as what
// reads its result allows.
std::vector<int> schedule(const std::vector<int>& members, const Call* calls, int slots);

// Divides a group's calls, in that order, into units. `in_memory` tells which slots somebody outside the group may
// read. A result that only its own segment reads is stored nowhere, which is noted in `in_registers`. A segment has at
// least `least` calls.
std::vector<Unit> make_units(const std::vector<int>& order, const Call* calls, const PieceShape& piece,
                             const std::vector<char>& in_memory, std::vector<Segment>& segments,
                             std::vector<char>& in_registers, int least = 2);

// The loops of a segment on pieces of one size: the code runs the two inner ones, over rows and elements, and execute()
// those around them.
struct PreparedSegment {
  CodeArguments arguments;
  int64_t rows;
  int outer;  // the number of loops around the rows
  int64_t extents[kDims], strides[kDims][Program::kStreams];
};
void prepare(PreparedSegment& prepared, const Segment& segment, const PieceShape& piece);
// Runs a segment on the piece whose streams begin at `addresses`.
void execute(PreparedSegment& prepared, const Segment& segment, char* const* addresses);

}  // namespace mica::recording
