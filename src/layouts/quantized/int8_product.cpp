// The product of two matrices of 8-bit integers.
#include "core/kernel_arguments.h"
#include "mica/generated/layers/quantized_implementations.h"
#include "mica/backend/layer_backend.h"
#include "mica/ops.h"

namespace mica::composite {

Tensor _int_mm(const Tensor& self, const Tensor& mat2) {
  MICA_CHECK(self.dim() == 2, "Expected self to be of dimension 2 but got ", self.dim());
  MICA_CHECK(mat2.dim() == 2, "Expected mat2 to be of dimension 2 but got ", mat2.dim());
  MICA_CHECK(self.size(1) == mat2.size(0), "self.size(1) needs to match mat2.size(0) but got ", self.size(1), " and ",
             mat2.size(0));
  const bool lifted = self.dtype() == DType::UInt8;  // torch takes it on the CPU only
  MICA_CHECK(self.dtype() == DType::Int8 || lifted, "Expected self dtype to be int8 or uint8 but got ", self.dtype());
  MICA_CHECK(mat2.dtype() == DType::Int8, "Expected mat2 dtype to be of type int8 but got ", mat2.dtype());
  const Tensor out = empty({self.size(0), mat2.size(1)}, TensorOptions(DType::Int32).device(self.device()));
  if (!has_work(out)) return out;
  // The kernel takes signed numbers. Unsigned ones lie 128 higher, and have the same bits but for the first.
  const Tensor factors = lifted ? self.bitwise_xor(Scalar(128)).view(DType::Int8) : self;
  MICA_LAYER_KERNEL(out.device(), int8_mm)
  (out.view_of(), factors.contiguous().view_of(), mat2.t().contiguous().view_of());
  if (lifted) out.add_(mat2.sum(0, false, DType::Int32).mul(Scalar(128)));
  return out;
}

}  // namespace mica::composite
