// Reads an element from memory.
#pragma once

#include <type_traits>

#include "backends/shared/host_device.h"

namespace mica {

// Any byte may be stored as a bool (bytes that are viewed as bool, a file's, memory that nobody has written yet), and
// each but zero is true. C++ knows only 0 and 1, so a bool of unknown origin must not be read as one.
template <class T>
MICA_HD inline T read_element(const T& at) {
  if constexpr (std::is_same_v<T, bool>) {
    return reinterpret_cast<const unsigned char&>(at) != 0;
  } else {
    return at;
  }
}

}  // namespace mica
