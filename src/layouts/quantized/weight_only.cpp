// Products of real numbers with weights of 8 or 4 bits.
#include "mica/weight_only.h"

#include "mica/backend/layer_backend.h"
#include "mica/core/grad_mode.h"
#include "mica/custom_function.h"
#include "mica/generated/layers/quantized_implementations.h"
#include "mica/ops.h"

namespace mica {

namespace {

Tensor new_matrix(const Tensor& like, int64_t rows, int64_t columns, DType dtype) {
  return empty({rows, columns}, TensorOptions(dtype).device(like.device()));
}

void check_activations(const char* op, const Tensor& t) {
  const bool known = t.dtype() == DType::Float32 || t.dtype() == DType::BFloat16 || t.dtype() == DType::Float16;
  MICA_CHECK(known, op, " : expect A to be either 32-bit or 16-bit float tensor, but its dtype is ", t.dtype());
  MICA_CHECK(t.dim() == 2, op, " : expect A to be 2D tensor, but its sizes are ", t.sizes());
}

}  // namespace

namespace composite {

Tensor _weight_int8pack_mm(const Tensor& self, const Tensor& mat2, const Tensor& scales) {
  constexpr const char* kOp = "_weight_int8pack_mm_cpu";
  check_activations(kOp, self);
  MICA_CHECK(mat2.dtype() == DType::Int8, kOp, " : expect B to be int8 tensor, but its dtype is ", mat2.dtype());
  MICA_CHECK(mat2.dim() == 2 && mat2.size(1) == self.size(1), kOp, " : expect B to be 2d tensor with ", self.size(1),
             " columns, as many as A has, but its sizes are ", mat2.sizes());
  MICA_CHECK(scales.dim() == 1 && scales.size(0) == mat2.size(0), kOp, " : expect scales to be 1d tensor with size ",
             mat2.size(0), ", but its sizes are ", scales.sizes());
  MICA_CHECK(scales.dtype() == self.dtype(), "expected scalar type ", self.dtype(), " but found ", scales.dtype(),
             ": the scales have the dtype of A");
  NoGradGuard below;
  const bool has_kernel = !self.is_meta() && MICA_LAYER_TAKES(self.device(), int8_weight_mm);
  if (!has_kernel) return self.mm(mat2.to(self.dtype()).t()).mul(scales);
  const Tensor out = new_matrix(self, self.size(0), mat2.size(0), self.dtype());
  if (out.numel() > 0) MICA_LAYER_KERNEL(self.device(), int8_weight_mm)
  (out.view_of(), self.contiguous().view_of(), mat2.contiguous().view_of(), scales.contiguous().view_of());
  return out;
}

}  // namespace composite

Tensor int4_pack(const Tensor& self) {
  constexpr const char* kOp = "_convert_weight_to_int4pack_cpu";
  MICA_CHECK(self.is_cpu(), kOp, " : the weight must be on the CPU, but is on ", self.device());
  MICA_CHECK(self.dim() == 2, kOp, " : expect weight to be 2D tensor, but its sizes are ", self.sizes());
  MICA_CHECK(self.dtype() == DType::Int32, kOp, " : expect weight to be kInt, but its dtype is ", self.dtype());
  MICA_CHECK(self.size(0) % 16 == 0, kOp, " : expect N to be dividable by 16, but it is ", self.size(0));
  MICA_CHECK(self.size(1) % 2 == 0, "_convert_weight_to_int4pack: expect K to be dividable by 2, but it is ",
             self.size(1));
  const Tensor out = new_matrix(self, self.size(0), self.size(1) / 2, DType::UInt8);
  if (out.numel() > 0) MICA_LAYER_KERNEL(self.device(), int4_pack)(out.view_of(), self.contiguous().view_of());
  return out;
}

namespace {

struct FourBitProduct : autograd::Function<FourBitProduct> {
  static Tensor forward(autograd::AutogradContext* context, const Tensor& self, const Tensor& weight, int64_t group,
                        const Tensor& scales) {
    context->save_for_backward({weight, scales});
    context->saved_data["group"] = group;
    const Tensor out = new_matrix(self, self.size(0), weight.size(0), self.dtype());
    if (out.numel() > 0) MICA_LAYER_KERNEL(self.device(), int4_mm)
    (out.view_of(), self.contiguous().view_of(), weight.contiguous().view_of(), scales.contiguous().view_of(), group);
    return out;
  }

  // The product with an identity matrix reads the weights back.
  static TensorVec backward(autograd::AutogradContext* context, TensorVec grads) {
    MICA_CHECK_KIND(!context->needs_input_grad(2), NotImplemented,
                    "the derivative for 'qScaleAndZeros' of '_weight_int4pack_mm_for_cpu' is not implemented");
    const TensorVec saved = context->saved();
    const Tensor identity = eye(2 * saved[0].size(1), grads[0].options());
    const Tensor weight = int4_mm(identity, saved[0], context->saved_data["group"].toInt(), saved[1].detach());
    return {grads[0].mm(weight.t()), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor int4_mm(const Tensor& self, const Tensor& mat2, int64_t qGroupSize, const Tensor& qScaleAndZeros) {
  constexpr const char* kOp = "_weight_int4pack_mm_cpu";
  check_activations(kOp, self);
  MICA_CHECK(self.is_cpu() && mat2.is_cpu() && qScaleAndZeros.is_cpu(), kOp, " : all tensors must be on the CPU");
  MICA_CHECK(mat2.dtype() == DType::UInt8, kOp, " : expect B to be uint8 tensor, but its dtype is ", mat2.dtype());
  MICA_CHECK(mat2.dim() == 2 && mat2.size(1) * 2 == self.size(1) && mat2.size(0) % 16 == 0, kOp,
             " : expect B to be packed weights of ", self.size(1), " columns, as many as A has, but its sizes are ",
             mat2.sizes());
  MICA_CHECK(qGroupSize == 32 || qGroupSize == 64 || qGroupSize == 128 || qGroupSize == 256, kOp,
             ": expect qGroupSize to be 32, 64, 128 or 256, got ", qGroupSize);
  MICA_CHECK(self.size(1) % qGroupSize == 0, kOp, ": expect K to be divisible by qGroupSize, got K:", self.size(1),
             ", qGroupSize:", qGroupSize);
  const int64_t groups = self.size(1) / qGroupSize;
  MICA_CHECK(qScaleAndZeros.dim() == 3 && qScaleAndZeros.size(0) >= groups && qScaleAndZeros.size(1) == mat2.size(0) &&
                 qScaleAndZeros.size(2) == 2,
             kOp, ": expect qScaleAndZeros to be 3d tensor with sizes [:, ", mat2.size(0), ", 2], at least ", groups,
             " in front, but its sizes are ", qScaleAndZeros.sizes());
  MICA_CHECK(qScaleAndZeros.dtype() == self.dtype(), "expected scalar type ", self.dtype(), " but found ",
             qScaleAndZeros.dtype(), ": qScaleAndZeros has the dtype of A");
  return FourBitProduct::apply(self, mat2, qGroupSize, qScaleAndZeros);
}

}  // namespace mica
