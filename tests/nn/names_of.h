// The names of parameters or buffers, in their order.
#pragma once

#include <string>
#include <vector>

#include "mica/nn.h"

namespace mica::testing {

using Names = std::vector<std::string>;

inline Names names_of(const NamedTensors& named) {
  Names names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}

}  // namespace mica::testing
