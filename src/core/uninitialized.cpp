#include "core/uninitialized.h"

#include <atomic>
#include <limits>

#include "core/allocate.h"
#include "mica/error.h"
#include "mica/generated/implementations.h"
#include "mica/warning.h"

namespace mica {

namespace {

std::atomic<bool> fills = false;
std::atomic<Determinism> determinism = Determinism::NotAsked;

Scalar filler(DType dtype) {
  if (is_floating(dtype) || is_complex(dtype)) return std::numeric_limits<double>::quiet_NaN();
  switch (dtype) {
#define MICA_CASE(T, Name) \
  case DType::Name:        \
    return Scalar(std::numeric_limits<T>::max());
    MICA_FORALL_INTEGRAL(MICA_CASE)
    MICA_FORALL_UNSIGNED(MICA_CASE)
#undef MICA_CASE
    default:
      return true;
  }
}

}  // namespace

void set_determinism(Determinism wanted) { determinism.store(wanted, std::memory_order_relaxed); }

void alert_not_deterministic(const char* operation) {
  const Determinism wanted = determinism.load(std::memory_order_relaxed);
  if (wanted == Determinism::NotAsked) return;
  const char* said =
      " does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True";
  MICA_CHECK(wanted == Determinism::Warn, operation, said,
             ")'. You can turn off determinism just for this operation, or you can use the 'warn_only=True' option, if "
             "that's acceptable for your application.");
  warn(cat(operation, said, ", warn_only=True)'."));
}

void set_fill_uninitialized(bool fill) { fills.store(fill, std::memory_order_relaxed); }

Tensor filled_if_asked(Tensor t) {
  if (fills.load(std::memory_order_relaxed)) [[unlikely]]
    inplace::fill_(t, filler(t.dtype()));
  return t;
}

void fill_added_if_asked(const Tensor& t, int64_t bytes_before) {
  if (!fills.load(std::memory_order_relaxed)) return;
  const int64_t size = t.element_size(), first = bytes_before / size;
  const int64_t last = static_cast<int64_t>(t.storage()->nbytes()) / size;
  inplace::fill_(make_view(t, {last - first}, {1}, first), filler(t.dtype()));
}

}  // namespace mica
