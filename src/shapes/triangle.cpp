#include <algorithm>

#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::shapes {

namespace {

void triangle(Out& out, const char* op, const Tensor& self, int64_t diagonal, bool upper) {
  MICA_CHECK(self.dim() >= 2, op, ": input tensor must have at least 2 dimensions");
  const Tensor& result = out.set(self.sizes(), self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  // Kernels add the diagonal to a row's number, and that must not overflow. A diagonal beyond the corners changes
  // nothing.
  const int64_t inside = std::clamp(diagonal, -self.size(-2), self.size(-1));
  MICA_KERNEL(self.device(), triangle)(result.view_of(), self.view_of(), inside, upper);
}

}  // namespace

void tril(Out& out, const Tensor& self, int64_t diagonal) { triangle(out, "tril", self, diagonal, false); }
void triu(Out& out, const Tensor& self, int64_t diagonal) { triangle(out, "triu", self, diagonal, true); }

}  // namespace mica::shapes
