// Machine code for chains of simple operations on float32. What a chain computes between reading and writing a row
// stays in registers. The code has the kernels' instructions (the same products, quotients and fused sums), so that its
// results have the same bits.
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

// One operation of a program. MulAdd is a b + c and NegMulAdd is c - a b, each rounded once. Max and Min give NaN where
// an operand is NaN. Comparisons give truth values. Select gives b where the truth value a holds, else c.
struct Step {
  Op op;
  uint8_t result, a, b, c;  // the numbers of values
};

// A loop over rows of elements, which reads and writes streams. Values are numbered: first the elements of the streams,
// then constants, then results of steps.
struct Program {
  static constexpr int kStreams = 12, kConstants = 12, kSteps = 48;
  // What a stream has along a row. kDense: a float32 for each element. kOneValue: one float32 for the row. kTruth: a
  // truth value for each element, as a byte. kRowSum: the sum of the values that are stored to it, divided by a number.
  // A program has one sum at most, and its rows are then of whole vectors.
  enum Kind : uint8_t { kDense, kOneValue, kTruth, kRowSum };
  static int64_t bytes_of(Kind kind) { return kind == kDense ? 4 : kind == kTruth ? 1 : 0; }  // per element of a row
  struct Store {
    uint8_t step;  // the step after which it is stored
    uint8_t value, stream;
    // Whether the code asks for each line ahead of its store. Some processors write lines without reading them first
    // only where lines follow each other. That is not so where there are gaps between the rows of the stream.
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

// The arguments of the code, which writes to this struct as it runs.
struct CodeArguments {
  int64_t count, rows;  // the elements of a row, and the number of rows, of which there is at least one
  const float* constants;
  char* streams[Program::kStreams];
  // The bytes from the end of a row to the beginning of the next one. A stream of one value per row does not move along
  // a row, so that for it these are the bytes from one value to the next.
  int64_t skips[Program::kStreams];
  double divisor;  // what sums are divided by
};
using Code = void (*)(CodeArguments*);

// The lanes of a vector in sums of rows, or 0 where there is no code for sums. The code adds in the order of the kernel
// (backends/cpu/reduce/sum_runs-inl.h), which has eight vectors side by side. x86-64 has too few registers for them,
// and its kernels' vectors may be longer than those of the code.
#if defined(__aarch64__)
inline constexpr int kSumLanes = 4;
#else
inline constexpr int kSumLanes = 0;
#endif

// The code of a program, which is made once and kept. Null where there is none: on other processors, for programs with
// too many values at a time, and where no memory may be executed.
// Whether code is made at all.
bool generates_code();
Code code_of(const Program& program);

}  // namespace mica::recording
