// rms_norm of one row of 16-bit floats as programs write it out: the row as float32, the mean of its squares,
// 1 / sqrt(mean + eps), the row times that, rounded to 16 bits, and times the weight.
#pragma once

#include <optional>
#include <vector>

#include "compiler/fused_loop.h"

namespace mica::recording {

struct WrittenNorm {
  const Call *widened, *mean, *shifted, *root;
  const Operand* weight;     // null: there is none
  const Operand* out;        // the normalised row
  std::vector<int> between;  // the slots of the rows that the program computes on the way

  const Operand& input() const { return widened->operands[1]; }
  // May have changed since the calls were found (take_numbers).
  float eps() const;
};

// The norm that these calls are, and nothing else.
std::optional<WrittenNorm> find_written_norm(const std::vector<const Call*>& calls);

}  // namespace mica::recording
