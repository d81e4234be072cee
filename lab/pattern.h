// The text of an einsum equation or of an einops pattern, read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mica::lab {

// The dimensions of a tensor, each of them one axis or, in einops, several laid together; a dimension of none has
// size 1.
using Axes = std::vector<std::vector<std::string>>;

struct Pattern {
  std::vector<Axes> inputs;
  Axes output;
  bool einops = false;  // words between spaces, brackets; else every letter is an axis
};

// Refuses what is neither.
Pattern pattern_of(const std::string& text);

bool drops_axes(const Pattern& pattern);  // whether the result lacks one of the first operand's

// The call in Python that does the same.
std::string python_of(const Pattern& pattern, const std::string& text, const std::map<std::string, int64_t>& sizes,
                      const std::string& reduction);

}  // namespace mica::lab
