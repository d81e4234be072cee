// Shared memory that one process fills and another reads, used again and again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mica/core/storage.h"

namespace mica::data {

// The sender's side, for one receiver. A segment is free again when the sender's own storage over it is gone and the
// receiver has given back everything it was sent.
class SegmentPool {
 public:
  SegmentPool();
  Storage allocate(size_t nbytes);

  struct Handle {
    uint32_t id;
    size_t capacity;
    int fd;  // for a receiver that has not seen the segment; else -1
  };
  // Marks a storage that allocate() made as sent, and returns how to refer to it. Nothing for any other storage.
  std::optional<Handle> send(const StorageImpl& storage);
  void close_descriptors();  // of segments that were sent: the receiver has its own
  void give_back(uint32_t id);
  // Undoes a send() whose message was never sent. `announced` says that its handle had a descriptor.
  void take_back(uint32_t id, bool announced);
  std::vector<uint32_t> take_dropped();  // segments that the receiver can forget

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// The receiver's side, for one sender.
class SegmentViews {
 public:
  SegmentViews();
  void add(uint32_t id, int fd, size_t capacity);  // does not keep the descriptor
  Storage open(uint32_t id, size_t nbytes);
  void forget(uint32_t id);
  std::vector<uint32_t> take_returned();  // segments whose storages have died: to be given back

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace mica::data
