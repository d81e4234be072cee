// The sizes in which blocks below the large ones are handed out, and the spans of pages that they are cut from.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "mica/core/fork.h"
#include "system_memory.h"

namespace mica::detail {

// Multiples of 64 bytes up to 1 KB, then four sizes to every power of two: at most a quarter more than was asked for.
inline constexpr int kFineClasses = 16;
inline constexpr size_t kFineLimit = 1024;
inline constexpr size_t kClassLimit = size_t{256} << 10;

constexpr int class_of(size_t nbytes) {
  const size_t last = nbytes - 1;
  if (nbytes <= kFineLimit) return static_cast<int>(last / 64);
  const int log2 = std::bit_width(last) - 1;
  return kFineClasses + (log2 - 10) * 4 + static_cast<int>(last >> (log2 - 2) & 3);
}

constexpr size_t class_size(int c) {
  if (c < kFineClasses) return static_cast<size_t>(c + 1) * 64;
  const int log2 = 10 + (c - kFineClasses) / 4, quarters = 5 + (c - kFineClasses) % 4;
  return (size_t{1} << (log2 - 2)) * static_cast<size_t>(quarters);
}

inline constexpr int kClasses = class_of(kClassLimit) + 1;
static_assert(class_size(kClasses - 1) == kClassLimit && class_size(class_of(1025)) == 1280);

// A stack of free blocks, linked through their first words.
struct FreeList {
  struct Node {
    Node* next;
  };
  Node* head = nullptr;
  uint32_t count = 0;

  void push(void* block) {
    Node* node = static_cast<Node*>(block);
    node->next = head;
    head = node;
    ++count;
  }
  void* pop() {
    Node* node = head;
    head = node->next;
    --count;
    return node;
  }
};

// The blocks that no thread holds. All other members are called under the mutex.
class SpanHeap {
 public:
  std::mutex& mutex() { return mutex_; }

  // Moves up to `wanted` used blocks into `list`; where there are none, cuts one or more fresh blocks from a span and
  // sets `fresh`. False when the system has no memory.
  bool refill(int c, uint32_t wanted, FreeList& list, bool& fresh);
  void take_back(int c, FreeList& list, uint32_t count);

  // Unmaps the spans that have no block in use and returns their bytes.
  size_t trim();

  // The same for one class, and for no more bytes than have been free since the last call of this function.
  size_t return_unused(int c);
  // Whether a class has so much free memory that returning some may pay, and has changed since it was last looked at.
  bool may_have_unused(int c) const {
    return classes_[c].looks_left > 0 && classes_[c].free.count * class_size(c) >= kWorthReturning;
  }

 private:
  static constexpr size_t kWorthReturning = size_t{1} << 20;
  struct Span {
    char* pages;
    size_t nbytes;
  };
  struct Class {
    FreeList free;
    uint32_t least_free = 0;  // the least number of free blocks since the last call of return_unused
    // Calls of return_unused still to do: one notes what is free, the next returns what stayed free.
    int looks_left = 0;
    char* fresh = nullptr;  // the part of the newest span that is not cut into blocks yet
    char* fresh_end = nullptr;
    std::vector<Span> spans;
  };

  bool add_span(int c);
  size_t trim(int c, size_t most_bytes);

  std::mutex mutex_;
  HeldOverFork held_{mutex_, LockOrder::MemorySpans};
  Class classes_[kClasses];
};

}  // namespace mica::detail
