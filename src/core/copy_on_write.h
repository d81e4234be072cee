// Storages that share memory until one of them is written. Such a storage is marked as held, so that code which asks
// for its memory comes to StorageImpl::settle(). That gives the storage memory of its own: by a copy while others use
// the same memory, without one when it is the last. Code that only reads may use the address instead (PointwisePlan
// does); all other code counts as a writer.
#pragma once

#include "mica/core/storage.h"

namespace mica::copy_on_write {

// A second storage with the same bytes. Memory that another library owns, or whose address it has, is copied at once.
Storage share(const Storage& storage);
bool shares(const StorageImpl& storage);

}  // namespace mica::copy_on_write
