#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "shapes/reduced_dims.h"

namespace mica::shapes {

namespace {

// The dtype of a running sum or product: integers would overflow in their own dtype. An out= or self that is written
// decides where it is given.
DType running_dtype(const Out& out, const Tensor& self, std::optional<DType> dtype) {
  if (dtype) return *dtype;
  if (out.defined_given()) return *out.given_dtype();
  return is_integral(self.dtype()) || self.dtype() == DType::Bool ? DType::Int64 : self.dtype();
}

struct Prepared {
  Tensor input;
  int64_t dim;
};

Prepared prepare(Out& out, const Tensor& self, int64_t dim, DType dtype) {
  const int64_t d = wrap_dim(dim, self.dim());
  out.set(self.sizes(), dtype, self.device());
  return {out.needs_kernel() && self.dtype() != dtype ? self.to(dtype) : self, d};
}

Prepared prepare_extremum(Out& values, Out& indices, const Tensor& self, int64_t dim) {
  MICA_CHECK_KIND(self.dim() > 0 || dim == 0 || dim == -1, Index,
                  "cummax(), cummin(): Expected reduction dim -1 or 0 for scalar but got ", dim);
  const Prepared p = prepare(values, self, dim, self.dtype());
  indices.set(self.sizes(), DType::Int64, self.device());
  return p;
}

}  // namespace

void cumsum(Out& out, const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  const Prepared p = prepare(out, self, dim, running_dtype(out, self, dtype));
  if (out.needs_kernel()) MICA_KERNEL(self.device(), cumsum)(out.tensor().view_of(), p.input.view_of(), p.dim);
}

void cumprod(Out& out, const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  const Prepared p = prepare(out, self, dim, running_dtype(out, self, dtype));
  if (out.needs_kernel()) MICA_KERNEL(self.device(), cumprod)(out.tensor().view_of(), p.input.view_of(), p.dim);
}

void logcumsumexp(Out& out, const Tensor& self, int64_t dim) {
  if (!is_floating(self.dtype()) && !self.is_complex()) unsupported_dtype("logcumsumexp_out_cpu", self.dtype());
  const Prepared p = prepare(out, self, dim, self.dtype());
  if (out.needs_kernel()) MICA_KERNEL(self.device(), logcumsumexp)(out.tensor().view_of(), p.input.view_of(), p.dim);
}

void cummax(Out& values, Out& indices, const Tensor& self, int64_t dim) {
  const Prepared p = prepare_extremum(values, indices, self, dim);
  if (!values.needs_kernel()) return;
  MICA_KERNEL(self.device(), cummax)(values.tensor().view_of(), indices.tensor().view_of(), p.input.view_of(), p.dim);
}

void cummin(Out& values, Out& indices, const Tensor& self, int64_t dim) {
  const Prepared p = prepare_extremum(values, indices, self, dim);
  if (!values.needs_kernel()) return;
  MICA_KERNEL(self.device(), cummin)(values.tensor().view_of(), indices.tensor().view_of(), p.input.view_of(), p.dim);
}

}  // namespace mica::shapes
