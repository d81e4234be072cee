// Turns autocast off on every device, for code that has casts of its own, such as an exported program.
#pragma once

#include <cstdint>

namespace mica::autocast {

class Off {
 public:
  Off();
  Off(const Off&) = delete;
  Off& operator=(const Off&) = delete;
  ~Off();

 private:
  uint32_t before_ = 0;  // a bit for each type of device
};

}  // namespace mica::autocast
