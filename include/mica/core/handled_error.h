// Lets the handler of a warning ask whether it is called while an error is on its way.
#pragma once

namespace mica {

// Whether this thread is in a handler of an exception of the library. Only the library itself can tell: another library
// that links the C++ runtime statically has a runtime of its own, which does not know our exceptions.
bool handles_error();

}  // namespace mica
