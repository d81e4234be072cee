#include "mica/values.h"

#include <cstring>

#include "core/allocate.h"
#include "core/geometry.h"
#include "mica/ops.h"

namespace mica {

Tensor detail::tensor_of(const void* values, DType dtype, IntArrayRef sizes, DType usual,
                         const TensorOptions& options) {
  const Tensor copy = empty(sizes, TensorOptions(dtype).device(Device()));
  if (copy.numel() > 0) std::memcpy(copy.data_ptr(), values, static_cast<size_t>(copy.nbytes()));
  return made_with(copy.to(options.dtype_opt().value_or(usual)).to(options.device()), options);
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
  auto* release = new std::function<void()>([deleter = std::move(deleter), data] {
    if (deleter) deleter(data);
  });
  return tensor_over(data, options.dtype(), options.device_opt().value_or(Device()), sizes, strides, call_deleter,
                     release)
      .requires_grad_(options.requires_grad());
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
