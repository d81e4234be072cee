// eq, ne, lt, le, gt, ge; bitwise operations. A number that the kernel gets says which one it is, so that they share
// one kernel for each dtype.
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise.cuh"
#include "backends/cuda/pointwise/functions.cuh"

namespace mica::cuda {

namespace {

void compare(const char* op, const PointwiseLoop& loop, uint32_t holds) {
  auto run = [&]<class T>(Tag<T>) { run_pointwise<bool, T, T>(loop, Compare<compute_t<T>>{holds}); };
  if (loop.dtype == DType::Bool) return run(Tag<uint8_t>{});  // bytes of 0 and 1
  visit_real(op, loop.dtype, run);
}
void compare_equal(const char* op, const PointwiseLoop& loop, uint32_t holds) {
  if (loop.dtype == DType::Complex64) return run_pointwise<bool, complexf, complexf>(loop, Compare<complexf>{holds});
  if (loop.dtype == DType::Complex128) return run_pointwise<bool, complexd, complexd>(loop, Compare<complexd>{holds});
  if (loop.dtype == DType::Float4_e2m1fn_x2)  // pairs by their bytes
    return run_pointwise<bool, uint8_t, uint8_t>(loop, Compare<uint8_t>{holds});
  compare(op, loop, holds);
}

}  // namespace

void eq(const PointwiseLoop& loop) { compare_equal("eq", loop, kEqual); }
void ne(const PointwiseLoop& loop) { compare_equal("ne", loop, kLess | kGreater | kUnordered); }
void lt(const PointwiseLoop& loop) { compare("lt", loop, kLess); }
void le(const PointwiseLoop& loop) { compare("le", loop, kLess | kEqual); }
void gt(const PointwiseLoop& loop) { compare("gt", loop, kGreater); }
void ge(const PointwiseLoop& loop) { compare("ge", loop, kGreater | kEqual); }

namespace {

// a & b, a | b and a ^ b: the bits that both have and those that one of them has, each of the two taken or not.
template <class T>
struct Bits {
  T of_both, of_one;
  __device__ T operator()(T a, T b) const { return static_cast<T>((a & b & of_both) | ((a ^ b) & of_one)); }
};

void bitwise(const char* op, const PointwiseLoop& loop, bool of_both, bool of_one) {
  visit_width(op, loop.dtype, [&]<class T>(Tag<T>) {
    const T all = static_cast<T>(~T(0));
    run_pointwise<T, T, T>(loop, Bits<T>{of_both ? all : T(0), of_one ? all : T(0)});
  });
}

template <class T>
struct Flip {
  __device__ T operator()(T a) const { return static_cast<T>(~a); }
};

}  // namespace

void bitwise_and(const PointwiseLoop& loop) { bitwise("bitwise_and", loop, true, false); }
void bitwise_or(const PointwiseLoop& loop) { bitwise("bitwise_or", loop, true, true); }
void bitwise_xor(const PointwiseLoop& loop) { bitwise("bitwise_xor", loop, false, true); }
void bitwise_not(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Bool) return logical_not(loop);  // a bool has one bit
  visit_width("bitwise_not", loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<T, T>(loop, Flip<T>{}); });
}

}  // namespace mica::cuda
