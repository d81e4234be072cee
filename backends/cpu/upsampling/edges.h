// Finds where the elements of a padded dimension come from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mica::cpu {

// The sources of an output of `out` elements that begins `before` elements ahead of the input. Elements that a negative
// padding cuts off do not belong to the circle.
class EdgeSources {
 public:
  EdgeSources(std::string_view mode, int64_t in, int64_t out, int64_t before)
      : mode_(mode == "replicate" ? Mode::Replicate
              : mode == "reflect" ? Mode::Reflect
                                  : Mode::Circle),
        in_(in),
        before_(before),
        first_(std::max<int64_t>(-before, 0)),
        circle_(std::max<int64_t>(in - first_ + std::min<int64_t>(out - in - before, 0), 1)) {}
  int64_t operator[](int64_t o) const {
    const int64_t i = o - before_;
    switch (mode_) {
      case Mode::Replicate:
        return std::clamp<int64_t>(i, 0, in_ - 1);
      case Mode::Reflect:
        return i < 0 ? -i : i >= in_ ? 2 * (in_ - 1) - i : i;
      default:
        return std::min(first_ + ((i - first_) % circle_ + circle_) % circle_, in_ - 1);
    }
  }

 private:
  enum class Mode { Replicate, Reflect, Circle } mode_;
  int64_t in_, before_, first_, circle_;
};

inline std::vector<int64_t> edge_sources(std::string_view mode, int64_t in, int64_t out, int64_t before) {
  const EdgeSources source(mode, in, out, before);
  std::vector<int64_t> sources(static_cast<size_t>(out));
  for (int64_t o = 0; o < out; ++o) sources[static_cast<size_t>(o)] = source[o];
  return sources;
}

}  // namespace mica::cpu
