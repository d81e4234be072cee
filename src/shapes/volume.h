// Images, volumes and sequences as the kernels of pooling and resampling see them: five dimensions (batch, channels,
// depth, height, width), dense, with either the channels or the width innermost in memory.
#pragma once

#include "core/channels_last.h"
#include "core/geometry.h"
#include "core/out.h"
#include "mica/tensor.h"

namespace mica::shapes {

// The memory format in which channels are innermost, or Contiguous where torch has none.
inline MemoryFormat channels_last_format(int64_t ndim, int64_t spatial_dims) {
  if (ndim == 4 && spatial_dims == 2) return MemoryFormat::ChannelsLast;
  if (ndim == 5 && spatial_dims == 3) return MemoryFormat::ChannelsLast3d;
  return MemoryFormat::Contiguous;
}

// Whether a tensor's order in memory asks for results with the channels innermost.
inline bool prefers_channels_last(IntArrayRef sizes, IntArrayRef strides, int64_t spatial_dims) {
  const MemoryFormat format = channels_last_format(static_cast<int64_t>(sizes.size()), spatial_dims);
  return format != MemoryFormat::Contiguous && has_channels_last_strides(sizes, strides);
}
inline bool prefers_channels_last(const Tensor& t, int64_t spatial_dims) {
  return prefers_channels_last(t.sizes(), t.strides(), spatial_dims);
}

inline Tensor in_order(const Tensor& t, int64_t spatial_dims, bool channels_last) {
  return channels_last ? t.contiguous(channels_last_format(t.dim(), spatial_dims)) : t.contiguous();
}

inline const Tensor& set_in_order(Out& out, IntArrayRef sizes, DType dtype, Device device, int64_t spatial_dims,
                                  bool channels_last) {
  if (!channels_last) return out.set(sizes, dtype, device);
  const MemoryFormat format = channels_last_format(static_cast<int64_t>(sizes.size()), spatial_dims);
  return out.set(sizes, dtype, device, memory_format_strides(sizes, format));
}

// A dense tensor of one to three spatial dimensions, with or without a batch, widened to five dimensions.
class Volume {
 public:
  Volume(const Tensor& t, int64_t spatial_dims, bool channels_last)
      : Volume(t.view_of(), t, spatial_dims, channels_last) {}
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;
  operator const TensorView&() const { return view_; }

  // The images of a tensor that lie interleaved, though its strides do not say so (core/interleaved.h).
  static Volume interleaved(const Tensor& t, int64_t spatial_dims) {
    TensorView memory;
    memory.numel = t.numel();
    memory.dtype = t.dtype();
    memory.device = t.device();
    memory.data = t.storage()->address();
    return {memory, t, spatial_dims, true};
  }

 private:
  Volume(const TensorView& memory, const Tensor& t, int64_t spatial_dims, bool channels_last) : view_(memory) {
    const int64_t ndim = t.dim();
    sizes_[0] = ndim == spatial_dims + 2 ? t.sizes()[0] : 1;
    sizes_[1] = t.sizes()[ndim - spatial_dims - 1];
    for (int64_t i = 0; i < 3; ++i) sizes_[4 - i] = i < spatial_dims ? t.sizes()[ndim - 1 - i] : 1;
    int64_t step = channels_last ? sizes_[1] : 1;
    for (int i = 4; i >= 2; --i) {
      strides_[i] = step;
      step *= sizes_[i];
    }
    strides_[1] = channels_last ? 1 : step;
    strides_[0] = sizes_[1] * sizes_[2] * sizes_[3] * sizes_[4];
    view_.sizes = sizes_;
    view_.strides = strides_;
    view_.ndim = 5;
  }

  int64_t sizes_[5], strides_[5];
  TensorView view_;
};

// Three numbers in the order depth, height, width; `missing` for the dimensions that are not there.
inline DimVector three(IntArrayRef values, int64_t missing) {
  DimVector all(3, missing);
  for (size_t i = 0; i < values.size(); ++i) all[3 - values.size() + i] = values[i];
  return all;
}

}  // namespace mica::shapes
