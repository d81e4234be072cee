#include "compiler/fused_loop.h"

#include <algorithm>
#include <iterator>

namespace mica::recording {

Access access_of(const Call& call, int k) {
  const recording::Operand& o = call.operands[k];
  Access a{o.offset, {}, o.dtype};
  for (int d = 0; d < call.ndim; ++d) a.strides[d] = call.shape[d] == 1 ? 0 : o.strides[d];
  if (call.form == Call::Form::Product && k == 0) {
    a.strides[0] = element_size(o.dtype);  // one element after the other, as a loop over the columns reaches them
  } else if (!in_loop(call)) {
    a.strides[0] = -1;  // a matrix, whose access is equal to that of no element
  }
  if (call.form == Call::Form::Indexed && k == 0) {
    const recording::Operand& index = call.operands[2];
    a.index = index.slot;
    a.index_offset = index.offset;
    a.place = *reinterpret_cast<const IndexedPlace*>(call.arguments);
  }
  return a;
}

namespace {

class LoopWriter {
 public:
  explicit LoopWriter(WrittenLoop& to) : to_(to), loop_(to.loop) {}
  bool write(const std::vector<const Call*>& calls, const std::vector<char>& in_memory);

 private:
  // What a storage holds at an element of the loop, as one access reaches it.
  struct Value {
    int slot;
    Access access;
    int last_read = -1, last_write = -1;  // the last calls that do so
    int8_t at = -1;                       // the register that holds it, or -1
  };
  Value& value_of(const Call& call, int k);
  int operand_of(const Value& v);  // the loop's operand for the value, or -1 where there are too many
  bool load(Value& v);
  bool store(const Value& v);
  bool compute(const Call& call, int index);
  int8_t take_register();
  FusedInstruction* next() {
    if (loop_.ninstructions == kFusedInstructions) return nullptr;
    to_.calls[loop_.ninstructions] = nullptr;
    return &loop_.instructions[loop_.ninstructions++];
  }

  WrittenLoop& to_;
  FusedLoop& loop_;
  std::vector<Value> values_;
  std::vector<const Value*> operands_;
  bool taken_[kFusedRegisters] = {};  // by register: whether it holds a value that is still asked for
};

LoopWriter::Value& LoopWriter::value_of(const Call& call, int k) {
  const int slot = call.operands[k].slot;
  const Access access = access_of(call, k);
  for (Value& v : values_)
    if (v.slot == slot && v.access == access) return v;
  return values_.emplace_back(Value{slot, access});
}

int LoopWriter::operand_of(const Value& v) {
  for (size_t i = 0; i < operands_.size(); ++i)
    if (operands_[i] == &v) return static_cast<int>(i);
  if (operands_.size() == kFusedOperands) return -1;
  to_.places[loop_.noperands] = {v.slot, v.access.offset, v.access.index, v.access.index_offset};
  FusedLoop::Operand& o = loop_.operands[loop_.noperands++];
  o.dtype = v.access.dtype;
  std::copy(v.access.strides, v.access.strides + kFusedDims, o.strides);
  if (v.access.index >= 0) {
    o.step = v.access.place.step;
    o.size = v.access.place.size;
    o.dim = v.access.place.dim;
  }
  operands_.push_back(&v);
  return loop_.noperands - 1;
}

int8_t LoopWriter::take_register() {
  for (int r = 0; r < kFusedRegisters; ++r)
    if (!taken_[r]) return taken_[r] = true, static_cast<int8_t>(r);
  return -1;
}

bool LoopWriter::load(Value& v) {
  FusedInstruction* to = next();
  const int operand = operand_of(v);
  v.at = take_register();
  if (!to || operand < 0 || v.at < 0) return false;
  *to = {FusedInstruction::kLoad, {}, v.at, v.access.dtype, static_cast<uint8_t>(operand), 0, {}, {}};
  return true;
}

bool LoopWriter::store(const Value& v) {
  FusedInstruction* to = next();
  const int operand = operand_of(v);
  if (!to || operand < 0) return false;
  *to = {FusedInstruction::kStore, {v.at}, -1, v.access.dtype, static_cast<uint8_t>(operand), 1, {}, {}};
  return true;
}

bool LoopWriter::compute(const Call& call, int index) {
  FusedInstruction step = call.step;
  for (int i = 0; i < step.inputs; ++i) {
    if (step.in[i] == FusedInstruction::kNumber) continue;
    Value& v = value_of(call, step.in[i]);
    if (v.at < 0 && !load(v)) return false;
    step.in[i] = v.at;
  }
  Value& result = value_of(call, 0);
  for (Value& v : values_) {
    // A value that no later call reads gives up its register. The result may take it.
    if (v.at < 0 || v.last_read > index || &v == &result) continue;
    taken_[v.at] = false;
    v.at = -1;
  }
  if (result.at < 0) result.at = take_register();
  FusedInstruction* to = next();
  if (!to || result.at < 0) return false;
  step.out = result.at;
  *to = step;
  to_.calls[loop_.ninstructions - 1] = &call;
  return true;
}

bool LoopWriter::write(const std::vector<const Call*>& calls, const std::vector<char>& in_memory) {
  values_.reserve(calls.size() * kOperands);  // operands_ points into values_, which therefore must not move
  for (size_t i = 0; i < calls.size(); ++i)
    for (int k = 0; k < calls[i]->noperands; ++k) {
      if (!calls[i]->operands[k].storage) continue;
      Value& v = value_of(*calls[i], k);
      (k < calls[i]->noutputs ? v.last_write : v.last_read) = static_cast<int>(i);
    }
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!compute(*calls[i], static_cast<int>(i))) return false;
    const Value& result = value_of(*calls[i], 0);
    if (in_memory[result.slot] && result.last_write == static_cast<int>(i) && !store(result)) return false;
  }
  return true;
}

// An instruction that asks for the result of the one before it need not read a register. Where no other instruction
// asks for that result, it need not be written to one.
void shorten(FusedLoop& loop) {
  for (int i = 0; i + 1 < loop.ninstructions; ++i) {
    FusedInstruction& now = loop.instructions[i];
    if (now.code == FusedInstruction::kStore) continue;
    bool asked_later = false;
    for (int j = i + 1; j < loop.ninstructions; ++j) {
      FusedInstruction& later = loop.instructions[j];
      // A store between the two does not change what the last result is.
      const bool next = j == i + 1 || (j == i + 2 && loop.instructions[i + 1].code == FusedInstruction::kStore);
      for (int k = 0; k < later.inputs; ++k) {
        if (later.in[k] != now.out) continue;
        if (next) {
          later.in[k] = FusedInstruction::kLast;
        } else {
          asked_later = true;
        }
      }
      if (later.code != FusedInstruction::kStore && later.out == now.out) break;
    }
    if (!asked_later) now.out = -1;
  }
}

}  // namespace

bool is_dense(const Call& call, int operand, int64_t count) {
  const Operand& o = call.operands[operand];
  int64_t elements = 1;
  for (int d = 0; d < call.ndim; ++d) elements *= call.shape[d];
  return elements == count && o.offset % 16 == 0 && lies_dense(call, o);
}

bool write_loop(WrittenLoop& to, const std::vector<const Call*>& calls, const std::vector<char>& in_memory) {
  const Call& first = *calls[0];
  to.loop.device = first.device;
  to.loop.ndim = first.ndim;
  std::copy(first.shape, first.shape + first.ndim, to.loop.shape);
  if (!LoopWriter(to).write(calls, in_memory)) return false;
  shorten(to.loop);
  return true;
}

void WrittenLoop::fill_in(const std::vector<Slot>& slots) {
  for (int i = 0; i < loop.noperands; ++i) {
    const Place& place = places[i];
    loop.operands[i].data = static_cast<char*>(slots[place.slot].storage->address()) + place.offset;
    if (place.index < 0) continue;
    const char* numbers = static_cast<const char*>(slots[place.index].storage->address());
    loop.operands[i].index = reinterpret_cast<const int64_t*>(numbers + place.index_offset);
  }
  for (int i = 0; i < loop.ninstructions; ++i) {
    if (!calls[i]) continue;
    const FusedInstruction& step = calls[i]->step;
    std::copy(std::begin(step.numbers), std::end(step.numbers), loop.instructions[i].numbers);
    std::copy(std::begin(step.parameters), std::end(step.parameters), loop.instructions[i].parameters);
  }
}

}  // namespace mica::recording
