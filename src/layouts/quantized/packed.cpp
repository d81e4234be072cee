#include "layouts/quantized/packed.h"

#include "core/geometry.h"
#include "mica/ops.h"

namespace mica {

namespace {

int64_t in_a_byte(DType dtype) { return dtype == DType::QUInt4x2 ? 2 : 4; }
int64_t bytes_for(int64_t elements, DType dtype) { return (elements + in_a_byte(dtype) - 1) / in_a_byte(dtype); }

// A parameter for each channel, shaped to broadcast along the channel's dimension.
Tensor along_axis(const Tensor& parameter, const Tensor& t, int64_t axis) {
  DimVector sizes(static_cast<size_t>(t.dim()), 1);
  sizes[static_cast<size_t>(axis)] = parameter.numel();
  return parameter.reshape(sizes);
}

}  // namespace

Tensor round_with_real_zeros(const Tensor& numbers, const Quantizer& q, int64_t low, int64_t high) {
  const Tensor zeros = along_axis(q.zero_points, numbers, q.axis);
  const Tensor moved = numbers.mul(along_axis(q.scales.reciprocal(), numbers, q.axis)).add(zeros);
  const Tensor rounded = where(moved.isfinite(), moved.round(), full_like(moved, Scalar(low)));
  return rounded.clamp(Scalar(low), Scalar(high));
}

Tensor numbers_with_real_zeros(const Tensor& integers, const Quantizer& q) {
  const Tensor moved = integers.to(DType::Float32).sub(along_axis(q.zero_points, integers, q.axis));
  return moved.mul(along_axis(q.scales, integers, q.axis));
}

Tensor pack_integers(const Tensor& integers, DType dtype) {
  const int64_t count = in_a_byte(dtype), bits = 8 / count, total = bytes_for(integers.numel(), dtype) * count;
  const Tensor flat = zeros({total}, TensorOptions(DType::UInt8).device(integers.device()));
  flat.narrow(0, 0, integers.numel()).copy_(integers.reshape({-1}));
  const Tensor parts = flat.view({-1, count});
  Tensor bytes = parts.select(1, 0).clone();
  for (int64_t i = 1; i < count; ++i) bytes = bytes.bitwise_or(parts.select(1, i).bitwise_left_shift(Scalar(bits * i)));
  return bytes;
}

Tensor packed_bytes(const Tensor& packed) {
  const TensorImpl* from = packed.impl();
  const DimVector sizes{bytes_for(packed.numel(), packed.dtype())};
  return Tensor::adopt(TensorImpl::create_contiguous(from->storage, DType::UInt8, from->view.device, sizes, 0));
}

Tensor unpack_integers(const Tensor& packed) {
  const int64_t count = in_a_byte(packed.dtype()), bits = 8 / count;
  const Tensor bytes = packed_bytes(packed);
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < count; ++i)
    parts.push_back(bytes.bitwise_right_shift(Scalar(bits * i)).bitwise_and(Scalar((1 << bits) - 1)));
  return stack(parts, -1).view({-1}).narrow(0, 0, packed.numel()).reshape(packed.sizes());
}

Tensor over_packed_bytes(const Tensor& bytes, IntArrayRef sizes, DType dtype,
                         std::shared_ptr<const Quantizer> quantizer) {
  const int64_t wanted = bytes_for(count_elements(sizes), dtype);
  MICA_CHECK(
      bytes.dtype() == DType::UInt8 && bytes.is_contiguous() && bytes.storage_offset() == 0 && bytes.numel() == wanted,
      "a tensor of ", dtype, " and sizes ", sizes, " has ", wanted, " bytes, not ", bytes.numel());
  const TensorImpl* from = bytes.impl();
  Tensor made = Tensor::adopt(TensorImpl::create_contiguous(from->storage, dtype, from->view.device, sizes, 0));
  made.impl()->rare_facts().quantizer = std::move(quantizer);
  made.impl()->bits |= tensor_bit::kQuantized;
  return made;
}

}  // namespace mica
