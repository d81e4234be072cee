#include "mica/nn/resize.h"

#include "mica/layers.h"

namespace mica::nn {

Tensor UpsampleImpl::forward(const Tensor& x) {
  std::optional<IntArrayRef> size;
  std::optional<ArrayRef<double>> scale;
  const size_t ndim = x.dim() > 2 ? static_cast<size_t>(x.dim()) - 2 : 1;
  const DimVector sizes = options.size ? options.size->expand(ndim, "size") : DimVector();
  std::vector<double> factors = options.scale_factor;
  if (factors.size() == 1) factors.assign(ndim, factors[0]);
  if (options.size) size = sizes.ref();
  if (!factors.empty()) scale = ArrayRef<double>(factors);
  return interpolate(x, size, scale, options.mode, options.align_corners, options.recompute_scale_factor);
}
std::string UpsampleImpl::extra_repr() const {
  std::string text;
  if (options.scale_factor.empty()) {
    text = cat("size=", options.size ? options.size->text() : "None");
  } else if (options.scale_factor.size() == 1) {
    text = cat("scale_factor=", options.scale_factor[0]);
  } else {
    for (const double factor : options.scale_factor) text += (text.empty() ? "" : ", ") + cat(factor);
    text = cat("scale_factor=(", text, ")");
  }
  return cat(text, ", mode='", options.mode, "'");
}

static UpsampleOptions in_mode(UpsampleOptions options, const char* mode, std::optional<bool> align_corners) {
  options.mode = mode;
  options.align_corners = align_corners;
  return options;
}
UpsamplingNearest2dImpl::UpsamplingNearest2dImpl(Options options)
    : UpsampleImpl(in_mode(std::move(options), "nearest", {})) {}
UpsamplingBilinear2dImpl::UpsamplingBilinear2dImpl(Options options)
    : UpsampleImpl(in_mode(std::move(options), "bilinear", true)) {}

Tensor PixelShuffleImpl::forward(const Tensor& x) { return pixel_shuffle(x, upscale_factor); }
Tensor PixelUnshuffleImpl::forward(const Tensor& x) { return pixel_unshuffle(x, downscale_factor); }
Tensor ChannelShuffleImpl::forward(const Tensor& x) { return channel_shuffle(x, groups); }

static std::string text_of(const UnfoldOptions& o) {
  return cat(", dilation=", o.dilation, ", padding=", o.padding, ", stride=", o.stride);
}
Tensor UnfoldImpl::forward(const Tensor& x) {
  return im2col(x, kernel_size.expand(2, "kernel_size"), options.dilation.expand(2, "dilation"),
                options.padding.expand(2, "padding"), options.stride.expand(2, "stride"));
}
std::string UnfoldImpl::extra_repr() const { return cat("kernel_size=", kernel_size, text_of(options)); }
Tensor FoldImpl::forward(const Tensor& x) {
  return col2im(x, output_size.expand(2, "output_size"), kernel_size.expand(2, "kernel_size"),
                options.dilation.expand(2, "dilation"), options.padding.expand(2, "padding"),
                options.stride.expand(2, "stride"));
}
std::string FoldImpl::extra_repr() const {
  return cat("output_size=", output_size, ", kernel_size=", kernel_size, text_of(options));
}

}  // namespace mica::nn
