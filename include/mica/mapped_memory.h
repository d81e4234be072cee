// Storages over memory that other processes can see: shared memory without a name, and files.
#pragma once

#include <string>

#include "mica/core/storage.h"

namespace mica {

// Moves a CPU storage to shared memory, which processes forked later, or given its descriptor, see as well.
void move_to_shared_memory(StorageImpl& storage);
bool in_shared_memory(const StorageImpl& storage);
int shared_memory_descriptor(const StorageImpl& storage);  // stays the storage's own; throws when there is none

// The shared memory behind a descriptor, of which a duplicate is kept.
Storage open_shared_memory(int descriptor, size_t nbytes);

// A file's first bytes. Shared: changes go to the file, which is made or grown as needed; else they stay here.
Storage map_file(const std::string& path, size_t nbytes, bool shared);

}  // namespace mica
