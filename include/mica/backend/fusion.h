// extension("fusion") of a backend: many pointwise kernels as one loop over memory, whose intermediate results stay
// where the loop computes them. Compiled functions use it (docs/compiler.md).
#pragma once

#include <cstdint>
#include <string_view>

#include "mica/backend/pointwise_loop.h"

namespace mica {

struct MatmulCall;

// A further argument of a kernel that is a text: the name of a variant, copied.
struct FusedText {
  char data[24];
  uint32_t size;
  operator std::string_view() const { return {data, size}; }
};

inline constexpr int kFusedDims = 5;
inline constexpr int kFusedOperands = 12;  // in memory
inline constexpr int64_t kFusedElements = int64_t{1} << 30;
inline constexpr int kFusedRegisters = 8;  // values that are alive at once
inline constexpr int kFusedInstructions = 48;
inline constexpr int kFusedProducts = 4;
inline constexpr int kFusedParts = 12;               // of a sequence
inline constexpr int64_t kFusedPartElements = 8192;  // of a loop that is one of them

// What one element is computed by. Values are float32 in registers; a result is rounded to its dtype.
struct FusedInstruction {
  static constexpr int kLoad = 0, kStore = 1;        // further codes are the backend's own
  static constexpr int8_t kNumber = -1, kLast = -2;  // inputs: a number, or the result of the instruction before

  int16_t code;
  int8_t in[3];      // registers, or one of the above
  int8_t out;        // a register, or -1: the next instruction alone asks for it
  DType dtype;       // of the result
  uint8_t operand;   // of kLoad and kStore
  uint8_t inputs;    // how many
  float numbers[3];  // where `in` is kNumber
  float parameters[2];
};

struct FusedLoop {
  struct Operand {
    char* data;
    DType dtype;
    int64_t strides[kFusedDims];  // in bytes
    // Not null: what is stored goes `step` bytes further for each count of this number, which says a place in dimension
    // `dim` of `size`, from the end where it is negative. Nothing is stored at a place that there is not; the backend
    // reports it as it does for its kernels.
    const int64_t* index;
    int64_t step, size;
    int32_t dim;
  };
  Device device;
  int ndim;
  int64_t shape[kFusedDims];  // slowest dimension first
  int noperands;
  Operand operands[kFusedOperands];
  int ninstructions;
  FusedInstruction instructions[kFusedInstructions];
};

// The sum of a row of float32 over `divisor`, which is one or, for a mean, the number of elements.
struct FusedSum {
  const float* row;
  float* out;
  int64_t count;
  float divisor;
};

// One of the things that a sequence computes.
struct FusedPart {
  const FusedLoop* loop;  // null: the sum
  FusedSum sum;
};

// Rows of float32 that layer_norm or rms_norm normalises, with what the program does before and after it: the input is
// the sum of two tensors, the result is rounded to 16 bits. All rows lie one after the other. Null: nobody asks for it,
// or it is not there. The 16-bit dtypes of one norm are the same.
struct FusedNorm {
  Device device;
  int64_t rows, count;
  double eps;
  bool centred;  // layer_norm; rms_norm takes no mean away
  const float* input;
  const void* added;  // to the input
  DType added_dtype;
  float* sum;  // of both
  const float *weight, *bias;
  float *mean, *rstd, *out;
  void* narrow;  // the result, rounded
  DType narrow_dtype;
};

// The gradients of such a norm: what comes in may be of 16 bits, and to the gradient of the input another one may be
// added. `mean` is null for rms_norm.
struct FusedNormGradient {
  Device device;
  int64_t rows, count;
  const void* grad;
  DType grad_dtype;
  const float *input, *mean, *rstd, *weight;
  float *grad_weight, *grad_bias;
  const float* added;
  float* grad_input;
  void* narrow;  // the same, rounded
  DType narrow_dtype;
};

struct Fusion {
  // Whether a fused loop can do what a kernel does, and how: fills in code, dtype, numbers, parameters and, as inputs,
  // the operands of the loop (from its first input on) or kNumber. Of `loop` there are dtypes and numbers, no elements;
  // `arguments` is the tuple of the kernel's further arguments, with a FusedText for a text.
  bool (*describe)(const char* slot, const PointwiseLoop& loop, const void* arguments, FusedInstruction& step);
  bool (*run)(const FusedLoop& loop);  // whether by code that was made for the loop

  // Products of one row that the backend computes side by side: whether it is such a one (of its addresses only the
  // alignment is known), and up to kFusedProducts of them that have the row in common. Null: there are none.
  bool (*takes_product)(const MatmulCall& call);
  void (*run_products)(const MatmulCall* calls, int count);

  // Loops of few elements and sums of rows, each of which sees what those before it wrote, as one kernel: whether a sum
  // can be one of them (of its addresses only the alignment is known), with the bits of the backend's own kernel, and
  // up to kFusedParts of them. False where they have to run one by one; then nothing was run. Null: there are none.
  bool (*takes_sum)(const FusedSum& sum);
  bool (*run_sequence)(Device device, const FusedPart* parts, int count);

  // Norms of rows with their neighbours, with the bits of the kernels one by one: whether rows of `count` elements can
  // be, and both directions. Null: there are none.
  bool (*takes_norm)(int64_t count);
  void (*run_norm)(const FusedNorm& norm);
  void (*run_norm_gradient)(const FusedNormGradient& norm);
};

}  // namespace mica
