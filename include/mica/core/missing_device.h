// The error of an operation that asks for a device which this machine does not have: AssertionError in Python, as in
// torch.
#pragma once

#include "mica/error.h"

namespace mica {

class MissingDevice : public Error {
 public:
  explicit MissingDevice(std::string message) : Error(ErrorKind::Runtime, std::move(message)) {}
};

}  // namespace mica
