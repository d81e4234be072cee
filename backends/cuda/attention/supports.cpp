// Which attention is taken, by dtype, shape and alignment.
#include "backends/cuda/attention/supports.h"

#include "backends/cuda/attention/few.h"
#include "backends/cuda/attention/plans.h"
#include "backends/cuda/context.h"

namespace mica::cuda {

static bool aligned(const TensorView& t) {
  if (reinterpret_cast<uintptr_t>(t.data) % 16) return false;
  const int last = t.ndim - 1;
  if (t.strides[last] != 1) return true;  // it is copied, and the copy is aligned
  const int64_t piece = 16 / static_cast<int64_t>(element_size(t.dtype));
  for (int d = 0; d < last; ++d)
    if (t.sizes[d] > 1 && t.strides[d] % piece) return false;
  return true;
}

// Whether only cuDNN has kernels: for wide heads, and for values of another width than the keys.
static bool only_cudnn_takes(const TensorView& query, const TensorView& key, const TensorView& value) {
  if (query.ndim != 4 || key.ndim != 4 || value.ndim != 4 || query.numel == 0 || key.numel == 0 || value.numel == 0)
    return false;
  if (query.size(-1) != key.size(-1) || key.size(2) != value.size(2) || key.size(1) != value.size(1)) return false;
  if (key.size(0) != query.size(0) || value.size(0) != query.size(0) || query.size(1) % key.size(1)) return false;
  const int64_t width = query.size(-1), value_width = value.size(-1);
  if (width > 256 || value_width > 256 || value_width % 8) return false;
  // A few queries at a time, as those of a growing cache of keys, are not worth a plan for each number of keys.
  if (query.size(2) < 64) return false;
  using namespace attention;
  return lies_well(query) && lies_well(key) && lies_well(value) && cudnn_is_used(query.device.index()) &&
         has_engines(query, key, value);
}

bool supports_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                        const TensorView& mask) {
  const bool narrow = query.dtype == DType::Float16 || query.dtype == DType::BFloat16;
  if (!narrow && query.dtype != DType::Float32) return false;
  const int64_t width = query.size(-1);
  if (width % (narrow ? 8 : 4)) return false;
  if (width > 128 || value.size(-1) != width) return narrow && !mask.defined() && only_cudnn_takes(query, key, value);
  return aligned(query) && aligned(key) && aligned(value);
}

bool takes_few_queries(const TensorView& query, const TensorView& key, const TensorView& value,
                       const TensorView& mask) {
  return supports_attention(query, key, value, mask) && attention::own_kernels_take(query, value) &&
         attention::few::takes(query);
}

void run_few_queries(const FusedAttention& attention) {
  const DeviceGuard guard(attention.out.device.index());
  attention::few::forward(attention);
}

}  // namespace mica::cuda
