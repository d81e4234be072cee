#pragma once

#include <cstdint>
#include <optional>

#include "mica/generator.h"

namespace mica::data {

// The number that Python's torch.empty((), dtype=torch.int64).random_(generator=generator) draws.
uint64_t random_seed(const std::optional<Generator>& generator);

}  // namespace mica::data
