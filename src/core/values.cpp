#include "mica/values.h"

#include <cstring>

#include "mica/ops.h"

namespace mica {

Tensor detail::tensor_of(const void* values, DType dtype, size_t count, DType usual, const TensorOptions& options) {
  const Tensor copy = empty({static_cast<int64_t>(count)}, TensorOptions(dtype).with_device(Device()));
  if (count > 0) std::memcpy(copy.data_ptr(), values, static_cast<size_t>(copy.nbytes()));
  Tensor result = copy.to(options.dtype.value_or(usual)).to(options.device_or_default());
  return result.set_requires_grad(options.requires_grad);
}

}  // namespace mica
