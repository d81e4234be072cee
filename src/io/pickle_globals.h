// Names of classes and functions in pickles.
#pragma once

#include <string>
#include <string_view>

namespace mica::io {

// Python's pickler writes a class under the name that it has in the running process. To have another name written, the
// pickler is told to treat the class as a persistent object whose id is the string "module\nname". This function turns
// such ids into ordinary references to classes. Ids that are not strings stay as they are.
std::string resolve_named_globals(std::string_view pickle);

}  // namespace mica::io
