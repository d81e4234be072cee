// Machine code for chains of simple operations on float32: what a chain computes between two rows of memory stays in
// registers. The instructions are those of the kernels (the same products, quotients and fused sums), so that the bits
// are theirs too.
#pragma once

#include <cstdint>

namespace mica::recording {

enum class Op : uint8_t {
  Add,
  Sub,
  Mul,
  Div,
  MulAdd,
  NegMulAdd,
  Neg,
  Abs,
  Sqrt,
  Max,
  Min,
  Relu,
  Less,
  LessEqual,
  Equal,
  Select
};

// MulAdd is a b + c and NegMulAdd c - a b, rounded once. Max and Min give NaN where there is one. Comparisons give
// truth values, which Select takes: b where a holds, else c.
struct Step {
  Op op;
  uint8_t result, a, b, c;  // values
};

// A loop over rows of elements. Values are numbered: first what streams hold, then constants, then results of steps.
struct Program {
  static constexpr int kStreams = 12, kConstants = 12, kSteps = 48;
  // Of a stream along a row: an element each, the same one throughout, a truth value each, as a byte, or the sum of
  // what is stored to it, divided by a number. There is one sum at most, and then rows are of whole vectors.
  enum Kind : uint8_t { kDense, kOneValue, kTruth, kRowSum };
  static int64_t bytes_of(Kind kind) { return kind == kDense ? 4 : kind == kTruth ? 1 : 0; }  // from one to the next
  struct Store {
    uint8_t step;  // after which it happens; a value that no step makes is stored at the beginning
    uint8_t value, stream;
    // Rows of it are apart: its lines are not written one after the other, so that a processor that only then writes
    // lines without reading them first is told of each ahead.
    bool ahead;
  };
  static uint8_t stream(int i) { return static_cast<uint8_t>(i); }
  static uint8_t constant(int i) { return static_cast<uint8_t>(kStreams + i); }
  static uint8_t result(int i) { return static_cast<uint8_t>(kStreams + kConstants + i); }
  static constexpr int kValues = kStreams + kConstants + kSteps;

  int streams = 0, constants = 0, steps = 0, stores = 0;
  Kind kinds[kStreams];
  Step code[kSteps];
  Store stored[kStreams];
};

// What the code is called with. It changes what is here.
struct CodeArguments {
  int64_t count, rows;  // elements of a row; at least one row
  const float* constants;
  char* streams[Program::kStreams];
  // From the end of a row to the beginning of the next, in bytes; of one value for a row, from one to the next.
  int64_t skips[Program::kStreams];
  double divisor;  // of sums
};
using Code = void (*)(CodeArguments*);

// Sums of rows add in the order of the kernel (backends/cpu/reduce/sum_runs-inl.h), which is one of eight vectors side
// by side. x86-64 has too few registers for them, and its kernels' vectors may be longer than those of the code.
#if defined(__aarch64__)
inline constexpr int kSumLanes = 4;  // of a vector
#else
inline constexpr int kSumLanes = 0;  // there is no code for sums
#endif

// The code of a program, made once and kept; null where there is none: another processor, too many values at a time, no
// memory that may be executed.
Code code_of(const Program& program);

}  // namespace mica::recording
