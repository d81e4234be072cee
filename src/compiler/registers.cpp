// Gives registers to the values of a program.
#include <algorithm>

#include "compiler/assembler.h"

namespace mica::recording {

namespace {

int operands_of(Op op) {
  switch (op) {
    case Op::MulAdd:
    case Op::NegMulAdd:
    case Op::Select:
      return 3;
    case Op::Neg:
    case Op::Abs:
    case Op::Sqrt:
    case Op::Relu:
      return 1;
    default:
      return 2;
  }
}

}  // namespace

// Whether a value keeps its register throughout: a constant, or what is one value for a row.
bool Registers::is_fixed(uint8_t value) const {
  if (value < Program::kStreams) return program_.kinds[value] == Program::kOneValue;
  return value < Program::result(0);
}

int Registers::take() {
  const auto found = std::find(used_.begin(), used_.end(), false);
  if (found == used_.end()) return kNone;
  *found = true;
  return static_cast<int>(found - used_.begin());
}

int Registers::read(uint8_t value) {
  if (place_[value] != kNone || value >= Program::kStreams) return place_[value];
  place_[value] = take();
  if (place_[value] != kNone) body_.push_back({Placed::Load, {}, value, static_cast<uint8_t>(place_[value]), 0, 0, 0});
  return place_[value];
}

void Registers::drop_after(int moment, uint8_t value) {
  if (is_fixed(value) || last_[value] != moment || place_[value] == kNone) return;
  used_[place_[value]] = false;
  place_[value] = kNone;
}

bool Registers::compute(int step) {
  const Step& s = program_.code[step];
  const int moment = computed(step);
  const uint8_t operands[] = {s.a, s.b, s.c};
  const int count = operands_of(s.op);
  int at[3] = {0, 0, 0};
  for (int k = 0; k < count; ++k)
    if ((at[k] = read(operands[k])) == kNone) return false;
  int to = kNone;
  if (count == 3 && s.op != Op::Select) {
    // A fused multiply-add writes its sum to the register of the third operand. If a later step reads that operand, it
    // is copied first.
    const bool dies = !is_fixed(s.c) && last_[s.c] == moment && s.c != s.a && s.c != s.b;
    if (dies) {
      to = at[2];
      place_[s.c] = kNone;
    } else {
      if ((to = take()) == kNone) return false;
      body_.push_back({Placed::Move, {}, 0, static_cast<uint8_t>(to), static_cast<uint8_t>(at[2]), 0, 0});
    }
    drop_after(moment, s.a);
    drop_after(moment, s.b);
    drop_after(moment, s.c);
  } else {
    for (int k = 0; k < count; ++k) drop_after(moment, operands[k]);
    if ((to = take()) == kNone) return false;
  }
  body_.push_back({Placed::Compute, s.op, 0, static_cast<uint8_t>(to), static_cast<uint8_t>(at[0]),
                   static_cast<uint8_t>(at[1]), static_cast<uint8_t>(at[2])});
  place_[s.result] = to;
  return true;
}

bool Registers::place() {
  std::fill(std::begin(place_), std::end(place_), kNone);
  std::fill(std::begin(last_), std::end(last_), kNone);
  used_.assign(count_, false);
  for (int i = 0; i < program_.constants; ++i)
    if ((place_[Program::constant(i)] = take()) == kNone) return false;
  for (int s = 0; s < program_.streams; ++s)
    if (program_.kinds[s] == Program::kOneValue && (place_[Program::stream(s)] = take()) == kNone) return false;
  for (int i = 0; i < program_.steps; ++i) {
    const uint8_t operands[] = {program_.code[i].a, program_.code[i].b, program_.code[i].c};
    for (int k = 0; k < operands_of(program_.code[i].op); ++k) last_[operands[k]] = computed(i);
    last_[program_.code[i].result] = computed(i);
  }
  for (int i = 0; i < program_.stores; ++i) {
    const Program::Store& store = program_.stored[i];
    last_[store.value] = std::max(last_[store.value], stored(store.step));
  }
  // A stream that is both read and written is loaded at the beginning: a store may come before the step that reads it.
  for (int i = 0; i < program_.stores; ++i)
    if (const uint8_t s = program_.stored[i].stream; last_[s] != kNone && read(s) == kNone) return false;
  for (int i = 0; i < program_.steps || i == 0; ++i) {
    if (i < program_.steps && !compute(i)) return false;
    for (int k = 0; k < program_.stores; ++k) {
      const Program::Store& store = program_.stored[k];
      if (store.step != i) continue;
      const int at = read(store.value);
      if (at == kNone) return false;
      body_.push_back({Placed::Store, {}, store.stream, 0, static_cast<uint8_t>(at), 0, 0, store.ahead});
    }
    for (int k = 0; k < program_.stores; ++k)
      if (program_.stored[k].step == i) drop_after(stored(i), program_.stored[k].value);
    if (i < program_.steps) drop_after(computed(i), program_.code[i].result);
  }
  return true;
}

}  // namespace mica::recording
