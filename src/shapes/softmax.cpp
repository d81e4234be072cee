#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"
#include "shapes/reduced_dims.h"

namespace mica::shapes {

namespace {

// The contiguous input of a softmax kernel, converted, and its dimension.
struct Prepared {
  Tensor input;
  int64_t dim;
  bool direct;  // the output is contiguous too, as the kernel wants it
};

Prepared prepare(Out& out, const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  const int64_t d = wrap_dim(dim, self.dim());
  const DType computed = dtype.value_or(self.dtype());
  check_out_dtype(out, computed);
  const Tensor& target = out.set(self.sizes(), computed, self.device());
  if (!out.needs_kernel()) return {self, d, true};
  const Tensor input = self.dtype() == computed ? self : self.to(computed);
  return {input.contiguous(), d, target.is_contiguous()};
}

template <class Kernel>
void run(Out& out, const Prepared& p, Kernel kernel) {
  if (!out.needs_kernel()) return;
  if (p.direct) return kernel(out.tensor().view_of(), p.input.view_of(), p.dim);
  const Tensor dense = empty_like(p.input);
  kernel(dense.view_of(), p.input.view_of(), p.dim);
  out.tensor().copy_(dense);
}

}  // namespace

void softmax(Out& out, const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  run(out, prepare(out, self, dim, dtype), [&](const TensorView& result, const TensorView& input, int64_t d) {
    MICA_KERNEL(self.device(), softmax)(result, input, d);
  });
}

void log_softmax(Out& out, const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  run(out, prepare(out, self, dim, dtype), [&](const TensorView& result, const TensorView& input, int64_t d) {
    MICA_KERNEL(self.device(), log_softmax)(result, input, d);
  });
}

}  // namespace mica::shapes
