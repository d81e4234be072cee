// The grammar of pickles, protocols 0 to 5: the opcodes, and how many bytes belong to each.
#pragma once

#include <cstdint>
#include <string_view>

namespace mica::io {

enum class Opcode : uint8_t {
  Mark = '(',
  Stop = '.',
  Pop = '0',
  PopMark = '1',
  Dup = '2',
  Float = 'F',
  Int = 'I',
  BinInt = 'J',
  BinInt1 = 'K',
  Long = 'L',
  BinInt2 = 'M',
  None = 'N',
  PersId = 'P',
  BinPersId = 'Q',
  Reduce = 'R',
  String = 'S',
  BinString = 'T',
  ShortBinString = 'U',
  Unicode = 'V',
  BinUnicode = 'X',
  Append = 'a',
  Build = 'b',
  Global = 'c',
  Dict = 'd',
  EmptyDict = '}',
  Appends = 'e',
  Get = 'g',
  BinGet = 'h',
  Inst = 'i',
  LongBinGet = 'j',
  List = 'l',
  EmptyList = ']',
  Obj = 'o',
  Put = 'p',
  BinPut = 'q',
  LongBinPut = 'r',
  SetItem = 's',
  Tuple = 't',
  EmptyTuple = ')',
  SetItems = 'u',
  BinFloat = 'G',
  Proto = 0x80,
  NewObj = 0x81,
  Ext1 = 0x82,
  Ext2 = 0x83,
  Ext4 = 0x84,
  Tuple1 = 0x85,
  Tuple2 = 0x86,
  Tuple3 = 0x87,
  NewTrue = 0x88,
  NewFalse = 0x89,
  Long1 = 0x8a,
  Long4 = 0x8b,
  BinBytes = 'B',
  ShortBinBytes = 'C',
  ShortBinUnicode = 0x8c,
  BinUnicode8 = 0x8d,
  BinBytes8 = 0x8e,
  EmptySet = 0x8f,
  AddItems = 0x90,
  FrozenSet = 0x91,
  NewObjEx = 0x92,
  StackGlobal = 0x93,
  Memoize = 0x94,
  Frame = 0x95,
  ByteArray8 = 0x96,
  NextBuffer = 0x97,
  ReadonlyBuffer = 0x98,
};

struct Instruction {
  Opcode opcode;
  std::string_view argument;  // without counts and line ends; for Global and Inst "module\nname"
  std::string_view bytes;     // all bytes of the instruction
};

// Cuts a pickle into instructions.
class PickleLexer {
 public:
  explicit PickleLexer(std::string_view pickle) : pickle_(pickle) {}
  Instruction next();  // throws at the end, and at a byte that is not an opcode
  size_t position() const { return at_; }

 private:
  std::string_view take(uint64_t nbytes);
  std::string_view take_line();
  std::string_view take_counted(size_t count_bytes);

  std::string_view pickle_;
  size_t at_ = 0;
};

}  // namespace mica::io
