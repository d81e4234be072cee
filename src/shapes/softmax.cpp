#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/recorded_rows.h"
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
  bool direct;  // whether the output is contiguous too, as the kernel wants it
};

Prepared prepare(Out& out, const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  const int64_t d = wrap_dim(dim, self.dim());
  const DType computed = dtype.value_or(self.dtype());
  check_out_dtype(out, computed);
  const recording::Promises promised(recording::rows_may_wait(self));
  const Tensor& target = out.set(self.sizes(), computed, self.device());
  if (!out.needs_kernel()) return {self, d, true};
  const Tensor input = self.dtype() == computed ? self : self.to(computed);
  return {input.contiguous(), d, target.is_contiguous()};
}

using SoftmaxKernel = void(const TensorView& out, const TensorView& self, int64_t dim);

void run(const char* name, Out& out, const Prepared& p, SoftmaxKernel* kernel) {
  if (!out.needs_kernel()) return;
  // Along the last dimension every row is computed by itself, so a compiled function computes it together with what is
  // around it.
  if (p.direct && p.dim + 1 == p.input.dim() &&
      recording::put_off(name, {&out.tensor()}, {&p.input}, static_cast<int>(p.dim),
                         [kernel, d = p.dim](const TensorView* v, int dropped) { kernel(v[0], v[1], d - dropped); }))
    return;
  if (p.direct) return kernel(out.tensor().view_of(), p.input.view_of(), p.dim);
  const Tensor dense = empty_like(p.input);
  kernel(dense.view_of(), p.input.view_of(), p.dim);
  out.tensor().copy_(dense);
}

}  // namespace

void softmax(Out& out, const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  const Prepared p = prepare(out, self, dim, dtype);
  if (out.needs_kernel()) run("softmax", out, p, MICA_KERNEL(self.device(), softmax));
}

void log_softmax(Out& out, const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  const Prepared p = prepare(out, self, dim, dtype);
  if (out.needs_kernel()) run("log_softmax", out, p, MICA_KERNEL(self.device(), log_softmax));
}

}  // namespace mica::shapes
