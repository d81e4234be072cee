// An element as it is read from memory.
#pragma once

#include <type_traits>

#include "backends/shared/host_device.h"

namespace mica {

// A bool may be stored as any byte (bytes that are seen as bool, a file's, memory that nobody has written yet), and
// each but zero is true. C++ knows 0 and 1 alone, so that a bool of unknown origin must not be read as one.
template <class T>
MICA_HD inline T read_element(const T& at) {
  if constexpr (std::is_same_v<T, bool>) {
    return reinterpret_cast<const unsigned char&>(at) != 0;
  } else {
    return at;
  }
}

}  // namespace mica
