// Turns a program into instructions: gives registers to its values and lays out its loops. `Machine` is a class that
// writes the instructions of one processor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/code.h"

namespace mica::recording {

// One instruction of the body of a row, with the registers that it uses.
struct Placed {
  enum Kind : uint8_t { Load, Store, Compute, Move } kind;
  Op op;
  uint8_t stream;
  uint8_t to, a, b, c;  // registers
  bool ahead = false;   // for a store, what Program::Store says
};

// Gives the values of a program one of `count` registers each. Constants, and values that are the same throughout a
// row, keep theirs throughout.
class Registers {
 public:
  Registers(const Program& p, int count) : program_(p), count_(count) {}
  bool place();  // returns false where there are too few

  int of_constant(int i) const { return place_[Program::constant(i)]; }
  int of_row(int stream) const { return place_[Program::stream(stream)]; }
  const std::vector<Placed>& body() const { return body_; }

 private:
  static constexpr int kNone = -1;
  // Moments are numbered: each step is one, and the stores after it are the next one.
  static int computed(int step) { return 2 * step; }
  static int stored(int step) { return 2 * step + 1; }
  int take();               // a free register, or kNone
  int read(uint8_t value);  // the value's register; an element of a stream is loaded at its first use
  void drop_after(int moment, uint8_t value);  // frees the value's register if nothing reads it after the moment
  bool compute(int step);
  bool is_fixed(uint8_t value) const;

  const Program& program_;
  int count_;
  int place_[Program::kValues];
  int last_[Program::kValues];  // by value: the moment that reads it last
  std::vector<bool> used_;
  std::vector<Placed> body_;
};

// Writes the body for `count` elements, and moves all streams on to the next ones.
template <class Machine>
void assemble_body(const Program& p, const Registers& registers, Machine& m, int count) {
  constexpr int kLine = 64, kAhead = 1024;  // the bytes of a cache's line, and how far ahead of a store it is asked for
  const bool single = count == 1;
  for (int copy = 0; copy < (count + Machine::kLanes - 1) / Machine::kLanes; ++copy)
    for (const Placed& i : registers.body()) {
      const int offset = copy * Machine::kLanes * 4;
      switch (i.kind) {
        case Placed::Load:
          p.kinds[i.stream] == Program::kTruth ? m.load_truth(i.to, i.stream, offset / 4, single)
                                               : m.load(i.to, i.stream, offset, single);
          break;
        case Placed::Store:
          if constexpr (Machine::kSums > 0) {
            if (p.kinds[i.stream] == Program::kRowSum) {
              m.add_to_sum(copy, i.a);
              break;
            }
          }
          if (i.ahead && count > Machine::kLanes && offset % kLine == 0) m.expect_store(i.stream, offset + kAhead);
          m.store(i.a, i.stream, offset, single);
          break;
        case Placed::Move:
          m.move(i.to, i.a);
          break;
        case Placed::Compute:
          m.compute(i.op, i.to, i.a, i.b, i.c);
      }
    }
  for (int s = 0; s < p.streams; ++s)
    if (const auto bytes = static_cast<int>(Program::bytes_of(p.kinds[s])); bytes > 0) m.advance(s, count * bytes);
  m.count_down(count);
}

// Writes a row whose values are added up. kSums vectors are added side by side. After kSteps steps they are added to
// one another and then to the total. What is left of the row is added by single vectors.
template <class Machine>
void assemble_summed_row(const Program& p, const Registers& registers, Machine& m, int sum) {
  constexpr int kSteps = 16, kTogether = Machine::kSums * Machine::kLanes;
  m.clear_total();
  const size_t block = m.here();
  const size_t rest = m.leave_if_fewer(kTogether);
  m.clear_sums(Machine::kSums);
  m.start_steps(kSteps);
  const size_t step = m.here();
  const size_t few = m.leave_if_fewer(kTogether), last = m.leave_after_steps();
  assemble_body(p, registers, m, kTogether);
  m.count_step();
  m.jump(step);
  m.arrive(few);
  m.arrive(last);
  m.add_sums_to_total(Machine::kSums);
  m.jump(block);
  m.arrive(rest);
  m.clear_sums(1);
  const size_t single = m.here();
  const size_t none = m.leave_if_fewer(Machine::kLanes);
  assemble_body(p, registers, m, Machine::kLanes);
  m.jump(single);
  m.arrive(none);
  m.add_sums_to_total(1);
  m.store_total(sum);
}

// Writes the whole code. Returns false where the program needs more registers or streams than the machine has.
template <class Machine>
bool assemble(const Program& p, Machine& m) {
  const int sum = static_cast<int>(std::find(p.kinds, p.kinds + p.streams, Program::kRowSum) - p.kinds);
  const bool sums = sum < p.streams;
  if (sums && Machine::kSums == 0) return false;
  Registers registers(p, Machine::kRegisters - (sums ? Machine::kTotals : 0));
  if (p.streams > Machine::kStreams || !registers.place()) return false;
  m.begin(p.streams, sums);
  for (int i = 0; i < p.constants; ++i) m.constant(registers.of_constant(i), i);
  const size_t row = m.here();
  for (int s = 0; s < p.streams; ++s)
    if (p.kinds[s] == Program::kOneValue) m.one_value(registers.of_row(s), s);
  m.start_row();
  if (sums) {
    if constexpr (Machine::kSums > 0) assemble_summed_row(p, registers, m, sum);
  } else {
    constexpr int kCopies = 4;  // the body is written four times in a row, for fewer jumps and additions
    for (const int count : {kCopies * Machine::kLanes, Machine::kLanes, 1}) {
      const size_t loop = m.here();
      const size_t leave = m.leave_if_fewer(count);
      assemble_body(p, registers, m, count);
      m.jump(loop);
      m.arrive(leave);
    }
  }
  for (int s = 0; s < p.streams; ++s) m.skip(s);
  m.end_row(row);
  m.end(p.streams, sums);
  return true;
}

// Write the instructions of a program into `code`, as bytes. They return false where it does not fit into registers.
bool assemble_arm64(const Program& program, std::vector<uint8_t>& code);
bool assemble_x86_64(const Program& program, std::vector<uint8_t>& code);

}  // namespace mica::recording
