// What of attention is taken, by dtype, shape and alignment.
#include "backends/cuda/attention/supports.h"

namespace mica::cuda {

static bool aligned(const TensorView& t) {
  if (reinterpret_cast<uintptr_t>(t.data) % 16) return false;
  const int last = t.ndim - 1;
  if (t.strides[last] != 1) return true;  // a copy is made, which is
  for (int d = 0; d < last; ++d)
    if (t.sizes[d] > 1 && t.strides[d] % 8) return false;
  return true;
}

bool supports_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                        const TensorView& mask) {
  if (query.dtype != DType::Float16 && query.dtype != DType::BFloat16) return false;
  const int64_t width = query.size(-1);
  if (mask.defined() || width > 128 || width % 8 || value.size(-1) != width) return false;
  return aligned(query) && aligned(key) && aligned(value);
}

}  // namespace mica::cuda
