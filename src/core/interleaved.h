// Within compiled functions, images that only convolutions and what follows them read have their channels side by side
// in memory: [image][position][channel]. Their tensors say nothing of it: they have one channel after the other.
// Whoever else asks for the memory gets it in that order (src/compiler/interleaved_memory.h). The CPU's backend defines
// the functions.
#pragma once

#include <cstdint>

#include "mica/backend/tensor_view.h"
#include "mica/core/array_ref.h"

namespace mica::recording {

// The sizes of images whose channels lie side by side.
struct Interleaving {
  int64_t images = 0, channels = 0, positions = 0;  // no channels: these are no such images
  explicit operator bool() const { return channels > 0; }
  friend bool operator==(const Interleaving&, const Interleaving&) = default;
};

// Whether the convolution is faster with images whose channels lie side by side, and then has the same bits. The views
// have the tensors' strides, and may have no memory.
bool computes_interleaved(const TensorView& out, const TensorView& input, const TensorView& weight, IntArrayRef stride,
                          IntArrayRef padding, IntArrayRef dilation, int64_t groups);

// to[image][channel][position] = from[image][position][channel]
void separate_channels(const float* from, float* to, const Interleaving& how);

}  // namespace mica::recording
