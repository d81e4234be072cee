// Matrix products on the CPU, on raw pointers with any strides: C = alpha * A @ B + beta * C (+ bias).
#pragma once

#include <atomic>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "mica/dtype.h"

namespace mica::cpu {

// A matrix, or a batch of them, seen through strides counted in elements. Strides have any sign; 0 broadcasts.
struct GemmOperand {
  const void* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
  int64_t batch_stride = 0;
};

// A factor that is exact for every dtype: integer products use `integer`, the others `value`.
struct GemmScalar {
  std::complex<double> value;
  int64_t integer;

  template <class T>
  requires(std::is_arithmetic_v<T>) constexpr GemmScalar(T v)
      : value(static_cast<double>(v)), integer(static_cast<int64_t>(v)) {}
  constexpr GemmScalar(std::complex<double> v) : value(v), integer(static_cast<int64_t>(v.real())) {}
};

// Ways that cut C into blocks call this for each finished block, in the thread that has finished it. The block may be
// changed there, because the product does not read it any more.
class GemmBlocks {
 public:
  virtual ~GemmBlocks() = default;
  virtual void finished(int64_t matrix, int64_t row, int64_t rows, int64_t col, int64_t cols) = 0;
  void set_told() { told_.store(true, std::memory_order_relaxed); }
  bool told() const { return told_.load(std::memory_order_relaxed); }  // whether it was called for all blocks

 private:
  std::atomic<bool> told_{false};
};

// Numbers that the rows of B are multiplied by: one for each depth of each matrix of the batch. Steps are in elements.
struct GemmFactors {
  const float* data = nullptr;
  int64_t matrix_step = 0, depth_step = 0;
};

struct GemmCall {
  DType dtype = DType::Undefined;  // of A, B, C and bias
  int64_t batch = 1;
  int64_t m = 0, n = 0, k = 0;  // A is m x k, B is k x n, C is m x n
  GemmOperand a, b;
  void* c = nullptr;  // must not overlap A, B or bias, nor itself
  int64_t c_row_stride = 0;
  int64_t c_col_stride = 0;
  int64_t c_batch_stride = 0;
  GemmScalar alpha = 1;
  GemmScalar beta = 0;         // when 0, C is never read
  const void* bias = nullptr;  // n contiguous elements added to every row, or null
  GemmBlocks* blocks = nullptr;
  GemmFactors b_factors;  // only for float32, where the elements of a row of C are adjacent
};

// Integers wrap around; float16 and bfloat16 accumulate in float32 and round once. Bool, float8 and complex32 are
// refused. With k == 0 the product is a matrix of zeros.
void gemm(const GemmCall& call);

// A product with at most so many rows or columns may be summed by vectors along the depth, where that lies side by
// side: in another order than larger products are.
inline constexpr int64_t kThinExtent = 16;

// Of how many depths gemm() makes a sum before it adds that to C, where both operands are used in place: A with its
// depths adjacent, and B with few columns, adjacent, too. Who multiplies the same matrices in another way gets the same
// bits with as many at once.
int64_t gemm_depth_at_once(DType dtype, int64_t n, int64_t k);

// Gives back the work buffers that gemm keeps for reuse, in every thread that is not inside a product. Returns the
// bytes freed.
int64_t gemm_trim();

}  // namespace mica::cpu
