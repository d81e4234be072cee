// extension("fusion") of a backend: many pointwise kernels as one loop over memory, whose intermediate results stay
// where the loop computes them. Compiled functions use it (docs/compiler_kernels.md).
#pragma once

#include <cstdint>
#include <string_view>

#include "mica/backend/pointwise_loop.h"
#include "mica/backend/tensor_view.h"

namespace mica {

struct MatmulCall;

// A further argument of a kernel that is a text: the name of a variant, copied.
struct FusedText {
  char data[24];
  uint32_t size;
  operator std::string_view() const { return {data, size}; }
};

inline constexpr int kFusedDims = 5;
inline constexpr int kFusedOperands = 12;  // operands that lie in memory
inline constexpr int64_t kFusedElements = int64_t{1} << 30;
inline constexpr int kFusedRegisters = 8;  // values that are alive at once
inline constexpr int kFusedInstructions = 48;
inline constexpr int kFusedProducts = 4;
inline constexpr int kFusedParts = 12;               // parts of a sequence
inline constexpr int64_t kFusedPartElements = 8192;  // elements of a loop that is a part of a sequence

// One instruction of what is computed for each element. Values are float32 in registers; a result is rounded to its
// dtype.
struct FusedInstruction {
  static constexpr int kLoad = 0, kStore = 1;        // further codes are the backend's own
  static constexpr int8_t kNumber = -1, kLast = -2;  // inputs: a number, or the result of the instruction before

  int16_t code;
  int8_t in[3];      // registers, or one of the above
  int8_t out;        // a register, or -1: the next instruction alone asks for it
  DType dtype;       // the dtype of the result
  uint8_t operand;   // the operand that kLoad reads and kStore writes
  uint8_t inputs;    // how many of `in` there are
  float numbers[3];  // the inputs for which `in` is kNumber
  float parameters[2];
};

struct FusedLoop {
  struct Operand {
    char* data;
    DType dtype;
    int64_t strides[kFusedDims];  // in bytes
    // If this is not null, the result is stored at a place that the number says: `step` bytes further for each place in
    // dimension `dim`, which has `size` places; a negative number counts from the end. A number beyond the dimension
    // stores nothing, and the backend reports it as its kernels do.
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

// The sum of a row of float32 elements, divided by `divisor`: by one, or by the number of elements for a mean.
struct FusedSum {
  const float* row;
  float* out;
  int64_t count;
  float divisor;
};

// One part of a sequence: a loop or a sum.
struct FusedPart {
  const FusedLoop* loop;  // null: the part is the sum
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

// rms_norm of one row of 16-bit floats, which products of that row begin with.
struct FusedRowNorm {
  const void *input, *weight;  // the weight may be null
  void* out;                   // null: nobody else asks for the normalised row
  float* rstd;                 // null likewise
  int64_t count;
  double eps;
  // Whether the program computes it by steps: the mean of the squares as `reduce_mean` adds them, that and eps, rsqrt
  // of the sum, which rstd is, and the row is rounded before it is multiplied by the weight.
  bool as_written;
  float *mean, *shifted;  // null: nobody asks for them
};

// A loop behind products of one row, which loads results of theirs.
struct FusedTail {
  const FusedLoop* loop;
  // By operand of the loop: the product whose result it loads, or -1, and the column with which it begins there.
  int8_t of_product[kFusedOperands];
  int64_t column[kFusedOperands];
};

// Products of one row, with what the program does before and after them.
struct FusedProducts {
  const MatmulCall* products;  // where nobody else asks for a result or for the row, its address is null
  int count;
  const FusedRowNorm* norm;  // computes the row, or null
  const FusedTail* tails;    // they have nothing to do with each other but that they may load the same result
  int ntails;
  // Whether the matrices and the norm's weight may be read before the kernels before this one have ended, as far as
  // these let it begin.
  bool early;
};

// Attention of few queries, with the arguments of the slot attention_forward.
struct FusedAttention {
  TensorView out, logsumexp, query, key, value, mask;
  bool is_causal;
  double scale;
  // Whether the kernel that was started last on this stream is products, and writes no key and no value but those at
  // the places that these numbers say (null: none). All other keys and values may be read before it has ended. A
  // negative number counts from the end.
  bool early;
  const int64_t *key_place, *value_place;
};

struct Fusion {
  // Whether a fused loop can do what a kernel does. If so, fills in the code, dtype, numbers, parameters and, as
  // inputs, the operands of the loop (from its first input on) or kNumber. `loop` has dtypes and numbers, but no
  // elements; `arguments` is the tuple of the kernel's further arguments, with a FusedText for a text.
  bool (*describe)(const char* slot, const PointwiseLoop& loop, const void* arguments, FusedInstruction& step);
  bool (*run)(const FusedLoop& loop);  // returns whether code that was made for this loop has run it

  // The backend may compute several products of one row side by side. `takes_product` says whether a call is such a
  // product (of its addresses only the alignment is known). `takes_row_norm` says whether a norm of the row, of
  // either kind, can be computed with them, and `takes_tails` whether the loops behind them can; no address is known
  // then. All results have the bits of the kernels one by one. `run_products` runs up to kFusedProducts of them that
  // share the row. It lets a kernel that was started early begin when all that was queued before it has ended. Null
  // where the backend has no such kernel.
  bool (*takes_product)(const MatmulCall& call);
  bool (*takes_row_norm)(DType dtype, int64_t count);
  bool (*takes_tails)(const FusedProducts& products);
  void (*run_products)(const FusedProducts& products);

  // The backend may run small loops and sums of rows as one kernel, in which each part sees what the parts before it
  // wrote. `takes_sum` says whether a sum can be a part and has the same bits there as from its own kernel; of its
  // addresses only the alignment is known. `run_sequence` runs up to kFusedParts of them. It returns false, and has run
  // nothing, where they have to run one by one. Null where the backend has no such kernel.
  bool (*takes_sum)(const FusedSum& sum);
  bool (*run_sequence)(Device device, const FusedPart* parts, int count);

  // Norms of rows with their neighbours, with the bits of the kernels one by one: whether rows of `count` elements can
  // be, and both directions. Null: there are none.
  bool (*takes_norm)(int64_t count);
  void (*run_norm)(const FusedNorm& norm);
  void (*run_norm_gradient)(const FusedNormGradient& norm);

  // Attention of few queries by one kernel, which lets a kernel that was started early begin at once, with the bits of
  // the slot attention_forward. Of addresses `takes_attention` only knows the alignment. Null: there is none.
  bool (*takes_attention)(const TensorView& query, const TensorView& key, const TensorView& value,
                          const TensorView& mask);
  void (*run_attention)(const FusedAttention& attention);
};

}  // namespace mica
