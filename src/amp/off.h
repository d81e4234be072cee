// Autocast off on every device, for what brings casts of its own: an exported program.
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
