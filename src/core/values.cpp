#include "mica/values.h"

#include <cstring>

#include "core/geometry.h"
#include "mica/ops.h"

namespace mica {

Tensor detail::tensor_of(const void* values, DType dtype, IntArrayRef sizes, DType usual,
                         const TensorOptions& options) {
  const Tensor copy = empty(sizes, TensorOptions(dtype).with_device(Device()));
  if (copy.numel() > 0) std::memcpy(copy.data_ptr(), values, static_cast<size_t>(copy.nbytes()));
  Tensor result = copy.to(options.dtype.value_or(usual)).to(options.device_or_default());
  return result.requires_grad_(options.requires_grad);
}

namespace {

using Deleter = std::function<void(void*)>;

void call_deleter(void* context, void*, size_t) {
  auto* bound = static_cast<std::function<void()>*>(context);
  (*bound)();
  delete bound;
}

}  // namespace

Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, Deleter deleter, const TensorOptions& options) {
  MICA_CHECK_KIND(strides.size() == sizes.size(), Value, "from_blob: expected ", sizes.size(),
                  " strides, one for each dimension of ", sizes, ", but got ", strides);
  MICA_CHECK_KIND(data || count_elements(sizes) == 0, Value, "from_blob: the memory is null, but the shape ", sizes,
                  " has elements");
  const DType dtype = options.dtype_or_default();
  const Device device = options.device.value_or(Device());
  const Extent reach = extent(sizes, strides);
  const int64_t width = element_size(dtype);
  const auto bytes = static_cast<size_t>((reach.high - reach.low) * width);
  char* lowest = static_cast<char*>(data) + reach.low * width;
  Storage storage = StorageImpl::wrap(lowest, bytes, device, call_deleter, new std::function<void()>([deleter, data] {
                                        if (deleter) deleter(data);
                                      }));
  const Tensor result =
      Tensor::adopt(TensorImpl::create(std::move(storage), dtype, device, sizes, strides, -reach.low));
  return result.requires_grad_(options.requires_grad);
}

Tensor from_blob(void* data, IntArrayRef sizes, Deleter deleter, const TensorOptions& options) {
  return from_blob(data, sizes, contiguous_strides(sizes), std::move(deleter), options);
}
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options) {
  return from_blob(data, sizes, strides, nullptr, options);
}
Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options) {
  return from_blob(data, sizes, contiguous_strides(sizes), nullptr, options);
}

}  // namespace mica
