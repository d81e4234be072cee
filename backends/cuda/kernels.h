// The kernels of the CUDA backend, by the names of their slots.
#pragma once

#include "mica/kernel_types.h"

namespace mica::cuda {

// Slots that take a PointwiseLoop and nothing else.
// clang-format off
#define MICA_CUDA_POINTWISE(X) \
  X(abs) X(bitwise_and) X(bitwise_not) X(bitwise_or) X(bitwise_xor) X(ceil) X(clamp) X(clamp_max) X(clamp_min) \
  X(conj_physical) X(copy) X(cos) X(cosh) X(div) X(eq) X(erf) X(erfc) X(exp) X(exp2) X(expm1) X(floor) X(ge) \
  X(gt) X(isfinite) X(isinf) X(isnan) X(le) X(log) X(log10) X(log1p) X(log2) X(logical_and) X(logical_not) \
  X(logical_or) X(logical_xor) X(lt) X(masked) X(masked_fill) X(maximum) X(minimum) X(mul) X(ne) X(neg) X(pow) \
  X(reciprocal) X(relu) X(round) X(rsqrt) X(sgn) X(sigmoid) X(sigmoid_backward) X(sign) X(silu) X(silu_backward) \
  X(sin) X(sinh) X(sqrt) X(tan) X(tanh) X(tanh_backward) X(trunc) X(where)
// clang-format on
#define MICA_CUDA_DECLARE(slot) void slot(const PointwiseLoop& loop);
MICA_CUDA_POINTWISE(MICA_CUDA_DECLARE)
#undef MICA_CUDA_DECLARE

void add(const PointwiseLoop& loop, Scalar alpha);
void addcdiv(const PointwiseLoop& loop, Scalar value);
void addcmul(const PointwiseLoop& loop, Scalar value);
void fill(const PointwiseLoop& loop, Scalar value);
void gelu(const PointwiseLoop& loop, std::string_view approximate);
void gelu_backward(const PointwiseLoop& loop, std::string_view approximate);
void leaky_relu(const PointwiseLoop& loop, Scalar negative_slope);
void leaky_relu_backward(const PointwiseLoop& loop, Scalar negative_slope);
void rsub(const PointwiseLoop& loop, Scalar alpha);
void sub(const PointwiseLoop& loop, Scalar alpha);
void threshold_backward(const PointwiseLoop& loop, Scalar threshold);

void arange(const TensorView& out, Scalar start, Scalar step);
void gather(const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index);
void index_select(const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index);
void matmul(const MatmulCall& call);
void random_normal(const TensorView& out, double mean, double std, Generator generator, bool is_contiguous);
void random_uniform(const TensorView& out, double from, double to, Generator generator);

#define MICA_CUDA_REDUCTIONS(X) X(all) X(amax) X(amin) X(any) X(mean) X(prod) X(sum)
#define MICA_CUDA_DECLARE(op) void reduce_##op(const TensorView& out, const TensorView& self, uint64_t dims);
MICA_CUDA_REDUCTIONS(MICA_CUDA_DECLARE)
#undef MICA_CUDA_DECLARE

// A number as one element of the dtype, in the memory of the host; what does not fit wraps.
void write_number(const Scalar& value, DType dtype, void* to);

}  // namespace mica::cuda
