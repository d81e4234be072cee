// Storages whose memory address others have: an array of another library, or a storage over a part of it.
#pragma once

#include "mica/core/storage.h"

namespace mica {

// From now on the storage cannot be resized, and if it moves (to shared memory), the memory that it has now stays valid
// as long as the storage lives. To be called before an address is handed out that is to outlive the call.
void keep_in_place(StorageImpl& storage);

// A storage over `nbytes` bytes of another one, from `begin` on, which keeps the whole alive and in place. The caller
// has checked that they lie within it.
Storage part_of(const Storage& whole, size_t begin, size_t nbytes);

}  // namespace mica
