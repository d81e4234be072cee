// extension("query"): answers to questions that are rarely asked, by name.
#pragma once

#include <string>

namespace mica::cuda {

std::string query(const char* what, const char* argument, int index);

}  // namespace mica::cuda
