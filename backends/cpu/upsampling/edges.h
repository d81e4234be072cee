// Where the elements of a padded dimension come from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mica::cpu {

inline std::vector<int64_t> edge_sources(std::string_view mode, int64_t in, int64_t out, int64_t before) {
  std::vector<int64_t> sources(static_cast<size_t>(out));
  for (int64_t o = 0; o < out; ++o) {
    const int64_t i = o - before;
    if (mode == "replicate") {
      sources[o] = std::clamp<int64_t>(i, 0, in - 1);
    } else if (mode == "reflect") {
      sources[o] = i < 0 ? -i : i >= in ? 2 * (in - 1) - i : i;
    } else {
      sources[o] = (i % in + in) % in;
    }
  }
  return sources;
}

}  // namespace mica::cpu
