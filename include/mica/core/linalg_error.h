// The error of an operation that fails on the numbers of a matrix: torch.linalg.LinAlgError in Python.
#pragma once

#include "mica/error.h"

namespace mica {

class LinAlgError : public Error {
 public:
  explicit LinAlgError(std::string message) : Error(ErrorKind::Runtime, std::move(message)) {}
};

}  // namespace mica
