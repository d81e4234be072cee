// Attention of few queries on a device whose backend computes it between other kernels of a recording.
#pragma once

#include <optional>
#include <vector>

#include "compiler/fused_loop.h"

namespace mica::recording {

inline constexpr int kQuery = 2, kKey = 3, kValue = 4, kMask = 5;  // operands of an Attention call

// Whether the backend computes attention whose operands lie as the call says. Of addresses it learns the alignment.
bool is_taken(const Call& attention);

// Where the calls that run directly before attention write its keys and its values: at a place that an index names.
// Null: they write none.
struct NewKeys {
  const Operand *key_index = nullptr, *value_index = nullptr;
};

// Finds that out. Returns nothing where the calls may write other keys or values, or an index.
std::optional<NewKeys> find_new_keys(const Call& attention, const std::vector<const Call*>& before);

// `found`: keys that are not new may be read before the calls that write the new ones have ended.
void run_attention(const Call& call, const std::vector<Slot>& slots, const std::optional<NewKeys>& found);

}  // namespace mica::recording
