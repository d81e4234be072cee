#include "core/exported_storage.h"

namespace mica {

// A move to where the memory already lies copies nothing: it only ends the freedom to resize.
void keep_in_place(StorageImpl& storage) {
  storage.data();  // makes the memory its own, if it was shared until somebody writes
  if (storage.resizable()) storage.move_to(storage.data(), storage.deleter(), storage.context());
}

Storage part_of(const Storage& whole, size_t begin, size_t nbytes) {
  keep_in_place(*whole);
  Storage held = whole;
  char* data = static_cast<char*>(whole->data());
  auto release = [](void* context, void*, size_t) { static_cast<StorageImpl*>(context)->release(); };
  return StorageImpl::wrap(data ? data + begin : nullptr, nbytes, whole->device(), release, held.leak());
}

}  // namespace mica
