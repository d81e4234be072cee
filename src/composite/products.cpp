// Products in terms of mm, bmm, mv and dot.
#include <algorithm>

#include "core/geometry.h"
#include "core/out.h"
#include "core/pointwise.h"
#include "mica/generated/implementations.h"
#include "mica/generated/layers/linear_layers.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

namespace {

int64_t product(IntArrayRef sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

// A product that nobody has seen yet in another shape. To autograd it is no view, so that it may be changed in place
// where a function of the program's own returns it.
Tensor shaped(const Tensor& made, IntArrayRef sizes) { return mica::_unsafe_view(made, sizes); }

// A batch of matrices on the left of one matrix, or of one vector, is one tall matrix.
Tensor fold_left(const Tensor& self, const Tensor& other) {
  DimVector sizes(self.sizes().slice(0, self.dim() - 1));
  const Tensor tall = self.reshape({product(sizes), self.sizes().back()});
  if (other.dim() == 1) return shaped(mica::mm(tall, other.unsqueeze(1)), sizes);
  sizes.push_back(other.sizes()[1]);
  return shaped(mica::mm(tall, other), sizes);
}

Tensor batched(const Tensor& self, const Tensor& other) {
  const Tensor a = self.dim() == 1 ? self.unsqueeze(0) : self;
  const Tensor b = other.dim() == 1 ? other.unsqueeze(1) : other;
  const IntArrayRef batch_a = a.sizes().slice(0, a.dim() - 2), batch_b = b.sizes().slice(0, b.dim() - 2);
  const DimVector batch = broadcast_sizes(batch_a, batch_b);
  const int64_t count = product(batch);
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  DimVector sizes_a(batch), sizes_b(batch), sizes(batch);
  sizes_a.push_back(m), sizes_a.push_back(k);
  sizes_b.push_back(b.size(-2)), sizes_b.push_back(n);
  if (self.dim() > 1) sizes.push_back(m);
  if (other.dim() > 1) sizes.push_back(n);
  const Tensor wide_a = batch_a == batch.ref() ? a : a.expand(sizes_a);
  const Tensor wide_b = batch_b == batch.ref() ? b : b.expand(sizes_b);
  return shaped(mica::bmm(wide_a.reshape({count, m, k}), wide_b.reshape({count, b.size(-2), n})), sizes);
}

}  // namespace

Tensor matmul(const Tensor& self, const Tensor& other) {
  const int64_t a = self.dim(), b = other.dim();
  if (a == 2 && b == 2) return mica::mm(self, other);
  MICA_CHECK(a > 0 && b > 0, "both arguments to matmul need to be at least 1D, but they are ", a, "D and ", b, "D");
  if (a == 1 && b == 1) return mica::dot(self, other);
  if (a == 2 && b == 1) return mica::mv(self, other);
  if (a == 1 && b == 2) return shaped(mica::mm(self.unsqueeze(0), other), {other.sizes()[1]});
  if (b <= 2 && a > 2) return fold_left(self, other);
  return batched(self, other);
}

void matmul_out(const Tensor& out, const Tensor& self, const Tensor& other) {
  const int64_t a = self.dim(), b = other.dim();
  if (a == 2 && b == 2) {
    mica::mm_out(out, self, other);
  } else if (a == 1 && b == 1) {
    mica::dot_out(out, self, other);
  } else if (a == 2 && b == 1) {
    mica::mv_out(out, self, other);
  } else if (a == 3 && b == 3 && self.size(0) == other.size(0)) {
    mica::bmm_out(out, self, other);
  } else {
    write_out("matmul", out, composite::matmul(self, other));
  }
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  MICA_CHECK(weight.dim() == 2 || weight.dim() == 1, "linear(): argument 'weight' must be 1D or 2D, got ", weight);
  if (weight.dim() == 1) {
    Tensor result = mica::matmul(input, weight);
    return bias.defined() ? result + bias : result;
  }
  if (!bias.defined()) return mica::matmul(input, weight.t());
  if (input.dim() == 2) return mica::_linear(bias, input, weight);
  if (input.dim() > 2 && bias.dim() == 1) {
    DimVector sizes(input.sizes());
    sizes.back() = weight.sizes()[0];
    const Tensor flat = input.reshape({product(input.sizes().slice(0, input.dim() - 1)), input.sizes().back()});
    return mica::_linear(bias, flat, weight).view(sizes);
  }
  return mica::matmul(input, weight.t()) + bias;
}

Tensor addbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta, const Scalar& alpha) {
  MICA_CHECK(batch1.dim() == 3, "batch1 must be a 3D tensor, but it has the shape ", batch1.sizes());
  MICA_CHECK(batch2.dim() == 3, "batch2 must be a 3D tensor, but it has the shape ", batch2.sizes());
  MICA_CHECK(batch1.size(0) == batch2.size(0), "batch1 and batch2 must have same number of batches, got ",
             batch1.size(0), " and ", batch2.size(0));
  MICA_CHECK(batch1.size(2) == batch2.size(1), "Incompatible matrix sizes for bmm (", batch1.size(1), "x",
             batch1.size(2), " and ", batch2.size(1), "x", batch2.size(2), ")");
  // Side by side, the sum over the batch becomes part of one product.
  const Tensor wide = batch1.permute({1, 0, 2}).reshape({batch1.size(1), batch1.size(0) * batch1.size(2)});
  return mica::addmm(self, wide, batch2.reshape({batch2.size(0) * batch2.size(1), batch2.size(2)}), beta, alpha);
}

namespace {

void check_vectors(const Tensor& self, const Tensor& vec2) {
  MICA_CHECK(self.dim() == 1, "outer: Expected 1-D argument self, but got ", self.dim(), "-D");
  MICA_CHECK(vec2.dim() == 1, "outer: Expected 1-D argument vec2, but got ", vec2.dim(), "-D");
}

}  // namespace

Tensor outer(const Tensor& self, const Tensor& vec2) {
  check_vectors(self, vec2);
  return self.unsqueeze(1) * vec2;
}
void outer_out(const Tensor& out, const Tensor& self, const Tensor& vec2) {
  check_vectors(self, vec2);
  mica::mul_out(out, self.unsqueeze(1), vec2);
}

namespace {

// The terms of addr. Without an addend self is not read.
struct Terms {
  Tensor addend, product;
};

Terms addr_terms(const Tensor& self, const Tensor& vec1, const Tensor& vec2, const Scalar& beta, const Scalar& alpha) {
  MICA_CHECK(vec1.dim() == 1 && vec2.dim() == 1, "addr: Expected 1-D argument ", vec1.dim() != 1 ? "vec1" : "vec2",
             ", but got ", vec1.dim() != 1 ? vec1.dim() : vec2.dim(), "-D");
  const int64_t sizes[2] = {vec1.size(0), vec2.size(0)};
  ResultType type;
  for (const Tensor* t : {&self, &vec1, &vec2}) type.add(*t);
  const DType dtype = type.get();
  for (const auto& [name, factor] : {std::pair("beta", &beta), std::pair("alpha", &alpha)}) {
    const bool whole = !factor->is_floating() && !factor->is_complex();
    MICA_CHECK(!factor->is_bool() || dtype == DType::Bool, "Boolean ", name, " only supported for Boolean results.");
    MICA_CHECK(whole || is_floating(dtype) || is_complex(dtype), "For integral input tensors, argument ", name,
               " must not be a floating point number.");
    MICA_CHECK(!factor->is_complex() || is_complex(dtype),
               "value cannot be converted to type float without overflow: ", name, " is complex, the matrices are not");
  }
  // For bool matrices the factors count as true or false.
  const auto scaled = [dtype](const Tensor& t, const Scalar& factor) {
    if (factor.to_complex() == complex128(1)) return t;
    return t * (dtype == DType::Bool ? Scalar(factor.to<bool>()) : factor);
  };
  const Tensor product = scaled(mica::outer(vec1, vec2), alpha);
  const Tensor addend = self.expand(sizes);
  // beta zero means that self is not read, so that its NaNs do not spread.
  return {beta.to_complex() == complex128(0) ? Tensor() : scaled(addend, beta), product};
}

}  // namespace

Tensor addr(const Tensor& self, const Tensor& vec1, const Tensor& vec2, const Scalar& beta, const Scalar& alpha) {
  const Terms t = addr_terms(self, vec1, vec2, beta, alpha);
  return t.addend.defined() ? t.addend + t.product : t.product;
}
void addr_out(const Tensor& out, const Tensor& self, const Tensor& vec1, const Tensor& vec2, const Scalar& beta,
              const Scalar& alpha) {
  const Terms t = addr_terms(self, vec1, vec2, beta, alpha);
  if (t.addend.defined()) {
    mica::add_out(out, t.addend, t.product, 1);
  } else {
    write_out("addr", out, t.product);
  }
}

Tensor inner(const Tensor& self, const Tensor& other) {
  if (self.dim() == 0 || other.dim() == 0) return self * other;
  MICA_CHECK(self.size(-1) == other.size(-1),
             "inner() the last dimension must match on both input tensors but got shapes ", self.sizes(), " and ",
             other.sizes());
  return mica::tensordot(self, other, -1, -1);
}

Tensor tensordot(const Tensor& self, const Tensor& other, IntArrayRef dims_self, IntArrayRef dims_other) {
  MICA_CHECK(dims_self.size() == dims_other.size(), "both dimension lists should have same length, but they have ",
             dims_self.size(), " and ", dims_other.size(), " dimensions");
  const DimVector summed_a = wrap_dims(dims_self, self.dim()), summed_b = wrap_dims(dims_other, other.dim());
  DimVector order_a, order_b, sizes;
  int64_t rows = 1, inner = 1, columns = 1;
  Tensor a = self, b = other;
  for (size_t i = 0; i < summed_a.size(); ++i) {
    const int64_t x = self.size(summed_a[i]), y = other.size(summed_b[i]);
    if (x != y) {
      MICA_CHECK(x == 1 || y == 1, "contracted dimensions need to match, but first has size ", x, " in dim ",
                 dims_self[i], " and second has size ", y, " in dim ", dims_other[i]);
      // A broadcast dimension is summed on the side that has it.
      if (x == 1) b = b.sum(summed_b[i], true, b.dtype());
      if (y == 1) a = a.sum(summed_a[i], true, a.dtype());
    } else {
      inner *= x;
    }
  }
  for (int64_t d = 0; d < self.dim(); ++d)
    if (std::find(summed_a.begin(), summed_a.end(), d) == summed_a.end()) {
      order_a.push_back(d);
      sizes.push_back(self.size(d));
      rows *= self.size(d);
    }
  for (int64_t d : summed_a) order_a.push_back(d);
  for (int64_t d : summed_b) order_b.push_back(d);
  for (int64_t d = 0; d < other.dim(); ++d)
    if (std::find(summed_b.begin(), summed_b.end(), d) == summed_b.end()) {
      order_b.push_back(d);
      sizes.push_back(other.size(d));
      columns *= other.size(d);
    }
  a = a.permute(order_a), b = b.permute(order_b);
  // One number is a dot product, which autocast leaves as it is.
  if (rows == 1 && columns == 1) return mica::dot(a.reshape({inner}), b.reshape({inner})).reshape(sizes);
  return mica::mm(a.reshape({rows, inner}), b.reshape({inner, columns})).reshape(sizes);
}

Tensor kron(const Tensor& self, const Tensor& other) {
  const int64_t n = std::max(self.dim(), other.dim());
  DimVector sizes_a, sizes_b, sizes;
  for (int64_t d = 0; d < n; ++d) {
    const int64_t a = d < n - self.dim() ? 1 : self.size(d - (n - self.dim()));
    const int64_t b = d < n - other.dim() ? 1 : other.size(d - (n - other.dim()));
    sizes_a.push_back(a), sizes_a.push_back(1);
    sizes_b.push_back(1), sizes_b.push_back(b);
    sizes.push_back(a * b);
  }
  return (self.reshape(sizes_a) * other.reshape(sizes_b)).reshape(sizes);
}

Tensor cross(const Tensor& self, const Tensor& other, std::optional<int64_t> dim) {
  const DimVector shape = broadcast_sizes(self.sizes(), other.sizes());
  int64_t d = -1;
  if (dim) {
    d = wrap_dim(*dim, static_cast<int64_t>(shape.size()));
  } else {
    MICA_WARN_ONCE(
        "Using torch.cross without specifying the dim arg is deprecated.\nPlease either pass the dim explicitly or "
        "simply use torch.linalg.cross.\nThe default value of dim will change to agree with that of linalg.cross in a "
        "future release.");
    for (size_t i = 0; i < shape.size() && d < 0; ++i)
      if (shape[i] == 3) d = static_cast<int64_t>(i);
    MICA_CHECK(d >= 0, "no dimension of size 3 in input");
  }
  MICA_CHECK(shape[d] == 3, "inputs dimension ", d, " must have length 3. Got ", self.sizes(), " and ", other.sizes());
  const Tensor a = self.expand(shape), b = other.expand(shape);
  auto part = [&](const Tensor& t, int64_t i) { return t.select(d, i % 3); };
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < 3; ++i) parts.push_back(part(a, i + 1) * part(b, i + 2) - part(a, i + 2) * part(b, i + 1));
  return mica::stack(parts, d);
}

Tensor chain_matmul(TensorList matrices) {
  MICA_CHECK(!matrices.empty(), "chain_matmul(): Expected one or more matrices");
  for (const Tensor& m : matrices) MICA_CHECK(m.dim() == 2, "Tensor dimension is ", m.dim(), ", expected 2 instead.");
  const size_t n = matrices.size();
  // cost[i][j]: the fewest multiplications for the product of matrices i..j, split[i][j]: where it is cut.
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> split(n, std::vector<size_t>(n, 0));
  for (size_t length = 1; length < n; ++length) {
    for (size_t i = 0; i + length < n; ++i) {
      const size_t j = i + length;
      cost[i][j] = std::numeric_limits<double>::infinity();
      for (size_t s = i; s < j; ++s) {
        const double c = cost[i][s] + cost[s + 1][j] +
                         double(matrices[i].size(0)) * double(matrices[s].size(1)) * double(matrices[j].size(1));
        if (c < cost[i][j]) cost[i][j] = c, split[i][j] = s;
      }
    }
  }
  auto multiply = [&](auto& self, size_t i, size_t j) -> Tensor {
    if (i == j) return matrices[i];
    return mica::mm(self(self, i, split[i][j]), self(self, split[i][j] + 1, j));
  };
  return multiply(multiply, 0, n - 1);
}

}  // namespace mica::composite
