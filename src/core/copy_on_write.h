// Storages that share memory until one of them is written. A storage that shares is marked as held, so that whoever
// asks for its memory comes to StorageImpl::settle(), which makes it the storage's own: by a copy while others look at
// the same memory, without one when it is the last. Whoever only reads may go by the address (PointwisePlan does); all
// others are taken for writers.
#pragma once

#include "mica/core/storage.h"

namespace mica::copy_on_write {

// A second storage with the same bytes. Memory that another library owns, or has the address of, is copied at once.
Storage share(const Storage& storage);
bool shares(const StorageImpl& storage);

}  // namespace mica::copy_on_write
