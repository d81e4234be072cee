#include "io/storage_view.h"

#include "core/geometry.h"

namespace mica::io {

Tensor view_storage(const Storage& storage, DType dtype, int64_t offset, IntArrayRef sizes, IntArrayRef strides) {
  MICA_CHECK(sizes.size() == strides.size(), "mismatch in length of strides and shape: ", strides.size(), " and ",
             sizes.size());
  MICA_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  if (count_elements(sizes) > 0) {
    // A sum of 64 such products stays within 128 bits.
    MICA_CHECK(sizes.size() <= 64, "a tensor of ", sizes.size(), " dimensions");
    __int128 low = offset, high = offset;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const __int128 span = static_cast<__int128>(sizes[d] - 1) * strides[d];
      (span < 0 ? low : high) += span;
    }
    const auto available = static_cast<__int128>(storage->nbytes() / static_cast<size_t>(element_size(dtype)));
    MICA_CHECK(low >= 0 && high < available, "setStorage: sizes ", sizes, ", strides ", strides, ", storage offset ",
               offset, ", and itemsize ", element_size(dtype), " are out of bounds for storage of size ",
               storage->nbytes());
  }
  return Tensor::adopt(TensorImpl::create(storage, dtype, storage->device(), sizes, strides, offset));
}

}  // namespace mica::io
