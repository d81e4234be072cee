// The functions of ptx/functions.cu, as the text that they were translated to.
#pragma once

#include <string>
#include <string_view>

namespace mica::cuda {

extern const char kFunctionsText[];  // made when the library is built

struct DeviceFunction {
  std::string name;
  int arguments;
  std::string body;  // between its braces
  std::string text;  // all of it
  bool called;       // it is long: called instead of written out
};

const DeviceFunction& device_function(std::string_view name);
std::string_view device_constants();  // what functions refer to

// The function's instructions on the registers that are named; `instance` makes its labels differ from others'.
std::string written_out(const DeviceFunction& f, const std::string* arguments, const std::string& result, int instance);

}  // namespace mica::cuda
