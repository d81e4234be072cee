// The kernel slot `matmul`, which calls gemm.
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/register.h"
#include "mica/backend/kernel_types.h"

namespace mica::cpu {

namespace {

GemmScalar factor(const Scalar& s) {
  if (s.is_complex()) return GemmScalar(s.to_complex());
  if (s.is_floating()) return GemmScalar(s.to_double());
  return GemmScalar(s.cast<int64_t>());
}

GemmOperand operand(const TensorView& v) { return {v.data, v.strides[1], v.strides[2], v.strides[0]}; }

void matmul_kernel(const MatmulCall& call) {
  if (call.out.dtype == DType::Bool || is_float8(call.out.dtype) || call.out.dtype == DType::Complex32 ||
      is_storage_only(call.out.dtype))
    unsupported_dtype("addmm_impl_cpu_", call.out.dtype);
  GemmCall g;
  g.dtype = call.out.dtype;
  g.batch = call.out.sizes[0];
  g.m = call.out.sizes[1];
  g.n = call.out.sizes[2];
  g.k = call.a.sizes[2];
  g.a = operand(call.a);
  g.b = operand(call.b);
  g.c = call.out.data;
  g.c_batch_stride = call.out.strides[0];
  g.c_row_stride = call.out.strides[1];
  g.c_col_stride = call.out.strides[2];
  g.alpha = factor(call.alpha);
  g.beta = factor(call.beta);
  g.bias = call.bias;
  gemm(g);
}

MICA_REGISTER_CPU(matmul, matmul_kernel);

}  // namespace
}  // namespace mica::cpu
