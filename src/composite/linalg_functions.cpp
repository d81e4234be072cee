// Pseudo-inverses, ranks, condition numbers, exponentials and powers of matrices.
#include <cmath>
#include <limits>
#include <vector>

#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "linalg/matrices.h"
#include "mica/generated/layers/decompositions.h"
#include "mica/generated/layers/linalg.h"
#include "mica/generated/layers/linear_systems.h"
#include "mica/generated/layers/linear_systems_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

using namespace linalg_rules;  // NOLINT

namespace {

double epsilon_of(DType dtype) {
  return to_real(dtype) == DType::Float64 ? std::numeric_limits<double>::epsilon()
                                          : double(std::numeric_limits<float>::epsilon());
}

Tensor real_scalar(const Tensor& like, double value) {
  return full({}, Scalar(value), like.options().dtype(to_real(like.dtype())));
}

// Both tolerances as tensors: without either, the relative one follows from the precision and the size.
std::pair<Tensor, Tensor> tolerances(const Tensor& a, const Tensor& atol, const Tensor& rtol) {
  const double usual = epsilon_of(a.dtype()) * static_cast<double>(std::max(a.size(-1), a.size(-2)));
  const Tensor absolute = atol.defined() ? atol : real_scalar(a, 0);
  if (rtol.defined()) return {absolute, rtol};
  const Tensor relative = real_scalar(a, usual);
  return {absolute, atol.defined() ? where(gt(absolute, Scalar(0)), zeros_like(relative), relative) : relative};
}

Tensor optional_scalar(const Tensor& like, std::optional<double> value) {
  return value ? real_scalar(like, *value) : Tensor();
}

void check_pinv(const Tensor& a) {
  const bool taken = a.dim() >= 2 && (a.dtype() == DType::Float32 || a.dtype() == DType::Float64 ||
                                      a.dtype() == DType::Complex64 || a.dtype() == DType::Complex128);
  MICA_CHECK(
      taken, "linalg.pinv(", info(a.dtype()).legacy, "{", a.sizes(),
      "}): expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types, but its dtype is ",
      a.dtype());
}

}  // namespace

// ---- pseudo-inverses

Tensor _linalg_pinv(const Tensor& self, const Tensor& atol, const Tensor& rtol, bool hermitian) {
  if (self.numel() == 0) {
    DimVector sizes = with_sizes(batch_sizes(self), {self.size(-1), self.size(-2)});
    return empty(sizes, self.options());
  }
  const auto inverted = [&](const Tensor& values, const Tensor& largest) {
    const Tensor limit =
        maximum(atol.unsqueeze(-1).to(values.dtype()), rtol.unsqueeze(-1).to(values.dtype()) * largest);
    return where(gt(values.abs(), limit), values.reciprocal(), zeros_like(values));
  };
  if (hermitian) {
    const auto [values, vectors] = mica::linalg_eigh(self, "L");
    const Tensor scaled = vectors * inverted(values, values.abs().amax(-1, true)).to(self.dtype()).unsqueeze(-2);
    return matmul(scaled, vectors.mH());
  }
  const auto [u, s, vh] = mica::_linalg_svd(self, false, true, std::nullopt);
  return matmul(vh.mH() * inverted(s, s.narrow(-1, 0, 1)).to(self.dtype()).unsqueeze(-2), u.mH());
}

Tensor linalg_pinv(const Tensor& self, const Tensor& atol, const Tensor& rtol, bool hermitian) {
  check_pinv(self);
  MICA_CHECK(!(atol.defined() && atol.is_complex()),
             "torch.linalg.pinv: atol tensor of complex type is not supported. Got ",
             atol.defined() ? info(atol.dtype()).legacy : "");
  MICA_CHECK(!(rtol.defined() && rtol.is_complex()),
             "torch.linalg.pinv: rtol tensor of complex type is not supported. Got ",
             rtol.defined() ? info(rtol.dtype()).legacy : "");
  const auto [absolute, relative] = tolerances(self, atol, rtol);
  return mica::_linalg_pinv(self, absolute, relative, hermitian);
}

Tensor linalg_pinv(const Tensor& self, std::optional<double> atol, std::optional<double> rtol, bool hermitian) {
  check_pinv(self);
  return composite::linalg_pinv(self, optional_scalar(self, atol), optional_scalar(self, rtol), hermitian);
}

Tensor linalg_pinv(const Tensor& self, double rcond, bool hermitian) {
  check_pinv(self);
  return composite::linalg_pinv(self, real_scalar(self, 0), real_scalar(self, rcond), hermitian);
}

Tensor linalg_pinv(const Tensor& self, const Tensor& rcond, bool hermitian) {
  check_pinv(self);
  MICA_CHECK(!rcond.is_complex(), "torch.linalg.pinv: rcond tensor of complex type is not supported. Got ",
             info(rcond.dtype()).legacy);
  return composite::linalg_pinv(self, real_scalar(self, 0), rcond, hermitian);
}

Tensor pinverse(const Tensor& self, double rcond) { return composite::linalg_pinv(self, rcond, false); }

// ---- ranks

Tensor linalg_matrix_rank(const Tensor& input, const Tensor& atol, const Tensor& rtol, bool hermitian) {
  check_matrix(input, "torch.linalg.matrix_rank", "input");
  const TensorOptions integers = input.options().dtype(DType::Int64);
  if (input.numel() == 0) return zeros(batch_sizes(input), integers);
  const auto [absolute, relative] = tolerances(input, atol, rtol);
  Tensor values, largest;
  if (hermitian) {
    values = mica::linalg_eigvalsh(input, "L").abs();
    largest = values.amax(-1, true);
  } else {
    values = mica::linalg_svdvals(input, std::nullopt);
    largest = values.narrow(-1, 0, 1);
  }
  const Tensor limit =
      maximum(absolute.unsqueeze(-1).to(values.dtype()), relative.unsqueeze(-1).to(values.dtype()) * largest);
  return gt(values, limit).sum(-1);
}

Tensor linalg_matrix_rank(const Tensor& self, std::optional<double> atol, std::optional<double> rtol, bool hermitian) {
  check_matrix(self, "torch.linalg.matrix_rank", "input");
  MICA_CHECK(self.is_floating_point() || self.is_complex(),
             "This function doesn't handle types other than float and double");
  return composite::linalg_matrix_rank(self, optional_scalar(self, atol), optional_scalar(self, rtol), hermitian);
}

Tensor linalg_matrix_rank(const Tensor& self, double tol, bool hermitian) {
  return composite::linalg_matrix_rank(self, std::optional<double>(tol), std::optional<double>(0.0), hermitian);
}

Tensor linalg_matrix_rank(const Tensor& input, const Tensor& tol, bool hermitian) {
  return composite::linalg_matrix_rank(input, tol, zeros_like(tol), hermitian);
}

// ---- condition numbers

Tensor linalg_cond(const Tensor& self, const std::optional<Scalar>& p) {
  MICA_CHECK(self.dim() >= 2, "linalg.cond: The input tensor must have at least 2 dimensions.");
  const double order = p ? p->to<double>() : 2;
  const TensorOptions real = self.options().dtype(to_real(self.dtype()));
  if (self.numel() == 0) return zeros(batch_sizes(self), real);
  if (std::abs(order) == 2) {
    const Tensor values = mica::linalg_svdvals(self, std::nullopt);
    const Tensor first = values.select(-1, 0), last = values.select(-1, -1);
    return order > 0 ? first / last : last / first;
  }
  check_square(self, "linalg.cond");
  MICA_CHECK(std::abs(order) == 1 || std::isinf(order), "linalg.cond got an invalid norm type: ", order);
  // A singular matrix has an infinite condition number.
  const auto [inverse, codes] = mica::linalg_inv_ex(self, false);
  const Tensor found = mica::linalg_matrix_norm(self, *p) * mica::linalg_matrix_norm(inverse, *p);
  return where(ne(codes, Scalar(0)), Scalar(std::numeric_limits<double>::infinity()), found).to(found.dtype());
}

Tensor linalg_named_cond(const Tensor& self, std::string_view p) {
  MICA_CHECK(self.dim() >= 2, "linalg.cond: The input tensor must have at least 2 dimensions.");
  check_square(self, "linalg.cond");
  MICA_CHECK(p == "fro" || p == "nuc", "linalg.cond got an invalid norm type: ", p);
  if (self.numel() == 0) return zeros(batch_sizes(self), self.options().dtype(to_real(self.dtype())));
  if (p == "nuc") {
    const Tensor values = mica::linalg_svdvals(self, std::nullopt);
    return values.sum(-1) * values.reciprocal().sum(-1);
  }
  const auto [inverse, codes] = mica::linalg_inv_ex(self, false);
  const Tensor found = mica::linalg_matrix_norm(self, p) * mica::linalg_matrix_norm(inverse, p);
  return where(ne(codes, Scalar(0)), Scalar(std::numeric_limits<double>::infinity()), found).to(found.dtype());
}

// ---- exponentials and powers

namespace {

// The first terms of the exponential series as a polynomial of x, in blocks of `width`: powers up to x^width, then one
// block after the other by Horner's rule. That takes width - 2 + blocks products. The last block has one term more.
Tensor taylor(const Tensor& x, int64_t width, int64_t blocks) {
  std::vector<Tensor> powers = {eye(x.size(-1), x.options()), x};
  while (static_cast<int64_t>(powers.size()) <= width) powers.push_back(matmul(powers.back(), x));
  const auto block = [&](int64_t first, int64_t terms) {
    const auto factor = [&](int64_t i) { return Scalar(1 / std::tgamma(static_cast<double>(first + i) + 1)); };
    Tensor sum = powers[static_cast<size_t>(terms - 1)] * factor(terms - 1);
    for (int64_t i = terms - 2; i >= 0; --i) sum.add_(powers[static_cast<size_t>(i)], factor(i));
    return sum;
  };
  Tensor result = block((blocks - 1) * width, width + 1);
  for (int64_t k = blocks - 2; k >= 0; --k) result = matmul(powers.back(), result).add_(block(k * width, width));
  return result;
}

}  // namespace

// Scaling and squaring: A is halved until a Taylor polynomial is exact to the last digit, which is then squared as
// often. One of degree 12 takes five products and reaches norms of 1.46 in single precision; one of degree 20 takes
// seven and reaches 1.4 in double precision (Al-Mohy and Higham).
Tensor linalg_matrix_exp(const Tensor& self) {
  check_square(self, "linalg.matrix_exp");
  check_floating(self, "linalg.matrix_exp");
  const int64_t n = self.size(-1);
  if (self.numel() == 0 || self.is_meta()) return empty(self.sizes(), self.options());
  if (n == 1) return exp(self);
  const DType working = is_narrow(self.dtype()) ? DType::Float32 : self.dtype();
  const Tensor a = self.to(working).contiguous();
  const Tensor norms = a.abs().sum(-2).amax(-1);
  const bool single = working == DType::Float32 || working == DType::Complex64;
  const double reach = single ? 1.46 : 1.4;
  Tensor halvings = ceil(log2(norms / Scalar(reach))).clamp_min(Scalar(0));
  halvings = where(isfinite(halvings), halvings, zeros_like(halvings));
  const Tensor x = a * pow(Scalar(2), -halvings).to(working).unsqueeze(-1).unsqueeze(-1);
  Tensor result = single ? taylor(x, 4, 3) : taylor(x, 5, 4);
  const int64_t most = halvings.numel() ? static_cast<int64_t>(halvings.max().item<double>()) : 0;
  for (int64_t i = 0; i < most; ++i) {
    const Tensor squared = matmul(result, result);
    result =
        halvings.dim() == 0 ? squared : where(gt(halvings, Scalar(i)).unsqueeze(-1).unsqueeze(-1), squared, result);
  }
  // A product of batches is a view of a product of matrices, to which more was added. Nobody may see it as that view.
  return mica::_unsafe_view(result, self.sizes()).to(self.dtype());
}

Tensor matrix_exp(const Tensor& self) { return mica::linalg_matrix_exp(self); }

Tensor linalg_matrix_power(const Tensor& self, int64_t n) {
  check_square(self, "linalg.matrix_power");
  if (n == 0) {  // keeps the result in the graph of the matrix, though its derivative is zero
    const Tensor result = clone(self, MemoryFormat::Contiguous).zero_();
    result.diagonal(0, -2, -1).fill_(1);
    return result;
  }
  const Tensor base = n > 0 ? self : mica::linalg_inv(self);
  uint64_t left = n > 0 ? static_cast<uint64_t>(n) : uint64_t{0} - static_cast<uint64_t>(n);
  if (left == 1) return n > 0 ? self.clone() : base;
  if (left == 3) return matmul(matmul(base, base), base);
  Tensor power = base, result;
  for (;;) {
    if (left & 1) result = result.defined() ? matmul(result, power) : power;
    left >>= 1;
    if (!left) return result;
    power = matmul(power, power);
  }
}

Tensor matrix_power(const Tensor& self, int64_t n) { return mica::linalg_matrix_power(self, n); }

// ---- tensors as matrices

Tensor linalg_tensorinv(const Tensor& self, int64_t ind) {
  MICA_CHECK(ind > 0, "Expected a strictly positive integer for 'ind', but got ", ind);
  MICA_CHECK(ind <= self.dim(), "linalg.tensorinv: 'ind' is ", ind, ", but the input has ", self.dim(), " dimensions");
  const IntArrayRef sizes = self.sizes();
  DimVector rest(IntArrayRef(sizes.begin() + ind, sizes.size() - static_cast<size_t>(ind)));
  const int64_t rows = count_elements(IntArrayRef(sizes.begin(), static_cast<size_t>(ind))),
                columns = count_elements(rest);
  MICA_CHECK(rows == columns,
             "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got ",
             columns, " != ", rows);
  for (int64_t d = 0; d < ind; ++d) rest.push_back(sizes[static_cast<size_t>(d)]);
  return mica::linalg_inv(self.reshape({rows, columns})).reshape(rest);
}

Tensor linalg_tensorsolve(const Tensor& self, const Tensor& other, std::optional<IntArrayRef> dims) {
  Tensor a = self;
  if (dims) {
    DimVector targets;
    for (size_t i = 0; i < dims->size(); ++i) targets.push_back(self.dim() - static_cast<int64_t>(dims->size() - i));
    a = movedim(self, *dims, targets);
  }
  const int64_t extra = a.dim() - other.dim();
  MICA_CHECK(extra >= 0, "linalg.tensorsolve: the first tensor must have at least as many dimensions as the second");
  const DimVector result(IntArrayRef(a.sizes().end() - extra, static_cast<size_t>(extra)));
  const int64_t unknowns = count_elements(result), equations = other.numel();
  MICA_CHECK(unknowns == equations, "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == ",
             "prod(self.shape[:other.ndim]), but got ", unknowns, " != ", equations);
  return mica::linalg_solve(a.reshape({equations, unknowns}), other.flatten()).reshape(result);
}

Tensor linalg_vander(const Tensor& x, std::optional<int64_t> N) {
  MICA_CHECK(x.dtype() != DType::Bool,
             "linalg.vander: supports floating point, complex, and integer tensors, but got Bool");
  MICA_CHECK((x.dim() > 0 || N) && x.numel() > 0, "x must be a non-empty tensor of at least one dimension.");
  const int64_t n = N ? *N : x.size(-1);
  MICA_CHECK(n > 1, "N must be greater than 1.");
  const Tensor numbers = x.dim() == 0 ? x.unsqueeze(0) : x;
  DimVector sizes(numbers.sizes());
  sizes.push_back(n - 1);
  const Tensor powers = cumprod(numbers.unsqueeze(-1).expand(sizes), -1);
  sizes.back() = 1;
  const Tensor parts[] = {ones(sizes, powers.options()), powers};
  return cat(TensorList(parts, 2), -1);
}

}  // namespace mica::composite
