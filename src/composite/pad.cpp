// Borders around the last dimensions.
#include "core/geometry.h"
#include "mica/generated/implementations.h"
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
    sizes[d] = self.size(d) + left + right;
    MICA_CHECK(sizes[d] >= 0, "The input size ", self.size(d), ", plus negative padding ", left, " and ", right,
               " resulted in a negative output size, which is invalid. Check dimension ", d, " of your input.");
    const int64_t from = left < 0 ? -left : 0, to = self.size(d) + (right < 0 ? right : 0);
    inner = slice(inner, d, from, std::max(from, to));
  }
  Tensor result = mica::full(sizes, value, self.options());
  Tensor target = result;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t d = n - 1 - i, left = std::max<int64_t>(pad[2 * i], 0);
    target = slice(target, d, left, left + inner.size(d));
  }
  target.copy_(inner);
  return result;
}

namespace {

// Where each element of a padded dimension comes from.
Tensor source_index(std::string_view mode, int64_t n, int64_t left, int64_t right, Device device) {
  const Tensor index = mica::empty(n + left + right, TensorOptions(DType::Int64));
  auto* at = index.data_ptr<int64_t>();
  for (int64_t i = 0; i < index.numel(); ++i) {
    int64_t s = i - left;
    if (mode == "replicate") {
      s = s < 0 ? 0 : s >= n ? n - 1 : s;
    } else if (mode == "reflect") {
      s = s < 0 ? -s : s >= n ? 2 * (n - 1) - s : s;
    } else {
      s = (s % n + n) % n;
    }
    at[i] = s;
  }
  return index.to(TensorOptions(device));
}

}  // namespace

Tensor pad(const Tensor& self, IntArrayRef pad, std::string_view mode, std::optional<double> value) {
  if (mode == "constant") return mica::constant_pad_nd(self, pad, value.value_or(0));
  MICA_CHECK(!value || *value == 0, "Padding mode \"", mode, "\" doesn't take in value argument");
  MICA_CHECK_KIND(mode == "reflect" || mode == "replicate" || mode == "circular", NotImplemented,
                  "Unrecognised padding mode ", mode);
  const int64_t count = static_cast<int64_t>(pad.size()) / 2;
  MICA_CHECK_KIND(
      pad.size() % 2 == 0 && count >= 1 && count <= 3 && (self.dim() == count + 1 || self.dim() == count + 2),
      NotImplemented, "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now: the last ", count,
      " dimensions of a ", self.dim(), "-D tensor were asked for");
  for (int64_t i = 0; i < count; ++i) {
    const int64_t d = self.dim() - 1 - i, n = self.size(d), left = pad[2 * i], right = pad[2 * i + 1];
    MICA_CHECK(mode != "reflect" || (left < n && right < n),
               "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding (",
               left, ", ", right, ") at dimension ", d, " of input ", self.sizes());
    MICA_CHECK(mode != "circular" || (left <= n && right <= n), "Padding value causes wrapping around more than once.");
    MICA_CHECK(n + left + right >= 1 && n > 0, "input (W: ", n,
               ") is too small. Calculated output W: ", n + left + right);
  }
  Tensor result = self;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t d = self.dim() - 1 - i;
    if (pad[2 * i] == 0 && pad[2 * i + 1] == 0) continue;
    result = result.index_select(d, source_index(mode, self.size(d), pad[2 * i], pad[2 * i + 1], self.device()));
  }
  return result.is_same(self) ? self.clone() : result;
}

}  // namespace mica::composite
