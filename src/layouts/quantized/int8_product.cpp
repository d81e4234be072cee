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
  MICA_CHECK(self.dtype() == DType::Int8 && mat2.dtype() == DType::Int8, "Expected self and mat2 to be of type int8 ",
             "but got ", self.dtype(), " and ", mat2.dtype());
  const Tensor out = empty({self.size(0), mat2.size(1)}, TensorOptions(DType::Int32).device(self.device()));
  if (has_work(out)) MICA_LAYER_KERNEL(out.device(), int8_mm)
  (out.view_of(), self.contiguous().view_of(), mat2.t().contiguous().view_of());
  return out;
}

}  // namespace mica::composite
