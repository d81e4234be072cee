// Moves between channels and space.
#include "core/geometry.h"
#include "mica/generated/layers/rearrange.h"
#include "mica/generated/layers/rearrange_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

namespace {

// A view (*, a, b, c, d, e) of the last three dimensions, permuted and joined again in the memory format of the input.
Tensor regrouped(const Tensor& self, std::initializer_list<int64_t> split, std::initializer_list<int64_t> order,
                 std::initializer_list<int64_t> joined) {
  const int64_t leading = self.dim() - 3;
  DimVector sizes, permutation, result;
  for (int64_t d = 0; d < leading; ++d) {
    sizes.push_back(self.sizes()[d]);
    permutation.push_back(d);
    result.push_back(self.sizes()[d]);
  }
  for (int64_t s : split) sizes.push_back(s);
  for (int64_t d : order) permutation.push_back(leading + d);
  for (int64_t s : joined) result.push_back(s);
  const Tensor moved = self.reshape(sizes).permute(permutation).reshape(result);
  const Tensor fresh = moved.storage() == self.storage() ? moved.clone() : moved;
  const MemoryFormat format = self.suggest_memory_format();
  // A single channel fits either way: a copy has the strides of its format.
  return format == MemoryFormat::ChannelsLast ? fresh.clone(format) : fresh;
}

}  // namespace

Tensor pixel_shuffle(const Tensor& self, int64_t upscale_factor) {
  MICA_CHECK(self.dim() >= 3, "pixel_shuffle expects input to have at least 3 dimensions, but got input with ",
             self.dim(), " dimension(s)");
  const int64_t r = upscale_factor;
  MICA_CHECK(r > 0, "pixel_shuffle expects a positive upscale_factor, but got ", r);
  const int64_t c = self.size(-3), h = self.size(-2), w = self.size(-1);
  int64_t area;
  MICA_CHECK_KIND(!__builtin_mul_overflow(r, r, &area), Value,
                  "upscale factor is too large, (upscale_factor)^2 overflowed: upscale_factor=", r);
  MICA_CHECK(c % area == 0,
             "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
             "but input.size(-3)=",
             c, " is not divisible by ", area);
  return regrouped(self, {c / area, r, r, h, w}, {0, 3, 1, 4, 2},
                   {c / area, count_elements({h, r}), count_elements({w, r})});
}

Tensor pixel_unshuffle(const Tensor& self, int64_t downscale_factor) {
  MICA_CHECK(self.dim() >= 3, "pixel_unshuffle expects input to have at least 3 dimensions, but got input with ",
             self.dim(), " dimension(s)");
  const int64_t r = downscale_factor;
  MICA_CHECK(r > 0, "pixel_unshuffle expects a positive downscale_factor, but got ", r);
  const int64_t c = self.size(-3), h = self.size(-2), w = self.size(-1);
  MICA_CHECK(h % r == 0, "pixel_unshuffle expects height to be divisible by downscale_factor, but input.size(-2)=", h,
             " is not divisible by ", r);
  MICA_CHECK(w % r == 0, "pixel_unshuffle expects width to be divisible by downscale_factor, but input.size(-1)=", w,
             " is not divisible by ", r);
  return regrouped(self, {c, h / r, r, w / r, r}, {0, 2, 4, 1, 3}, {count_elements({c, r, r}), h / r, w / r});
}

Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  MICA_CHECK(self.dim() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ", self.sizes());
  MICA_CHECK(groups > 0, "Number of groups to divide channels in must be positive. Value of groups:", groups);
  const int64_t channels = self.size(1);
  MICA_CHECK(channels % groups == 0, "Number of channels must be divisible by groups. Got ", channels, " channels and ",
             groups, " groups.");
  DimVector split(self.sizes());
  split[1] = groups;
  split.insert(2, channels / groups);
  const Tensor moved = self.reshape(split).transpose(1, 2).reshape(self.sizes());
  const Tensor fresh = moved.storage() == self.storage() ? moved.clone() : moved;
  const MemoryFormat format = self.suggest_memory_format();
  return format == MemoryFormat::Contiguous ? fresh : fresh.contiguous(format);
}

Tensor native_channel_shuffle(const Tensor& self, int64_t groups) { return mica::channel_shuffle(self, groups); }

}  // namespace mica::composite
