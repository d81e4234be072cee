// Makes a segment of neighbouring calls: translates them one after the other into a program, as long as they fit.
#pragma once

#include <vector>

#include "compiler/segments.h"

namespace mica::recording {

// The kernels that machine code computes, each of a few instructions.
// clang-format off
enum class SimpleKernel {
  Add, Sub, Rsub, Mul, Div, Neg, Abs, Sqrt, Rsqrt, Reciprocal, Pow, Max, Min, Clamp, Relu, Addcmul, Addcdiv, Lerp, Copy,
  SigmoidBackward, TanhBackward, ThresholdBackward, Lt, Le, Gt, Ge, Eq, Where, MaskedFill
};
// clang-format on

// The simple kernel of a call as a number, or -1 where its kernel is not simple.
int simple_kernel_of(const Call& call);

class SegmentBuilder {
 public:
  SegmentBuilder(const PieceShape& piece, const std::vector<char>& in_memory) : piece_(piece), in_memory_(in_memory) {}

  // Takes a pointwise call into the program. Returns false where the call does not fit; the program is then as before.
  bool add(const Call& call);
  // Takes the sum or the mean of each row of what was computed. That is the last call of a segment.
  bool add_sum(const Call& call);
  // Makes the segment. Returns false where there is no code for it. `needed(slot)` says whether somebody reads a result
  // afterwards. `alone` says that nothing else runs between the segment's pieces.
  template <class Needed>
  bool finish(Segment& segment, const Needed& needed, bool alone) {
    for (int i = 0; i < known_count_; ++i) {
      const Known& k = known_[i];
      if (k.written && (k.is_sum || needed(k.operand->slot)) && !store(known_[i])) return false;
    }
    return make_code(segment, alone);
  }
  // Visits the slots that the calls write, without that of the sum.
  template <class Visit>
  void each_written(const Visit& visit) const {
    for (int i = 0; i < known_count_; ++i)
      if (known_[i].written && !known_[i].is_sum) visit(known_[i].operand->slot);
  }

 private:
  static constexpr int kKnown = 24;
  // A place in a storage whose value the program has.
  struct Known {
    const Operand* operand;
    uint8_t value;  // the value that the place holds now
    int8_t stream;  // the stream that it was read from; -1 where it was not read from memory
    uint8_t step;   // the step that made the value
    bool written;
    bool is_sum = false;  // the sum of a row, which has its value only after the row
  };
  void begin(const Call& call);
  bool same_place(const Operand& a, const Operand& b) const;
  bool apart(const Operand& a, const Operand& b) const;
  Known* find(const Operand& o, bool& elsewhere);
  int value_of(const Operand& o, DType wanted);
  int constant(float value);
  int step(Op op, int a, int b = 0, int c = 0);
  int translate(SimpleKernel kernel, const Call& call, const int* v);
  bool write(const Operand& o, DType made, int value);
  bool store(Known& known);
  bool make_code(Segment& segment, bool alone);
  int kind_of(const Operand& o) const;
  bool rows_are_apart(const Operand& o) const;
  int64_t extent(int d) const { return d == piece_.cut ? piece_.range : shape_[d]; }

  const PieceShape piece_;
  const std::vector<char>& in_memory_;
  Program program_;
  Segment segment_;
  Known known_[kKnown];
  int known_count_ = 0;
  const int64_t* shape_ = nullptr;  // the shape of all calls; null before the first one
  int ndim_ = 0;
};

}  // namespace mica::recording
