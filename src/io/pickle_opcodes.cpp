#include "io/pickle_opcodes.h"

#include <cstring>

#include "mica/error.h"

namespace mica::io {

std::string_view PickleLexer::take(uint64_t nbytes) {
  MICA_CHECK(nbytes <= pickle_.size() - at_, "the pickle is truncated: ", nbytes, " bytes expected at byte ", at_,
             " of ", pickle_.size());
  const std::string_view taken = pickle_.substr(at_, nbytes);
  at_ += nbytes;
  return taken;
}

std::string_view PickleLexer::take_line() {
  const size_t end = pickle_.find('\n', at_);
  MICA_CHECK(end != std::string_view::npos, "the pickle is truncated: a line without an end at byte ", at_);
  const std::string_view line = pickle_.substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

std::string_view PickleLexer::take_counted(size_t count_bytes) {
  uint64_t count = 0;
  const std::string_view bytes = take(count_bytes);
  std::memcpy(&count, bytes.data(), count_bytes);  // little-endian
  return take(count);
}

Instruction PickleLexer::next() {
  const size_t begin = at_;
  const auto opcode = static_cast<Opcode>(take(1)[0]);
  std::string_view argument;
  switch (opcode) {
    case Opcode::Mark:
    case Opcode::Stop:
    case Opcode::Pop:
    case Opcode::PopMark:
    case Opcode::Dup:
    case Opcode::None:
    case Opcode::BinPersId:
    case Opcode::Reduce:
    case Opcode::Append:
    case Opcode::Build:
    case Opcode::Dict:
    case Opcode::EmptyDict:
    case Opcode::Appends:
    case Opcode::List:
    case Opcode::EmptyList:
    case Opcode::Obj:
    case Opcode::SetItem:
    case Opcode::Tuple:
    case Opcode::EmptyTuple:
    case Opcode::SetItems:
    case Opcode::NewObj:
    case Opcode::Tuple1:
    case Opcode::Tuple2:
    case Opcode::Tuple3:
    case Opcode::NewTrue:
    case Opcode::NewFalse:
    case Opcode::EmptySet:
    case Opcode::AddItems:
    case Opcode::FrozenSet:
    case Opcode::NewObjEx:
    case Opcode::StackGlobal:
    case Opcode::Memoize:
    case Opcode::NextBuffer:
    case Opcode::ReadonlyBuffer:
      break;
    case Opcode::BinInt1:
    case Opcode::BinGet:
    case Opcode::BinPut:
    case Opcode::Proto:
    case Opcode::Ext1:
      argument = take(1);
      break;
    case Opcode::BinInt2:
    case Opcode::Ext2:
      argument = take(2);
      break;
    case Opcode::BinInt:
    case Opcode::LongBinGet:
    case Opcode::LongBinPut:
    case Opcode::Ext4:
      argument = take(4);
      break;
    case Opcode::BinFloat:
    case Opcode::Frame:
      argument = take(8);
      break;
    case Opcode::ShortBinString:
    case Opcode::Long1:
    case Opcode::ShortBinBytes:
    case Opcode::ShortBinUnicode:
      argument = take_counted(1);
      break;
    case Opcode::BinString:
    case Opcode::BinUnicode:
    case Opcode::Long4:
    case Opcode::BinBytes:
      argument = take_counted(4);
      break;
    case Opcode::BinUnicode8:
    case Opcode::BinBytes8:
    case Opcode::ByteArray8:
      argument = take_counted(8);
      break;
    case Opcode::Float:
    case Opcode::Int:
    case Opcode::Long:
    case Opcode::PersId:
    case Opcode::String:
    case Opcode::Unicode:
    case Opcode::Get:
    case Opcode::Put:
      argument = take_line();
      break;
    case Opcode::Global:
    case Opcode::Inst:
      take_line();
      take_line();
      argument = pickle_.substr(begin + 1, at_ - begin - 2);
      break;
    default:
      fail(cat("invalid load key: byte ", begin, " of the pickle is no opcode (", static_cast<int>(opcode), ")"));
  }
  return {opcode, argument, pickle_.substr(begin, at_ - begin)};
}

}  // namespace mica::io
