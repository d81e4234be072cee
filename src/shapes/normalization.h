// The layouts in which normalisations by channel, and their derivatives, see their input.
#pragma once

#include "mica/tensor.h"

namespace mica::shapes {

// (batch, channels, ...) as contiguous (outer, channels, inner) in the order of memory: a channels_last tensor is
// (batch * places, channels, 1).
struct ChannelLayout {
  explicit ChannelLayout(const Tensor& input);
  Tensor of(const Tensor& t) const;  // a tensor of the input's shape in this order, copied where its memory is not
  DimVector strides;                 // the strides of a result in this order
  int64_t outer = 1, channels = 1, inner = 1;
  MemoryFormat format = MemoryFormat::Contiguous;
};

}  // namespace mica::shapes
