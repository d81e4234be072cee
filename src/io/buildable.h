// The names that a checkpoint may use. This one list serves both readers of pickles: the one here (pickle_reader.cpp),
// and Python's (mica/_checkpoints/safe_globals.py), which asks for it by _C._buildable_names(). Any other name is
// refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mica::io {

// What is made when a file calls a name.
enum class Builder : uint8_t {
  Nothing,  // a dtype or a class of storages: it can be named, not called
  Bytes,
  ByteArray,
  Complex,
  Counter,
  Device,
  Layout,
  OrderedDict,
  Parameter,
  Set,
  Size,
  LegacyTensor,  // empty; the instruction BUILD gives it its memory
  RebuildTensor,
  RebuildTensorV2,
  RebuildTensorV3,
  RebuildMetaTensor,
  RebuildQuantizedTensor,
  RebuildSparseTensor,
  RebuildParameter,
  RebuildParameterWithState,
  RebuildFromType,
};

// How to build what the name stands for; nothing where a file must not name it. Names of Python 2 ("__builtin__.set")
// mean those of Python 3.
std::optional<Builder> buildable(std::string_view name);

std::vector<std::string> buildable_names();

}  // namespace mica::io
