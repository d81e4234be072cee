// Within compiled functions, images that only convolutions and what follows them read have their channels side by side
// in memory: [image][position][channel]. Their tensors say nothing of it: they have one channel after the other.
// Whoever else asks for the memory gets it in that order (src/compiler/interleaved_memory.h). The CPU's backend defines
// the functions, but for compute_interleaved().
#pragma once

#include <cstdint>

#include "mica/backend/tensor_view.h"
#include "mica/core/array_ref.h"
#include "mica/core/storage.h"
#include "mica/parallel.h"
#include "mica/tensor.h"

namespace mica::recording {

// The sizes of images whose channels lie side by side.
struct Interleaving {
  int64_t images = 0, channels = 0, positions = 0;  // no channels: these are no such images
  explicit operator bool() const { return channels > 0; }
  friend bool operator==(const Interleaving&, const Interleaving&) = default;
};

// Whether the convolution is faster with images whose channels lie side by side, and then has the same bits. It takes
// such an input, gives such a result, or does both. The views have the tensors' strides, and may have no memory.
bool computes_interleaved(const TensorView& out, const TensorView& input, const TensorView& weight, IntArrayRef stride,
                          IntArrayRef padding, IntArrayRef dilation, int64_t groups);

// Whether this processor has such convolutions.
bool has_interleaved_convolutions();

// Lets a pool take such images and give such a result, for the convolutions behind it. Where the input lies
// interleaved, or is pending and can be computed so, `compute` runs on memory at storage()->address(), and the result
// lies interleaved afterwards. Otherwise nothing has run. Nobody may have the result yet, and no gradient may need the
// input.
bool compute_interleaved(const Tensor& result, const Tensor& input, FunctionRef<void()> compute);
// The same for storages: `how` the result lies. The input may still have to be settled where it returns false. No other
// thread puts the memory in order while `compute` runs.
bool compute_interleaved(const Storage& result, const StorageImpl& input, const Interleaving& how,
                         FunctionRef<void()> compute);

// to[channel][position] = from[position][channel] of an image, whose positions are `step` floats apart.
void separate_channels(const float* from, int64_t step, float* to, int64_t channels, int64_t positions);

// sums[channel] += the sum of the positions of such an image, added in the order in which a kernel adds positions that
// lie one after the other. Positions are `step` floats apart.
void sum_positions(const float* from, int64_t step, double* sums, int64_t channels, int64_t positions);

}  // namespace mica::recording
