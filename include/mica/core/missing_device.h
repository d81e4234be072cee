// What an operation throws that asks for a device this machine does not have: AssertionError in Python, as torch has
// it.
#pragma once

#include "mica/error.h"

namespace mica {

class MissingDevice : public Error {
 public:
  explicit MissingDevice(std::string message) : Error(ErrorKind::Runtime, std::move(message)) {}
};

}  // namespace mica
