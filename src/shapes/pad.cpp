// Borders made of the tensor itself.
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/upsampling_implementations.h"
#include "mica/ops.h"
#include "shapes/volume.h"

namespace mica::shapes {

namespace {

// How far each of the last dimensions grows at its beginning: F.pad names the last one first.
DimVector growth_before(IntArrayRef pad) {
  DimVector before;
  for (size_t i = pad.size() / 2; i-- > 0;) before.push_back(pad[2 * i]);
  return before;
}

// "H: 3 W: 4"
std::string named_sizes(IntArrayRef sizes, int64_t n) {
  static constexpr const char* kNames[] = {"D", "H", "W"};
  std::string text;
  for (int64_t i = 0; i < n; ++i)
    text += mica::cat(i ? " " : "", kNames[3 - n + i], ": ", sizes[sizes.size() - static_cast<size_t>(n - i)]);
  return text;
}

void check_reflection(const Tensor& self, IntArrayRef pad, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t d = self.dim() - 1 - i, left = pad[2 * i], right = pad[2 * i + 1];
    MICA_CHECK(left < self.sizes()[d] && right < self.sizes()[d], "Argument #", 4 + 2 * i,
               ": Padding size should be less than the corresponding input dimension, but got: padding (", left, ", ",
               right, ") at dimension ", d, " of input ", self.sizes());
  }
}

void check_circle(const Tensor& self, IntArrayRef pad, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t size = self.sizes()[self.dim() - 1 - i], left = pad[2 * i], right = pad[2 * i + 1];
    MICA_CHECK(left <= size && right <= size, "Padding value causes wrapping around more than once. ", left, " and ",
               right, " are asked for, and the dimension has ", size, " elements");
    int64_t sum = 0;  // of numbers that may be as negative as int64 allows
    const bool leaves_some = __builtin_add_overflow(left, right, &sum) ? left > 0 : sum >= -size;
    MICA_CHECK(leaves_some, "Negative padding value is resulting in an empty dimension");
  }
}

}  // namespace

void _pad_edges(Out& out, const Tensor& self, IntArrayRef pad, std::string_view mode) {
  MICA_CHECK(pad.size() % 2 == 0, "Padding length must be divisible by 2");
  const int64_t n = static_cast<int64_t>(pad.size()) / 2, ndim = self.dim();
  MICA_CHECK_KIND(n >= 1 && n <= 3 && (ndim == n + 1 || ndim == n + 2), NotImplemented, "Padding size ", pad.size(),
                  " is not supported for ", ndim, "D input tensor.");
  const bool circular = mode == "circular";
  if (circular) {
    check_circle(self, pad, n);
  } else {
    for (int64_t d = ndim == n + 2 ? 1 : 0; d < ndim; ++d)
      MICA_CHECK(self.sizes()[d] != 0, "Expected ", n + 1, "D or ", n + 2,
                 "D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: ",
                 self.sizes());
  }
  if (mode == "reflect") check_reflection(self, pad, n);
  DimVector sizes(self.sizes());
  bool any = circular;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t d = ndim - 1 - i;
    MICA_CHECK(!__builtin_add_overflow(sizes[d], pad[2 * i], &sizes[d]) &&
                   !__builtin_add_overflow(sizes[d], pad[2 * i + 1], &sizes[d]),
               "padding ", pad, " of an input of ", self.sizes(), " is too large");
    any = any || sizes[d] >= 1;
  }
  MICA_CHECK(any, "input (", named_sizes(self.sizes(), n), ") is too small. Calculated output ", named_sizes(sizes, n));
  const bool last = !circular && prefers_channels_last(self, n);
  const Tensor& result = set_in_order(out, sizes, self.dtype(), self.device(), n, last);
  if (!out.needs_kernel()) return;
  const Tensor input = in_order(self, n, last);
  MICA_LAYER_KERNEL(self.device(), pad_edges)
  (Volume(result, n, last), Volume(input, n, last), mode, three(growth_before(pad), 0), last);
}

void _pad_edges_backward(Out& out, const Tensor& grad_output, IntArrayRef input_size, IntArrayRef pad,
                         std::string_view mode, bool channels_last) {
  const int64_t n = static_cast<int64_t>(pad.size()) / 2;
  const Tensor& result = set_in_order(out, input_size, grad_output.dtype(), grad_output.device(), n, channels_last);
  if (!out.needs_kernel()) return;
  if (grad_output.numel() == 0) {
    result.zero_();
    return;
  }
  const Tensor grad = in_order(grad_output, n, channels_last);
  MICA_LAYER_KERNEL(grad.device(), pad_edges_backward)
  (Volume(result, n, channels_last), Volume(grad, n, channels_last), mode, three(growth_before(pad), 0), channels_last);
}

}  // namespace mica::shapes
