// Adds advice to the errors that people meet most: what to write instead.
#pragma once

#include <string>
#include <string_view>

#include "mica/dtype.h"

namespace mica {

const char* cpp_name(DType t);  // the C++ type that torch names in some of its messages: "float", "c10::Half"

// The sentence that follows a message, found by the message's first words. Empty for a message that is not known here.
std::string advice_for(std::string_view message);

}  // namespace mica
