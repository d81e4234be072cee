// The storages of a thread whose images lie interleaved (core/interleaved.h). Each is marked as written later, so that
// whoever asks for its memory comes to settle(), which puts the memory into the order that its tensors tell.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/interleaved.h"
#include "mica/core/storage.h"

namespace mica::recording {

// Whoever uses it holds the mutex of the thread's calls.
class InterleavedMemory {
 public:
  bool empty() const { return !any_.load(std::memory_order_relaxed); }  // may be asked without the mutex
  // How the storage's images lie interleaved; null where they do not.
  const Interleaving* find(const StorageImpl* storage) const;
  void reserve(size_t more) { all_.reserve(all_.size() + more); }
  void add(const Storage& storage, const Interleaving& how);  // asks for no memory where it was reserved
  void separate(const StorageImpl* storage);                  // does nothing with a storage that is not here
  void separate_all();
  void drop_unused();                        // lets go of storages that nobody else knows
  void lose_all(const std::string& reason);  // whoever asks for them gets an error

 private:
  struct Entry {
    Storage storage;
    Interleaving how;
  };
  std::vector<Entry> all_;
  std::atomic<bool> any_{false};
};

}  // namespace mica::recording
