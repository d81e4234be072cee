// What to write instead, for the errors that people meet most.
#pragma once

#include <string>
#include <string_view>

#include "mica/dtype.h"

namespace mica {

const char* cpp_name(DType t);  // the C++ type that torch names in some of its messages: "float", "c10::Half"

// A sentence to follow the message, told by the words it begins with; empty for a message that is not known here.
std::string advice_for(std::string_view message);

}  // namespace mica
