// The memory that the processes of a group on one host share: who they are, what they are doing, and buffers for data.
#pragma once

#include <sys/types.h>

#include <atomic>

#include "call.h"

namespace mica::distributed {

// What a rank says about a collective before it waits for others. A reader compares `hash`; the rest is for people.
struct Record {
  std::atomic<uint64_t> number;  // the number of the collective, from 1; 0 before the first
  uint64_t hash;
  Kind kind;
  DType dtype;
  Reduction reduction;
  int8_t dims;
  int32_t root;
  uint64_t bytes;
  int64_t shape[8];
  char place[200];
};

// A word that counts up, and how many threads sleep until it does.
struct alignas(64) Counter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

// Whether it has come to `target`; it may wrap around.
inline bool reached(const Counter& counter, uint32_t target) {
  return static_cast<int32_t>(counter.value.load(std::memory_order_acquire) - target) >= 0;
}

enum class Presence : uint32_t { Absent, Joined, Left };

// What a rank shows of itself. Only that rank writes here, except for the counts of sleepers.
struct alignas(128) Member {
  Counter published;  // rounds whose data lies in this rank's outbox
  Counter finished;   // rounds that this rank has read
  Counter mail;       // changes in the rings of messages to and from this rank
  std::atomic<Presence> presence;
  int64_t process;
  uint64_t started;              // when the process started, which tells it from a later process of the same number
  std::atomic<uint64_t> number;  // the number of the collective that this rank is in or was last in
  std::atomic<bool> inside;      // whether that collective is not over
  std::atomic<bool> still;       // whether the program waits for it, when the rank last looked
  static constexpr uint32_t kSlots = 64;
  uint8_t slot_of[kSlots];            // the slot that holds the data of a round, by the round's number modulo kSlots
  static constexpr int kRecords = 4;  // a rank is at most two rounds ahead of another
  Record records[kRecords];
  // The rank that this rank has been waiting for, by which circles are found. In the default group only.
  std::atomic<uint64_t> wait_edge;  // (count << 16) | (rank of the world + 1), 0: not waiting
  char wait_text[256];
  // Where the program is, for others that have waited long. `asked` counts questions; `answered` is the last question
  // that the text answers. In the default group only.
  Counter asked;
  std::atomic<uint32_t> answered;
  char answer[400];
};

// Bytes on their way from one rank to another. `written` and `read` count all bytes that ever passed.
struct alignas(128) Ring {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};

struct Header {
  uint64_t magic;
  uint32_t size;
  uint32_t outbox_bytes;
  uint32_t ring_bytes;
  std::atomic<uint32_t> aborted;  // 0: no, 1: the text is being written, 2: yes
  char abort_text[8192];
};

// Finds the parts of a segment.
class Segment {
 public:
  static constexpr int kOutboxes = 2;
  // Slots of a pair of ranks. They are small enough to stay in a processor's own cache, and many, so that a rank can
  // run ahead while the other has no processor. While both run, few of them are used and take memory.
  static constexpr size_t kSlotBytes = size_t{1} << 18;
  static constexpr uint32_t kSlots = Member::kSlots;

  // A new anonymous segment, which vanishes with the last process that holds it: nothing has to be cleaned up.
  static Segment create(int size);
  // The segment of another process of this user.
  static Segment open(pid_t process, int descriptor);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  // Until this is called, others can open the segment.
  void close_descriptor();
  int descriptor() const { return descriptor_; }
  int size() const { return static_cast<int>(header().size); }
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  Member& member(int rank) const;
  std::byte* outbox(int rank, uint32_t round) const;
  std::byte* slot(int rank, uint32_t index) const;
  size_t outbox_bytes() const { return header().outbox_bytes; }
  Ring& ring(int from, int to) const;
  std::byte* ring_data(int from, int to) const;
  size_t ring_bytes() const { return header().ring_bytes; }

 private:
  Segment(std::byte* base, size_t bytes, int descriptor);
  std::byte* base_;
  size_t bytes_;
  int descriptor_;
};

}  // namespace mica::distributed
