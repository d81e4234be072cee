// The Python object of a storage that tensors hold: what a program has hung on it stays until the storage goes.
#pragma once

#include "mica/core/storage.h"

namespace mica {

// Set by the Python extension, called for a storage that nobody holds but the object which it owns, from any thread:
// the object has the last reference to the storage from now on, and lets go of it as it goes.
extern void (*release_storage_object)(StorageImpl*);

}  // namespace mica
