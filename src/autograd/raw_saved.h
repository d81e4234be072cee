// The saved tensors of a node themselves, for programs that put hooks on one of them: x.grad_fn._raw_saved_self.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "mica/autograd.h"

namespace mica {

struct RawSaved {
  std::vector<SavedTensor*> tensors;  // they live as long as their node
  bool is_list = false;
};

// What a node has saved under a name; nothing where it has no tensor of that name.
std::optional<RawSaved> raw_saved_field(Node& node, std::string_view name);

}  // namespace mica
