// Writes calls that a backend computes as one loop (mica/backend/fusion.h) as the instructions of that loop.
#pragma once

#include <vector>

#include "compiler/plan.h"
#include "mica/backend/fusion.h"

namespace mica::recording {

// Whether a call computes element by element.
inline bool in_loop(const Call& call) { return call.form == Call::Form::Loop || call.form == Call::Form::Indexed; }

// A call that was made of another one, or of a part of it.
struct MadeCall : Call {
  explicit MadeCall(const Call& call, const Call* of = nullptr) : Call(call), origin(of ? of : &call) {}
  const Call* origin;
};

// Whether an operand of a pointwise call is `count` elements that lie one after the other, from an address at which
// vectors can be read.
bool is_dense(const Call& call, int operand, int64_t count);

inline bool same_place(const Operand& a, const Operand& b) {
  return a.storage && b.storage && a.slot == b.slot && a.offset == b.offset && a.dtype == b.dtype;
}

// How an operand reaches its storage. Two operands with equal accesses touch the same bytes for each element of a loop.
struct Access {
  int64_t offset;
  int64_t strides[kFusedDims];
  DType dtype;
  // Of an Indexed call's output: the slot of the number that says where it lies, and the number's offset there.
  int index = -1;
  int64_t index_offset = 0;
  IndexedPlace place{};
  friend bool operator==(const Access&, const Access&) = default;
};
Access access_of(const Call& call, int operand);

// A loop, and what may differ the next time that it runs: where its operands lie, and the numbers of its calls.
struct WrittenLoop {
  // Where an operand lies. `index` is as in Access.
  struct Place {
    int slot;
    int64_t offset;
    int index;
    int64_t index_offset;
  };
  FusedLoop loop;
  Place places[kFusedOperands];
  const Call* calls[kFusedInstructions];  // by instruction; null for those that load or store

  // Gives the operands their addresses, and the instructions the numbers that their calls have now.
  void fill_in(const std::vector<Slot>& slots);
};

// Writes the instructions of a loop. `in_memory` says by slot which results are stored. Returns false where the calls
// need more registers, operands or instructions than a loop has.
bool write_loop(WrittenLoop& to, const std::vector<const Call*>& calls, const std::vector<char>& in_memory);

}  // namespace mica::recording
