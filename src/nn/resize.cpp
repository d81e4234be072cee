#include "mica/nn/resize.h"

#include "mica/layers.h"
#include "nn/text.h"

namespace mica::nn {

#define MICA_PADDING(Name, mode) \
  Tensor Name##Impl::forward(const Tensor& x) { return pad(x, padding, mode); }
MICA_PADDING(ZeroPad1d, "constant")
MICA_PADDING(ZeroPad2d, "constant")
MICA_PADDING(ZeroPad3d, "constant")
MICA_PADDING(ReflectionPad1d, "reflect")
MICA_PADDING(ReflectionPad2d, "reflect")
MICA_PADDING(ReflectionPad3d, "reflect")
MICA_PADDING(ReplicationPad1d, "replicate")
MICA_PADDING(ReplicationPad2d, "replicate")
MICA_PADDING(ReplicationPad3d, "replicate")
MICA_PADDING(CircularPad1d, "circular")
MICA_PADDING(CircularPad2d, "circular")
MICA_PADDING(CircularPad3d, "circular")
#undef MICA_PADDING

#define MICA_CONSTANT_PADDING(Name)                                                          \
  Tensor Name##Impl::forward(const Tensor& x) { return pad(x, padding, "constant", value); } \
  std::string Name##Impl::extra_repr() const { return cat("padding=", tuple_text(padding), ", value=", number(value)); }
MICA_CONSTANT_PADDING(ConstantPad1d)
MICA_CONSTANT_PADDING(ConstantPad2d)
MICA_CONSTANT_PADDING(ConstantPad3d)
#undef MICA_CONSTANT_PADDING

Tensor UpsampleImpl::forward(const Tensor& x) {
  std::optional<IntArrayRef> size;
  std::optional<ArrayRef<double>> scale;
  if (options.size) size = options.size->ref();
  if (options.scale_factor) scale = ArrayRef<double>(*options.scale_factor);
  return interpolate(x, size, scale, options.mode, options.align_corners);
}

Tensor PixelShuffleImpl::forward(const Tensor& x) { return pixel_shuffle(x, upscale_factor); }
std::string PixelShuffleImpl::extra_repr() const { return cat("upscale_factor=", upscale_factor); }
Tensor PixelUnshuffleImpl::forward(const Tensor& x) { return pixel_unshuffle(x, downscale_factor); }
std::string PixelUnshuffleImpl::extra_repr() const { return cat("downscale_factor=", downscale_factor); }
Tensor ChannelShuffleImpl::forward(const Tensor& x) { return channel_shuffle(x, groups); }
std::string ChannelShuffleImpl::extra_repr() const { return cat("groups=", groups); }

Tensor UnfoldImpl::forward(const Tensor& x) {
  return im2col(x, kernel_size, options.dilation.expand(2, "dilation"), options.padding.expand(2, "padding"),
                options.stride.expand(2, "stride"));
}
Tensor FoldImpl::forward(const Tensor& x) {
  return col2im(x, output_size, kernel_size, options.dilation.expand(2, "dilation"),
                options.padding.expand(2, "padding"), options.stride.expand(2, "stride"));
}

Tensor CosineSimilarityImpl::forward(const Tensor& x1, const Tensor& x2) { return cosine_similarity(x1, x2, dim, eps); }
Tensor PairwiseDistanceImpl::forward(const Tensor& x1, const Tensor& x2) {
  return pairwise_distance(x1, x2, p, eps, keepdim);
}

}  // namespace mica::nn
