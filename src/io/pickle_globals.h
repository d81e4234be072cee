// Names of classes and functions in pickles.
#pragma once

#include <string>
#include <string_view>

namespace mica::io {

// Python's pickler writes a class under the name that it has in the running process. To write it under another, the
// pickler is told to treat it as a persistent object whose id is the string "module\nname"; here such ids become what a
// class is in a pickle. Ids that are no strings stay what they are.
std::string resolve_named_globals(std::string_view pickle);

}  // namespace mica::io
