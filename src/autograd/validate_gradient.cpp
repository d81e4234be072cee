#include "autograd/metadata.h"
#include "mica/autograd.h"
#include "mica/core/dispatch.h"
#include "mica/ops.h"

namespace mica {

namespace {

// Whether a tensor of `from` can be expanded to `to`.
bool expandable(IntArrayRef from, IntArrayRef to) {
  if (from.size() > to.size()) return false;
  const size_t extra = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d)
    if (from[d] != 1 && from[d] != to[d + extra]) return false;
  return true;
}

std::string subject(const char* function, size_t index) {
  // The gradients with which a pass starts come from no function.
  return *function ? cat("Function ", function, " returned an invalid gradient at index ", index)
                   : cat("invalid gradient at index ", index);
}

void correct(const char* function, size_t index, Tensor& gradient, const InputMetadata& expected) {
  if (expected.dtype == DType::Undefined) return;
  if (gradient.sizes() != expected.sizes.ref()) {
    MICA_CHECK(expandable(expected.sizes, gradient.sizes()), subject(function, index), " - got ", gradient.sizes(),
               " but expected shape compatible with ", expected.sizes.ref());
    gradient = gradient.sum_to_size(expected.sizes);
  }
  const bool cast = expected.dtype != kAnyDType && gradient.dtype() != expected.dtype;
  if (cast && gradient.is_complex() && !is_complex(expected.dtype))
    gradient = view_as_real(resolve_conj(gradient)).select(-1, 0);
  // While a graph is made on fake tensors, those of the program that it reads are real.
  const bool fake = dispatch::active && gradient.is_meta();
  if (gradient.device() != expected.device && !fake) {
    MICA_CHECK(gradient.dim() == 0, subject(function, index), " - expected device ", expected.device, " but got ",
               gradient.device());
    gradient = gradient.to(expected.device);
  }
  if (cast) gradient = gradient.to(expected.dtype);
}

}  // namespace

void validate_gradient(const char* function, size_t index, Tensor& gradient, const InputMetadata& expected) {
  // Reads the geometry only: a sparse gradient has no memory of that shape.
  const TensorView& g = gradient.impl()->view;
  bool right =
      g.dtype == expected.dtype && g.device == expected.device && static_cast<size_t>(g.ndim) == expected.sizes.size();
  for (int32_t d = 0; right && d < g.ndim; ++d) right = g.sizes[d] == expected.sizes[d];
  if (!right) [[unlikely]]
    correct(function, index, gradient, expected);
}

}  // namespace mica
