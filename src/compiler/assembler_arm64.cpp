// Writes instructions of AArch64, on vectors of four float32.
#include <cstddef>
#include <utility>

#include "compiler/assembler.h"

namespace mica::recording {

namespace {

class Arm64 {
 public:
  // Vector registers 8 to 15 belong to the caller. They are saved where sums need them, and hold these. The last
  // register holds what an operation needs beside its operands. Two registers hold the total in doubles: one for the
  // lower two lanes of the sums, one for the upper two.
  static constexpr int kRegisters = 23, kLanes = 4, kStreams = 12, kSums = 8, kTotals = 2;
  static constexpr uint32_t kSpare = 31, kLower = 29, kUpper = 30, kFirstSum = 8;

  std::vector<uint8_t> code;

  size_t here() const { return code.size(); }

  void begin(int streams, bool sums) {
    for (uint32_t i = 0; sums && i < kSums; i += 2)  // the caller wants the lower halves of these registers back
      word((i == 0 ? 0x6DBC0000 : 0x6D000000 | i << 15) | (kFirstSum + i + 1) << 10 | 31u << 5 | (kFirstSum + i));
    word(0xF9400000 | offset_of_word(offsetof(CodeArguments, rows)) | 2);        // x2: rows
    word(0xF9400000 | offset_of_word(offsetof(CodeArguments, constants)) | 16);  // x16
    for (int s = 0; s < streams; ++s)
      word(0xF9400000 | offset_of_word(offsetof(CodeArguments, streams) + 8u * static_cast<uint32_t>(s)) | pointer(s));
  }
  void constant(int to, int i) {
    word(0x91000000 | static_cast<uint32_t>(4 * i) << 10 | 16u << 5 | 17);
    word(0x4D40C800 | 17u << 5 | vector(to));
  }
  void one_value(int to, int stream) { word(0x4D40C800 | pointer(stream) << 5 | vector(to)); }
  void start_row() { word(0xF9400000 | offset_of_word(offsetof(CodeArguments, count)) | 1); }  // x1: elements left

  void load(int to, int stream, int offset, bool single) {
    const uint32_t at = pointer(stream) << 5 | vector(to), o = static_cast<uint32_t>(offset);
    word(single ? 0xBD400000 | at : 0x3DC00000 | (o / 16) << 10 | at);
  }
  void load_truth(int to, int stream, int offset, bool single) {
    const uint32_t at = pointer(stream) << 5 | vector(to), same = vector(to) << 5 | vector(to);
    word(single ? 0x3D400000 | at : 0xBD400000 | (static_cast<uint32_t>(offset) / 4) << 10 | at);
    word(0x2F08A400 | same);                     // widens bytes to 16 bits
    word(0x2F10A400 | same);                     // and these to 32 bits
    word(0x4EA08C00 | vector(to) << 16 | same);  // sets all bits of the elements that have any
  }
  void store(int from, int stream, int offset, bool single) {
    const uint32_t at = pointer(stream) << 5 | vector(from), o = static_cast<uint32_t>(offset);
    word(single ? 0xBD000000 | at : 0x3D800000 | (o / 16) << 10 | at);
  }
  // Asks for a line that will be written. Measured on a Neoverse-N1: 4 M elements, written as two halves of rows of 64,
  // took 3.8 ms without this and 1.1 ms with it. Elements that are written one line after the other take longer with
  // it.
  void expect_store(int stream, int offset) {
    word(0xF9800010 | static_cast<uint32_t>(offset / 8) << 10 | pointer(stream) << 5);
  }
  void move(int to, int from) { word(0x4EA01C00 | vector(from) << 16 | vector(from) << 5 | vector(to)); }

  void compute(Op op, int to, int a, int b, int c) {
    const uint32_t one = vector(a) << 5 | vector(to), two = vector(b) << 16 | one;
    const uint32_t exchanged = vector(a) << 16 | vector(b) << 5 | vector(to);
    switch (op) {
      case Op::Add:
        return word(0x4E20D400 | two);
      case Op::Sub:
        return word(0x4EA0D400 | two);
      case Op::Mul:
        return word(0x6E20DC00 | two);
      case Op::Div:
        return word(0x6E20FC00 | two);
      case Op::MulAdd:
        return word(0x4E20CC00 | two);
      case Op::NegMulAdd:
        return word(0x4EA0CC00 | two);
      case Op::Max:
        return word(0x4E20F400 | two);
      case Op::Min:
        return word(0x4EA0F400 | two);
      case Op::Neg:
        return word(0x6EA0F800 | one);
      case Op::Abs:
        return word(0x4EA0F800 | one);
      case Op::Sqrt:
        return word(0x6EA1F800 | one);
      case Op::Less:
        return word(0x6EA0E400 | exchanged);
      case Op::LessEqual:
        return word(0x6E20E400 | exchanged);
      case Op::Equal:
        return word(0x4E20E400 | two);
      case Op::Select:
        word(0x4EA01C00 | vector(a) << 16 | vector(a) << 5 | kSpare);
        word(0x6E601C00 | vector(c) << 16 | vector(b) << 5 | kSpare);
        return word(0x4EA01C00 | kSpare << 16 | kSpare << 5 | vector(to));
      case Op::Relu:
        word(0x6F00E400 | kSpare);
        return word(0x4E20F400 | vector(a) << 16 | kSpare << 5 | vector(to));
    }
  }

  size_t leave_if_fewer(int count) {
    word(0xF100001F | static_cast<uint32_t>(count) << 10 | 1u << 5);  // compares x1
    word(0x5400000B);                                                 // and leaves if it is less
    return here() - 4;
  }
  void arrive(size_t from) { patch(from, static_cast<uint32_t>((here() - from) / 4 & 0x7FFFF) << 5); }
  void advance(int stream, int bytes) {
    word(0x91000000 | static_cast<uint32_t>(bytes) << 10 | pointer(stream) << 5 | pointer(stream));
  }
  void count_down(int count) { word(0xD1000000 | static_cast<uint32_t>(count) << 10 | 1u << 5 | 1); }
  void jump(size_t to) { word(0x14000000 | (distance(to) & 0x3FFFFFF)); }
  void skip(int stream) {
    word(0xF9400000 | offset_of_word(offsetof(CodeArguments, skips) + 8u * static_cast<uint32_t>(stream)) | 16);
    word(0x8B000000 | 16u << 16 | pointer(stream) << 5 | pointer(stream));
  }
  void end_row(size_t row) {
    word(0xF1000442);  // x2 -= 1
    word(0x54000001 | (distance(row) & 0x7FFFF) << 5);
  }
  void end(int, bool sums) {
    for (uint32_t i = kSums; sums && i > 0; i -= 2)
      word((i == 2 ? 0x6CC40000 : 0x6D400000 | (i - 2) << 15) | (kFirstSum + i - 1) << 10 | 31u << 5 |
           (kFirstSum + i - 2));
    word(0xD65F03C0);
  }

  void clear_total() {
    word(0x6F00E400 | kLower);
    word(0x6F00E400 | kUpper);
  }
  void clear_sums(int count) {
    for (int i = 0; i < count; ++i) word(0x6F00E400 | sum(i));
  }
  void add_to_sum(int i, int value) { add(sum(i), vector(value)); }
  void add_sums_to_total(int count) {
    for (int apart = 1; apart < count; apart *= 2)  // adds neighbours, then pairs of them, and so on
      for (int i = 0; i + apart < count; i += 2 * apart) add(sum(i), sum(i + apart));
    word(0x0E617800 | sum(0) << 5 | kSpare);  // the lower half as doubles
    word(0x4E60D400 | kSpare << 16 | kLower << 5 | kLower);
    word(0x4E617800 | sum(0) << 5 | kSpare);  // the upper half
    word(0x4E60D400 | kSpare << 16 | kUpper << 5 | kUpper);
  }
  void store_total(int stream) {
    word(0x4E60D400 | kUpper << 16 | kLower << 5 | kLower);
    word(0x7E70D800 | kLower << 5 | kLower);  // both lanes
    word(0xFD400000 | offset_of_word(offsetof(CodeArguments, divisor)) | kSpare);
    word(0x1E601800 | kSpare << 16 | kLower << 5 | kLower);
    word(0x1E624000 | kLower << 5 | kLower);  // rounded to float32
    word(0xBD000000 | pointer(stream) << 5 | kLower);
  }
  // Steps are counted in x17.
  void start_steps(int count) { word(0xD2800011 | static_cast<uint32_t>(count) << 5); }
  void count_step() { word(0xD1000631); }
  size_t leave_after_steps() {
    word(0xB4000011);
    return here() - 4;
  }

 private:
  static uint32_t sum(int i) { return kFirstSum + static_cast<uint32_t>(i); }
  void add(uint32_t to, uint32_t from) { word(0x4E20D400 | from << 16 | to << 5 | to); }
  static uint32_t vector(int i) { return static_cast<uint32_t>(i < 8 ? i : i + 8); }
  static uint32_t pointer(int stream) { return static_cast<uint32_t>(3 + stream); }
  static uint32_t offset_of_word(size_t bytes) { return static_cast<uint32_t>(bytes / 8) << 10; }  // from x0
  uint32_t distance(size_t to) const {
    return static_cast<uint32_t>((static_cast<int64_t>(to) - static_cast<int64_t>(here())) / 4);
  }
  void word(uint32_t w) {
    for (int i = 0; i < 4; ++i) code.push_back(static_cast<uint8_t>(w >> (8 * i)));
  }
  void patch(size_t at, uint32_t bits) {
    for (int i = 0; i < 4; ++i) code[at + static_cast<size_t>(i)] |= static_cast<uint8_t>(bits >> (8 * i));
  }
};

}  // namespace

bool assemble_arm64(const Program& program, std::vector<uint8_t>& code) {
  Arm64 machine;
  if (!assemble(program, machine)) return false;
  code = std::move(machine.code);
  return true;
}

}  // namespace mica::recording
