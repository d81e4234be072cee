// Writes instructions of x86-64 with AVX2 and FMA, on vectors of eight float32.
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "compiler/assembler.h"

namespace mica::recording {

namespace {

enum : int { kRax, kRcx, kRdx, kRbx, kRsp, kRbp, kRsi, kRdi, kR8, kR9, kR10, kR11, kR12, kR13, kR14, kR15 };

class X86 {
 public:
  // The last two of the sixteen vector registers hold what an operation needs beside its operands.
  static constexpr int kRegisters = 14, kLanes = 8, kStreams = 12, kSums = 0, kTotals = 0;
  static constexpr int kSpare = 14, kOther = 15;

  std::vector<uint8_t> code;

  size_t here() const { return code.size(); }

  void begin(int streams, bool) {
    for (int s = 0; s < streams; ++s)
      if (is_kept(s)) push(pointer(s));
    load_word(kRax, kRdi, offsetof(CodeArguments, constants));
    constants_ = kRax;
    for (int s = 0; s < streams; ++s) load_word(pointer(s), kRdi, offsetof(CodeArguments, streams) + 8u * at(s));
  }
  void constant(int to, int i) { memory(2, 1, 0x18, to, 0, constants_, 4 * i, true); }
  void one_value(int to, int stream) { memory(2, 1, 0x18, to, 0, pointer(stream), 0, true); }
  void start_row() { load_word(kRax, kRdi, offsetof(CodeArguments, count)); }

  void load(int to, int stream, int offset, bool single) {
    memory(1, single ? 2 : 0, 0x10, to, 0, pointer(stream), offset, !single);
  }
  void load_truth(int to, int stream, int offset, bool single) {
    vectors(1, 0, 0x57, kSpare, kSpare, kSpare);
    if (single) {
      memory(3, 1, 0x20, to, kSpare, pointer(stream), offset, false);
      bytes({0});
    } else {
      memory(2, 1, 0x31, to, 0, pointer(stream), offset, true);
    }
    vectors(1, 1, 0x66, to, to, kSpare);  // sets all bits of the elements that are more than zero
  }
  void store(int from, int stream, int offset, bool single) {
    memory(1, single ? 2 : 0, 0x11, from, 0, pointer(stream), offset, !single);
  }
  void expect_store(int, int) {}  // these processors ask for a line as soon as they know the address of a store
  void move(int to, int from) { vectors(1, 0, 0x28, to, 0, from); }

  void compute(Op op, int to, int a, int b, int c) {
    switch (op) {
      case Op::Add:
        return vectors(1, 0, 0x58, to, a, b);
      case Op::Sub:
        return vectors(1, 0, 0x5C, to, a, b);
      case Op::Mul:
        return vectors(1, 0, 0x59, to, a, b);
      case Op::Div:
        return vectors(1, 0, 0x5E, to, a, b);
      case Op::MulAdd:
        return vectors(2, 1, 0xB8, to, a, b);
      case Op::NegMulAdd:
        return vectors(2, 1, 0xBC, to, a, b);
      case Op::Max:
        return extreme(0x5F, to, a, b);
      case Op::Min:
        return extreme(0x5D, to, a, b);
      case Op::Sqrt:
        return vectors(1, 0, 0x51, to, 0, a);
      case Op::Neg:
        ones();
        shift(6, 31);  // to the left, which leaves the sign alone
        return vectors(1, 0, 0x57, to, a, kSpare);
      case Op::Abs:
        ones();
        shift(2, 1);  // to the right, which leaves all bits but the sign
        return vectors(1, 0, 0x54, to, a, kSpare);
      case Op::Less:
        return compare(0x11, to, a, b);
      case Op::LessEqual:
        return compare(0x12, to, a, b);
      case Op::Equal:
        return compare(0, to, a, b);
      case Op::Select:
        vectors(3, 1, 0x4A, to, c, b);
        return bytes({a << 4});
      case Op::Relu:
        vectors(1, 0, 0x57, kSpare, kSpare, kSpare);
        return vectors(1, 0, 0x5F, to, kSpare, a);
    }
  }

  size_t leave_if_fewer(int count) {
    with_number(7, kRax, count);
    bytes({0x0F, 0x8C});
    number(0);
    return here() - 4;
  }
  void arrive(size_t from) {
    const auto distance = static_cast<uint32_t>(here() - from - 4);
    for (int i = 0; i < 4; ++i) code[from + static_cast<size_t>(i)] = static_cast<uint8_t>(distance >> (8 * i));
  }
  void advance(int stream, int by) { with_number(0, pointer(stream), by); }
  void count_down(int count) { with_number(5, kRax, count); }
  void jump(size_t to) {
    bytes({0xE9});
    number(static_cast<int32_t>(static_cast<int64_t>(to) - static_cast<int64_t>(here()) - 4));
  }
  void skip(int stream) { word_memory(0x03, pointer(stream), kRdi, offsetof(CodeArguments, skips) + 8u * at(stream)); }
  void end_row(size_t row) {
    word_memory(0xFF, 1, kRdi, offsetof(CodeArguments, rows));  // one row less
    bytes({0x0F, 0x85});
    number(static_cast<int32_t>(static_cast<int64_t>(row) - static_cast<int64_t>(here()) - 4));
  }
  void end(int streams, bool) {
    bytes({0xC5, 0xF8, 0x77});  // clears the upper halves of the vectors, which slow down the caller's SSE instructions
    for (int s = streams - 1; s >= 0; --s)
      if (is_kept(s)) pop(pointer(s));
    bytes({0xC3});
  }

 private:
  static size_t at(int stream) { return static_cast<size_t>(stream); }
  static int pointer(int stream) {
    static constexpr int kPointers[kStreams] = {kRcx, kRdx, kRsi, kR8, kR9, kR10, kR11, kRbx, kRbp, kR13, kR14, kR15};
    return kPointers[stream];
  }
  static bool is_kept(int stream) { return stream >= 7; }  // whether its register has to be given back as it was

  void bytes(std::initializer_list<int> list) {
    for (const int b : list) code.push_back(static_cast<uint8_t>(b));
  }
  void number(int32_t n) {
    for (int i = 0; i < 4; ++i) code.push_back(static_cast<uint8_t>(static_cast<uint32_t>(n) >> (8 * i)));
  }
  void push(int r) { r < 8 ? bytes({0x50 + r}) : bytes({0x41, 0x50 + r - 8}); }
  void pop(int r) { r < 8 ? bytes({0x58 + r}) : bytes({0x41, 0x58 + r - 8}); }

  // An instruction on memory and a register of 64 bits, in whose place some opcodes have an extension. The base is
  // never rsp or r12, which are encoded differently.
  void word_memory(int opcode, int reg, int base, size_t offset) {
    bytes({0x48 | (reg >> 3) << 2 | base >> 3, opcode, 0x80 | (reg & 7) << 3 | (base & 7)});
    number(static_cast<int32_t>(offset));
  }
  void load_word(int to, int base, size_t offset) { word_memory(0x8B, to, base, offset); }
  void with_number(int extension, int reg, int n) {
    bytes({0x48 | reg >> 3, 0x81, 0xC0 | extension << 3 | (reg & 7)});
    number(n);
  }

  void prefix(int map, int kind, int reg, int second, int last, bool wide) {
    bytes({0xC4, (reg < 8) << 7 | 1 << 6 | (last < 8) << 5 | map, (~second & 15) << 3 | (wide ? 4 : 0) | kind});
  }
  void vectors(int map, int kind, int opcode, int reg, int second, int last) {
    prefix(map, kind, reg, second, last, true);
    bytes({opcode, 0xC0 | (reg & 7) << 3 | (last & 7)});
  }
  void memory(int map, int kind, int opcode, int reg, int second, int base, int offset, bool wide) {
    prefix(map, kind, reg, second, base, wide);
    bytes({opcode, 0x80 | (reg & 7) << 3 | (base & 7)});
    number(offset);
  }
  void ones() { vectors(1, 1, 0x76, kSpare, kSpare, kSpare); }
  void shift(int extension, int bits) {
    vectors(1, 1, 0x72, extension, kSpare, kSpare);
    bytes({bits});
  }
  void compare(int how, int to, int a, int b) {
    vectors(1, 0, 0xC2, to, a, b);
    bytes({how});
  }
  // The instruction gives its second operand where either is NaN. Where the first one is NaN, it is put back.
  void extreme(int opcode, int to, int a, int b) {
    vectors(1, 0, 0xC2, kOther, a, a);
    bytes({3});
    vectors(1, 0, opcode, kSpare, a, b);
    vectors(3, 1, 0x4A, to, kSpare, a);
    bytes({kOther << 4});
  }

  int constants_ = kRax;
};

}  // namespace

bool assemble_x86_64(const Program& program, std::vector<uint8_t>& code) {
  X86 machine;
  if (!assemble(program, machine)) return false;
  code = std::move(machine.code);
  return true;
}

}  // namespace mica::recording
