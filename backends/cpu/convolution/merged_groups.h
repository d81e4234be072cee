// Groups that are too narrow for vectors. Several of them are taken as one wider group, whose other weights are zeros.
// That makes more products, but all of them in full vectors.
#pragma once

#include <optional>

#include "backends/cpu/convolution/correlation.h"

namespace mica::cpu::convolution {

class MergedGroups {
 public:
  // Copies the weight if `with_weight`. Otherwise the merged weight is left for a gradient to be written to.
  MergedGroups(const Correlation& c, bool with_weight);

  const Correlation& correlation() const { return merged_; }
  float* weight() const { return weight_ ? weight_->as<float>() : nullptr; }
  bool any() const { return count_ > 1; }
  // Copies from the merged weight to the groups' own one.
  void extract(float* weight) const;

 private:
  template <class Move>
  void for_each_weight(const Move& move) const;

  Correlation original_, merged_;
  int64_t count_ = 1;
  std::optional<Scratch> weight_;
};

}  // namespace mica::cpu::convolution
