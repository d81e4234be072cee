// Maps to orthogonal matrices, and what inverts them.
#include <cmath>

#include "core/kernel_arguments.h"
#include "linalg/householder.h"
#include "mica/core/grad_mode.h"
#include "mica/generated/layers/linear_layers_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

namespace {

void check_matrices(const char* op, const Tensor& t) {
  MICA_CHECK(t.dim() >= 2, op, ": expected a matrix or a batch of matrices, but got ", t.sizes());
  MICA_CHECK_KIND(t.dtype() == DType::Float32 || t.dtype() == DType::Float64, NotImplemented, op,
                  ": not implemented for '", info(t.dtype()).legacy, "'");
}

void check_square(const char* op, const Tensor& t) {
  check_matrices(op, t);
  MICA_CHECK(t.size(-1) == t.size(-2), op, ": expected square matrices, but got ", t.sizes());
}

// A batch of matrices as one dimension of them.
Tensor as_batch(const Tensor& t) { return t.reshape({-1, t.size(-2), t.size(-1)}); }

DimVector with_last(const Tensor& t, IntArrayRef last) {
  DimVector sizes;
  for (int64_t d = 0; d < t.dim() - 2; ++d) sizes.push_back(t.size(d));
  for (int64_t size : last) sizes.push_back(size);
  return sizes;
}

// Solves r x = b for upper triangular r, both float64.
void solve_upper(const Tensor& r, const Tensor& b) {
  for (int64_t i = r.size(0) - 1; i >= 0; --i) {
    const Tensor row = b.select(0, i);
    row.div_(r.select(0, i).select(0, i));
    if (i > 0) b.narrow(0, 0, i).sub_(outer(r.select(1, i).narrow(0, 0, i), row));
  }
}

}  // namespace

std::tuple<Tensor, Tensor> _householder_reflections(const Tensor& self) {
  check_matrices("geqrf", self);
  NoGradGuard no_grad;
  const Tensor batch = as_batch(self);
  const Tensor packed = empty_like(batch, {}, MemoryFormat::Contiguous);
  const Tensor tau = empty({batch.size(0), batch.size(2)}, TensorOptions(self.dtype()).device(self.device()));
  for (int64_t i = 0; i < batch.size(0) && !self.is_meta(); ++i) {
    const Reflections found = householder_reflections(batch.select(0, i));
    packed.select(0, i).copy_(found.packed);
    tau.select(0, i).copy_(found.tau);
  }
  return {packed.view(self.sizes()), tau.view(with_last(self, {self.size(-1)}))};
}

Tensor _householder_columns(const Tensor& self, const Tensor& tau) {
  check_matrices("householder_product", self);
  const int64_t rows = self.size(-2), cols = self.size(-1);
  MICA_CHECK(rows >= cols, "householder_product: expected at least as many rows as columns, but got ", self.sizes());
  const Tensor identity = eye(rows, cols, TensorOptions(self.dtype()).device(self.device()));
  const Tensor vectors = add(self.tril(-1), identity);
  Tensor result = identity;
  for (int64_t i = cols - 1; i >= 0; --i) {
    const Tensor v = vectors.narrow(-1, i, 1);
    const Tensor scaled = mul(v, tau.narrow(-1, i, 1).unsqueeze(-1));
    result = sub(result, matmul(scaled, matmul(v.transpose(-2, -1), result)));
  }
  return result.expand(self.sizes());
}

// exp(a) = exp(a / 2^s)^(2^s): a series where its terms fall fast, then squares.
Tensor _exponential_of_matrix(const Tensor& self) {
  check_square("matrix_exp", self);
  int squarings = 0;
  if (has_work(self)) {
    NoGradGuard no_grad;
    const double norm = self.abs().sum(-2).max().to(DType::Float64).item().to_double();
    if (norm > 0.5 && std::isfinite(norm)) squarings = static_cast<int>(std::ceil(std::log2(norm / 0.5)));
  }
  const int terms = self.dtype() == DType::Float64 ? 17 : 10;  // 0.5^n / n! is below rounding
  const Tensor identity = eye(self.size(-1), TensorOptions(self.dtype()).device(self.device()));
  const Tensor scaled = squarings ? mul(self, std::ldexp(1.0, -squarings)) : self;
  Tensor result = add(identity, mul(scaled, 1.0 / terms));
  for (int n = terms - 1; n > 0; --n) result = add(identity, mul(matmul(scaled, result), 1.0 / n));
  for (int i = 0; i < squarings; ++i) result = matmul(result, result);
  return result;
}

Tensor _solve_square(const Tensor& self, const Tensor& other) {
  check_square("solve", self);
  MICA_CHECK(other.dim() == self.dim() && other.size(-2) == self.size(-1), "solve: expected right-hand sides of ",
             self.size(-1), " rows, but got ", other.sizes());
  const Tensor left = as_batch(self), right = as_batch(other);
  const Tensor result = empty_like(right, {}, MemoryFormat::Contiguous);
  for (int64_t i = 0; i < left.size(0) && !self.is_meta(); ++i) {
    const auto [q, r] = householder_qr(left.select(0, i));
    const Tensor solution = mm(q.t(), right.select(0, i).to(DType::Float64));
    solve_upper(r, solution);
    result.select(0, i).copy_(solution);
  }
  return result.view(other.sizes());
}

}  // namespace mica::composite
