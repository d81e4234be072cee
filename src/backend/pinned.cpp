// Host memory that a device copies to and from without a detour.
#include "mica/backend.h"
#include "mica/ops.h"
#include "mica/values.h"

namespace mica {

namespace {

// The backend whose device reaches pinned memory; null where there is none.
const Backend* pinning_backend() {
  const std::optional<DeviceType> type = accelerator();
  return type && backend(*type).allocate_pinned ? &backend(*type) : nullptr;
}

}  // namespace

bool is_pinned(const Tensor& t) {
  const Backend* b = t.is_cpu() && t.numel() > 0 ? pinning_backend() : nullptr;
  return b && b->is_pinned && b->is_pinned(t.data_ptr());
}

Tensor pin_memory(const Tensor& t) {
  const Backend* b = pinning_backend();
  MICA_CHECK(b, "Cannot access accelerator device when none is available.");
  MICA_CHECK(t.is_cpu(), "cannot pin '", t.device(), "' only dense CPU tensors can be pinned");
  if (is_pinned(t)) return t;
  const Tensor dense = t.detach().contiguous();
  const auto bytes = static_cast<size_t>(std::max<int64_t>(dense.nbytes(), 1));
  void* memory = b->allocate_pinned(bytes);
  auto* release = MICA_HOOK(*b, free_pinned);
  const Tensor pinned = from_blob(
      memory, dense.sizes(), [=](void* data) { release(data, bytes); }, TensorOptions(dense.dtype()));
  pinned.copy_(dense);
  return pinned;
}

Tensor made_with(Tensor t, const TensorOptions& options) {
  if (options.pinned_memory()) [[unlikely]] {
    MICA_CHECK(
        pinning_backend(),
        "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator is available on "
        "this system.");
    t = pin_memory(t);
  }
  if (options.requires_grad() && !t.requires_grad()) {
    MICA_CHECK(t.is_floating_point() || t.is_complex(),
               "Only Tensors of floating point and complex dtype can require gradients");
    t.requires_grad_(true);
  }
  return t;
}

}  // namespace mica
