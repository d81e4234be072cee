// The Python object of a storage: attributes that a program has set on it stay until the storage is freed.
#pragma once

#include "mica/core/storage.h"

namespace mica {

// Set by the Python extension, and called from any thread for a storage that only its own Python object still uses. The
// object then has the last reference to the storage, and releases it when it goes itself.
extern void (*release_storage_object)(StorageImpl*);

}  // namespace mica
