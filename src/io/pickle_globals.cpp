#include "io/pickle_globals.h"

#include <cstring>
#include <unordered_set>

#include "io/pickle_opcodes.h"

namespace mica::io {

namespace {

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

}  // namespace

std::string resolve_named_globals(std::string_view pickle) {
  std::string out;
  out.reserve(pickle.size());
  PickleLexer lexer(pickle);
  std::unordered_set<uint64_t> named;  // places in the memo that hold a class instead of its name
  uint64_t memoized = 0;               // how many Memoize instructions there were: each takes the next place

  // Instructions that may turn out to be an id are held back: a string and its place in the memo, or a fetch from the
  // memo.
  Instruction held{Opcode::Stop, {}, {}};
  std::string_view place_bytes;
  uint64_t place = 0;
  bool holding_string = false, holding_fetch = false, has_place = false;
  auto let_go = [&] {
    if (holding_string || holding_fetch) out += held.bytes;
    if (has_place) out += place_bytes;
    holding_string = holding_fetch = has_place = false;
  };

  for (;;) {
    const Instruction i = lexer.next();
    switch (i.opcode) {
      case Opcode::BinUnicode:
      case Opcode::ShortBinUnicode:
      case Opcode::BinUnicode8:
        let_go();
        held = i;
        holding_string = true;
        continue;
      case Opcode::BinGet:
      case Opcode::LongBinGet:
        let_go();
        held = i;
        holding_fetch = true;
        place = little_endian(i.argument);
        continue;
      case Opcode::BinPut:
      case Opcode::LongBinPut:
      case Opcode::Memoize: {
        const uint64_t index = i.opcode == Opcode::Memoize ? memoized++ : little_endian(i.argument);
        if (!holding_string || has_place) break;
        has_place = true;
        place_bytes = i.bytes;
        place = index;
        continue;
      }
      case Opcode::BinPersId:
        if (holding_string) {
          out += static_cast<char>(Opcode::Global);
          out += held.argument;
          out += '\n';
          if (has_place) {
            out += place_bytes;
            named.insert(place);
          }
          holding_string = has_place = false;
          continue;
        }
        if (holding_fetch && named.count(place)) {
          out += held.bytes;
          holding_fetch = false;
          continue;
        }
        break;
      case Opcode::Frame:  // its length is no longer right, and a pickle may lack it
        let_go();
        continue;
      default:
        break;
    }
    let_go();
    out += i.bytes;
    if (i.opcode == Opcode::Stop) {
      out += pickle.substr(lexer.position());
      return out;
    }
  }
}

}  // namespace mica::io
