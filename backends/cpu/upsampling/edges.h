// Where the elements of a padded dimension come from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mica::cpu {

// An output of `out` elements that begins `before` elements ahead of the input. What a negative growth takes away is no
// part of the circle.
inline std::vector<int64_t> edge_sources(std::string_view mode, int64_t in, int64_t out, int64_t before) {
  std::vector<int64_t> sources(static_cast<size_t>(out));
  const int64_t first = std::max<int64_t>(-before, 0), behind = out - in - before;
  const int64_t circle = std::max<int64_t>(in - first + std::min<int64_t>(behind, 0), 1);
  for (int64_t o = 0; o < out; ++o) {
    const int64_t i = o - before;
    if (mode == "replicate") {
      sources[o] = std::clamp<int64_t>(i, 0, in - 1);
    } else if (mode == "reflect") {
      sources[o] = i < 0 ? -i : i >= in ? 2 * (in - 1) - i : i;
    } else {
      sources[o] = std::min(first + ((i - first) % circle + circle) % circle, in - 1);
    }
  }
  return sources;
}

}  // namespace mica::cpu
