#include "backends/cpu/convolution/merged_groups.h"

#include <algorithm>

#include "backends/cpu/convolution/parts.h"

namespace mica::cpu::convolution {

namespace {

constexpr int64_t kWidth = 16;  // the filters and channels of a merged group

}  // namespace

MergedGroups::MergedGroups(const Correlation& c, bool with_weight) : original_(c), merged_(c) {
  const int64_t widest = std::max(c.channels, c.filters);
  for (int64_t k = 2; k <= c.groups && k * widest <= kWidth; ++k)
    if (c.groups % k == 0) count_ = k;
  if (count_ == 1) return;
  merged_.work = nullptr;  // another way may have to compute the whole result again
  const int64_t taps = c.kernel_y * c.kernel_x;
  merged_.groups = c.groups / count_;
  merged_.channels = c.channels * count_;
  merged_.filters = c.filters * count_;
  merged_.weight_x = 1;
  merged_.weight_y = c.kernel_x;
  merged_.weight_channel = taps;
  merged_.weight_filter = merged_.channels * taps;
  merged_.weight_group = merged_.filters * merged_.weight_filter;
  const int64_t size = merged_.groups * merged_.weight_group;
  weight_.emplace(bytes_of_floats(size));
  merged_.weight = weight_->as<float>();
  if (!with_weight) return;
  std::fill_n(weight_->as<float>(), size, 0.0f);
  for_each_weight([&](int64_t own, int64_t merged) { weight_->as<float>()[merged] = original_.weight[own]; });
}

template <class Move>
void MergedGroups::for_each_weight(const Move& move) const {
  const Correlation &c = original_, &m = merged_;
  for (int64_t g = 0; g < c.groups; ++g) {
    const int64_t place = g % count_;
    for (int64_t f = 0; f < c.filters; ++f) {
      for (int64_t ch = 0; ch < c.channels; ++ch) {
        const int64_t own = g * c.weight_group + f * c.weight_filter + ch * c.weight_channel;
        const int64_t merged = g / count_ * m.weight_group + (place * c.filters + f) * m.weight_filter +
                               (place * c.channels + ch) * m.weight_channel;
        for (int64_t y = 0; y < c.kernel_y; ++y)
          for (int64_t x = 0; x < c.kernel_x; ++x)
            move(own + y * c.weight_y + x * c.weight_x, merged + y * m.weight_y + x * m.weight_x);
      }
    }
  }
}

void MergedGroups::extract(float* weight) const {
  for_each_weight([&](int64_t own, int64_t merged) { weight[own] = weight_->as<float>()[merged]; });
}

}  // namespace mica::cpu::convolution
