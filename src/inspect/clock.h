// The clock by which everything in this folder is measured.
#pragma once

#include <chrono>
#include <cstdint>

namespace mica::inspect {

inline int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace mica::inspect
