// Elements of tensors that are quantized per tensor: replacing, reordering and adding them.
#include "core/uninitialized.h"
#include "layouts/quantized/parts.h"
#include "mica/generated/layouts/quantized.h"
#include "mica/layers.h"
#include "mica/ops.h"

namespace mica::layouts::quantized {
namespace {

// A call comes here if any of its tensors is quantized, which may be a mask of a tensor that is not.
void need_one_quantizer(const char* name, const Tensor& self) {
  MICA_CHECK(self.is_quantized(), name, ": a tensor of ", self.dtype(), " takes no quantized tensors as arguments");
  MICA_CHECK(quantizer_of(self).axis < 0, name, " is only there for tensors that are quantized per tensor");
}

// The integers that stand for `values` in a tensor that is quantized as self is.
Tensor integers_for(const Tensor& values, const Tensor& self) {
  const Tensor numbers = values.is_quantized() ? values.dequantize() : values.to(DType::Float32);
  const Quantizer& q = quantizer_of(self);
  return bare_integers(mica::quantize_per_tensor(numbers.detach(), q.scale, q.zero_point, self.dtype()));
}

std::tuple<Tensor, Tensor> with_places(const Tensor& self, const std::tuple<Tensor, Tensor>& found) {
  return {attach_quantizer(std::get<0>(found), self.impl()->rare->quantizer), std::get<1>(found)};
}

}  // namespace

Tensor empty_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  MICA_CHECK(!options.has_dtype() || options.dtype() == self.dtype(), "It is currently not supported to specify a ",
             "dtype that doesn't match the input tensor's dtype via empty_like.");
  return attach_quantizer(mica::empty_like(bare_integers(self), options, memory_format), self.impl()->rare->quantizer);
}

void resize_(const Tensor& self, IntArrayRef size, std::optional<MemoryFormat> memory_format) {
  need_one_quantizer("resize_", self);
  alert_not_deterministic("quantized_resize_cpu_");
  const Tensor integers = bare_integers(self);  // over the same storage, which grows
  integers.resize_(size, memory_format);
  self.impl()->set_geometry(integers.sizes(), integers.strides(), integers.storage_offset());
}

void index_put_(const Tensor& self, TensorList indices, const Tensor& values, bool accumulate) {
  need_one_quantizer("index_put_", self);
  MICA_CHECK(!accumulate, "index_put for quantized tensors is currently only supported for accumulate=False");
  bare_integers(self).index_put_(indices, integers_for(values, self), false);
}

void masked_fill_(const Tensor& self, const Tensor& mask, const Tensor& value) {
  need_one_quantizer("masked_fill_", self);
  bare_integers(self).masked_fill_(mask, integers_for(value, self));
}
void masked_fill_(const Tensor& self, const Tensor& mask, const Scalar& value) {
  quantized::masked_fill_(self, mask, mica::full({}, value, TensorOptions(DType::Float32).device(self.device())));
}
Tensor masked_fill(const Tensor& self, const Tensor& mask, const Tensor& value) {
  need_one_quantizer("masked_fill", self);
  return attach_quantizer(bare_integers(self).masked_fill(mask, integers_for(value, self)),
                          self.impl()->rare->quantizer);
}
Tensor masked_fill(const Tensor& self, const Tensor& mask, const Scalar& value) {
  return quantized::masked_fill(self, mask, mica::full({}, value, TensorOptions(DType::Float32).device(self.device())));
}

std::tuple<Tensor, Tensor> sort(const Tensor& self, int64_t dim, bool descending) {
  need_one_quantizer("sort", self);
  return with_places(self, mica::sort(bare_integers(self), dim, descending));
}

std::tuple<Tensor, Tensor> topk(const Tensor& self, int64_t k, int64_t dim, bool largest, bool sorted) {
  need_one_quantizer("topk", self);
  return with_places(self, mica::topk(bare_integers(self), k, dim, largest, sorted));
}

}  // namespace mica::layouts::quantized
