// Where the LAPACK library comes from: see docs/backends.md.
#pragma once

#include <string>

namespace mica {

// A function that says the path of a library to try first (empty: none), asked when linear algebra first needs one.
void set_lapack_path_finder(std::string (*finder)());

}  // namespace mica
