// Borders around the last dimensions.
#include "core/geometry.h"
#include "mica/backend/kernel_types.h"
#include "mica/autocast.h"
#include "mica/generated/implementations.h"
#include "mica/generated/layers/upsampling.h"
#include "mica/ops.h"

namespace mica::composite {

Tensor constant_pad_nd(const Tensor& self, IntArrayRef pad, const Scalar& value) {
  MICA_CHECK(pad.size() % 2 == 0, "Length of pad must be even but instead it equals ", pad.size());
  const int64_t count = static_cast<int64_t>(pad.size()) / 2, n = self.dim();
  MICA_CHECK(count <= n,
             "Length of pad should be no more than twice the number of dimensions of the input. Pad length is ",
             pad.size(), "while the input has ", n, "dimensions.");
  Tensor inner = self;
  DimVector sizes(self.sizes());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t d = n - 1 - i, left = pad[2 * i], right = pad[2 * i + 1];
    MICA_CHECK(
        !__builtin_add_overflow(self.size(d), left, &sizes[d]) && !__builtin_add_overflow(sizes[d], right, &sizes[d]),
        "padding ", pad, " of an input of ", self.sizes(), " is too large");
    MICA_CHECK(sizes[d] >= 0, "The input size ", self.size(d), ", plus negative padding ", left, " and ", right,
               " resulted in a negative output size, which is invalid. Check dimension ", d, " of your input.");
    const int64_t from = left < 0 ? -left : 0, to = self.size(d) + (right < 0 ? right : 0);
    inner = slice(inner, d, from, std::max(from, to));
  }
  const MemoryFormat format = self.suggest_memory_format();
  const Tensor result = format == MemoryFormat::Contiguous ? new_full(self, sizes, value)
                                                           : mica::empty(sizes, self.options(), format).fill_(value);
  Tensor target = result;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t d = n - 1 - i, left = std::max<int64_t>(pad[2 * i], 0);
    target = slice(target, d, left, left + inner.size(d));
  }
  target.copy_(inner);
  return result;
}

Tensor pad(const Tensor& self, IntArrayRef pad, std::string_view mode, std::optional<double> value) {
  if (mode == "constant") return mica::constant_pad_nd(self, pad, value.value_or(0));
  MICA_CHECK(!value || *value == 0, "Padding mode \"", mode, "\" doesn't take in value argument");
  MICA_CHECK_KIND(mode == "reflect" || mode == "replicate" || mode == "circular", NotImplemented,
                  "Unrecognised padding mode ", mode);
  if (mode != "circular" && self.dtype() == DType::Bool)
    unsupported_dtype(cat(mode == "reflect" ? "reflection_pad" : "replication_pad", pad.size() / 2, "d").c_str(),
                      self.dtype());
  // Autocast follows torch's separate operations: all of them are cast but circular padding and reflections of volumes.
  using autocast::Policy;
  const bool widens = mode == "replicate" || (mode == "reflect" && pad.size() < 6);
  const autocast::Cast cast(thread_modes & mode_bit::kAutocast && widens ? Policy::Float32 : Policy::None, Policy::None,
                            self);
  return mica::_pad_edges(cast.active() ? cast(self) : self, pad, mode);
}

}  // namespace mica::composite
