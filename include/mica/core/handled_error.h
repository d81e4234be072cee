// What a warning's handler asks: is it called about an error that is on its way?
#pragma once

namespace mica {

// Whether this thread is in a handler of an exception of the library. Only the library can tell: where the C++ runtime
// is linked statically, other libraries have one of their own, which knows of no exception.
bool handles_error();

}  // namespace mica
