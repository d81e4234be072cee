#include "core/geometry.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::composite {

Tensor stack(TensorList tensors, int64_t dim) {
  MICA_CHECK(!tensors.empty(), "stack expects a non-empty TensorList");
  const int64_t d = wrap_dim(dim, tensors[0].dim() + 1);
  std::vector<Tensor> wide;
  wide.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    MICA_CHECK(tensors[i].sizes() == tensors[0].sizes(), "stack expects each tensor to be equal size, but got ", tensors[0].sizes(),
               " at entry 0 and ", tensors[i].sizes(), " at entry ", i);
    wide.push_back(tensors[i].unsqueeze(d));
  }
  return mica::cat(TensorList(wide), d);
}

}  // namespace mica::composite
