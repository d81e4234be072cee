#include <cmath>
#include <limits>

#include "autograd/formulas/formulas.h"
#include "autograd/formulas/seen.h"
#include "core/geometry.h"

namespace mica::formulas {

namespace {

int64_t reduced_count(IntArrayRef sizes, OptionalIntArrayRef dim) {
  if (!dim || dim->empty()) return count_elements(sizes);
  if (sizes.empty()) return 1;
  int64_t count = 1;
  for (int64_t d : wrap_dims(*dim, static_cast<int64_t>(sizes.size()))) count *= sizes[d];
  return count;
}

Tensor restore_dim(const Tensor& t, const Tensor& self, int64_t dim, bool keepdim) {
  return keepdim || self.dim() == 0 ? t : t.unsqueeze(wrap_dim(dim, self.dim()));
}

// The gradient for the places where `mask` holds, shared among them. NaN if it holds nowhere, as for the extremum of a
// NaN.
Tensor shared_among(const Tensor& grad, const Tensor& mask, OptionalIntArrayRef dim) {
  return grad * mask / sum(mask, dim, true);
}

Tensor backwards(const Tensor& t, int64_t dim) { return slice(t, dim, std::nullopt, std::nullopt, -1); }

}  // namespace

// ---- sums and products

Tensor mean_all_backward(const Tensor& grad, IntArrayRef sizes, int64_t numel) {
  return (grad / Scalar(numel)).expand(sizes);
}

Tensor mean_backward(const Tensor& grad, IntArrayRef sizes, OptionalIntArrayRef dim, bool keepdim) {
  return sum_backward(grad / Scalar(reduced_count(sizes, dim)), sizes, dim, keepdim);
}

Tensor nansum_backward(const Tensor& grad, const Tensor& self, OptionalIntArrayRef dim, bool keepdim) {
  return where(isnan(self), Scalar(0), sum_backward(grad, self.sizes(), dim, keepdim));
}

namespace {

// The product of all elements of a dimension but one, for each of them: no division, so that zeros do no harm.
Tensor products_of_others(const Tensor& t, int64_t dim) {
  const int64_t n = t.size(dim);
  DimVector edge(t.sizes());
  edge[dim] = 1;
  const Tensor one = ones(edge, t.options());
  const Tensor before = cat({one, t.narrow(dim, 0, n - 1)}, dim).cumprod(dim);
  const Tensor after = backwards(cat({one, backwards(t.narrow(dim, 1, n - 1), dim)}, dim).cumprod(dim), dim);
  return before * after;
}

// Where a mode sees the derivative, it may make a graph of it, which has to hold for other numbers too.
bool may_have_zero(const Tensor& t) { return t.is_meta() || dispatch::active || eq(t, Scalar(0)).any().item<bool>(); }

}  // namespace

Tensor prod_all_backward(const Tensor& grad, const Tensor& self, const Tensor& result) {
  const Tensor input = self.to(result.dtype());
  if (self.numel() == 0) return zeros_like(input);
  if (self.numel() == 1) return grad.expand(self.sizes());
  if (!may_have_zero(input)) return grad * conj_of(result / input);
  return (grad * conj_of(products_of_others(input.reshape({-1}), 0))).view(self.sizes());
}

Tensor prod_backward(const Tensor& grad, const Tensor& self, const Tensor& result, int64_t dim, bool keepdim) {
  if (self.dim() == 0) return grad;
  const int64_t d = wrap_dim(dim, self.dim());
  const Tensor input = self.to(result.dtype()), g = restore_dim(grad, self, d, keepdim);
  if (self.numel() == 0) return zeros_like(input);
  if (!may_have_zero(input)) return g * conj_of(restore_dim(result, self, d, keepdim) / input);
  return g * conj_of(products_of_others(input, d));
}

// ---- extrema

Tensor amax_backward(const Tensor& grad, const Tensor& self, const Tensor& result, IntArrayRef dim, bool keepdim) {
  const Tensor g = restore_dims(grad, self.sizes(), dim, keepdim), r = restore_dims(result, self.sizes(), dim, keepdim);
  return shared_among(g, eq(self, r), dim);
}

Tensor aminmax_backward(const Tensor& grad_min, const Tensor& grad_max, const Tensor& self, const Tensor& min,
                        const Tensor& max, std::optional<int64_t> dim, bool keepdim) {
  const IntArrayRef dims = dim ? IntArrayRef(*dim) : IntArrayRef();
  Tensor total;
  if (grad_min.defined()) total = amax_backward(grad_min, self, min, dims, keepdim);
  if (grad_max.defined()) {
    const Tensor other = amax_backward(grad_max, self, max, dims, keepdim);
    total = total.defined() ? total + other : other;
  }
  return total;
}

Tensor extremum_backward(const Tensor& grad, const Tensor& self, const Tensor& result) {
  const Tensor mask = logical_or(eq(self, result), logical_and(isnan(self), isnan(result)));
  return shared_among(grad, mask, std::nullopt).view(self.sizes());
}

Tensor selected_backward(const Tensor& grad, int64_t dim, const Tensor& indices, IntArrayRef sizes, bool keepdim) {
  if (sizes.empty()) return grad;
  const int64_t d = wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  const Tensor target = zeros_like_gradient(grad, sizes);
  return keepdim ? scatter(target, d, indices, grad) : scatter(target, d, indices.unsqueeze(d), grad.unsqueeze(d));
}

// ---- moments and norms

Tensor var_backward(const Tensor& grad, const Tensor& self, OptionalIntArrayRef dim,
                    const std::optional<Scalar>& correction, bool keepdim) {
  const double degrees =
      static_cast<double>(reduced_count(self.sizes(), dim)) - (correction ? correction->to_double() : 1.0);
  const Tensor g = restore_dims(grad, self.sizes(), dim, keepdim);
  return g * Scalar(2 / std::max(degrees, 0.0)) * (self - mean(self, dim, true));
}

Tensor std_backward(const Tensor& grad, const Tensor& result, const Tensor& self, OptionalIntArrayRef dim,
                    const std::optional<Scalar>& correction, bool keepdim) {
  const Tensor grad_var = (grad / (result * Scalar(2))).masked_fill(eq(result, Scalar(0)), Scalar(0));
  return var_backward(grad_var, self, dim, correction, keepdim);
}

Tensor var_mean_backward(const Tensor& grad_var, const Tensor& grad_mean, const Tensor& self, OptionalIntArrayRef dim,
                         const std::optional<Scalar>& correction, bool keepdim) {
  Tensor total;
  if (grad_var.defined()) total = var_backward(grad_var, self, dim, correction, keepdim);
  if (grad_mean.defined()) {
    const Tensor other = mean_backward(grad_mean, self.sizes(), dim, keepdim);
    total = total.defined() ? total + other : other;
  }
  return total;
}

Tensor std_mean_backward(const Tensor& grad_std, const Tensor& grad_mean, const Tensor& std, const Tensor& self,
                         OptionalIntArrayRef dim, const ::std::optional<Scalar>& correction, bool keepdim) {
  Tensor grad_var;
  if (grad_std.defined()) grad_var = (grad_std / (std * Scalar(2))).masked_fill(eq(std, Scalar(0)), Scalar(0));
  return var_mean_backward(grad_var, grad_mean, self, dim, correction, keepdim);
}

Tensor norm_backward(const Tensor& grad, const Tensor& self, const std::optional<Scalar>& p, const Tensor& result,
                     OptionalIntArrayRef dim, bool keepdim) {
  const double order = p ? p->to_double() : 2.0;
  const Tensor x = self.to(self.is_complex() ? to_complex(result.dtype()) : result.dtype());
  const Tensor g = restore_dims(grad, self.sizes(), dim, keepdim),
               norm = restore_dims(result, self.sizes(), dim, keepdim);
  const auto unless_zero = [](const Tensor& t, const Tensor& divisor) {
    return t.masked_fill(eq(divisor, Scalar(0)), Scalar(0));
  };
  if (order == 0) return zeros_like(x);
  if (order == 1) return sgn(x) * g;
  if (order == 2) return g * unless_zero(x / norm, norm);
  if (std::isinf(order)) {
    const Tensor mask = logical_or(eq(abs(x), norm), logical_and(isnan(x), isnan(norm)));
    return sgn(x) * shared_among(g, mask, dim);
  }
  if (order < 1) return unless_zero(sgn(x) * pow(abs(x), Scalar(order - 1)), x) * g * pow(norm, Scalar(1 - order));
  const Tensor scale = unless_zero(g / pow(norm, Scalar(order - 1)), norm);
  if (order < 2) return sgn(x) * pow(abs(x), Scalar(order - 1)) * scale;
  return x * pow(abs(x), Scalar(order - 2)) * scale;
}

Tensor logsumexp_backward(const Tensor& grad, const Tensor& self, const Tensor& result, IntArrayRef dim, bool keepdim) {
  const Tensor g = restore_dims(grad, self.sizes(), dim, keepdim), r = restore_dims(result, self.sizes(), dim, keepdim);
  return g * conj_of(exp(self - r));
}

// ---- scans

namespace {

Scalar lowest_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return std::numeric_limits<double>::lowest();
    case DType::Float16:
      return -65504.0;
    case DType::BFloat16:
      return -0x1.fep127;
    default:
      return static_cast<double>(std::numeric_limits<float>::lowest());
  }
}

Tensor reverse_cumsum(const Tensor& t, int64_t dim) { return backwards(backwards(t, dim).cumsum(dim), dim); }
Tensor reverse_logcumsumexp(const Tensor& t, int64_t dim) {
  return backwards(backwards(t, dim).logcumsumexp(dim), dim);
}

}  // namespace

Tensor cumsum_backward(const Tensor& grad, int64_t dim) {
  return grad.numel() <= 1 || grad.size(dim) == 1 ? grad : reverse_cumsum(grad, dim);
}

namespace {

// A graph has a few operators for each of so many steps.
constexpr int64_t kFewSteps = 64;
// Longer lines in a graph may have an open size, for which a formula is taken that does not depend on the size.
constexpr int64_t kFixedSizes = 1024;

// s(k) = grad(k) + x(k + 1) s(k + 1). After each step s(k) has the terms of twice as many elements from k on, and
// `factors` the products of as many.
Tensor sums_by_doubling(const Tensor& grad, const Tensor& x, int64_t dim) {
  const int64_t n = x.size(dim);
  Tensor sums = grad, factors = x.narrow(dim, 1, n - 1);
  for (int64_t reach = 1; reach < n; reach *= 2) {
    const int64_t count = n - reach;
    sums = cat({sums.narrow(dim, 0, count) + factors * sums.narrow(dim, reach, count), sums.narrow(dim, count, reach)},
               dim);
    if (count > reach) factors = factors.narrow(dim, 0, count - reach) * factors.narrow(dim, reach, count - reach);
  }
  return sums;
}

// The gradient of products of which the first zero of a line is left out: what is before it is divided by as usual, and
// behind it every product is zero. Its own derivative is right where there is no zero.
Tensor cumprod_backward_by_zeros(const Tensor& grad, const Tensor& x, int64_t dim, const Tensor& result) {
  const Tensor is_zero = eq(x, Scalar(0)), zeros = is_zero.cumsum(dim);
  const Tensor is_before = eq(zeros, Scalar(0)), is_first = logical_and(is_zero, eq(zeros, Scalar(1)));
  const Tensor others = x.masked_fill(is_first, Scalar(1)).cumprod(dim);
  const Tensor before = reverse_cumsum(grad * conj_of(result), dim) / x.masked_fill(is_zero, Scalar(1));
  const Tensor first = (grad * others).masked_fill(is_before, Scalar(0)).sum(dim, true);
  return where(is_before, before, first * is_first.to(x.dtype()));
}

}  // namespace

Tensor cumprod_backward(const Tensor& grad, const Tensor& self, int64_t dim, const Tensor& result) {
  if (self.numel() <= 1 || self.size(dim) == 1) return grad;
  const Tensor x = conj_of(self.to(result.dtype()));
  if (!may_have_zero(x)) return reverse_cumsum(grad * conj_of(result), dim) / x;
  // Where there are zeros, nothing is divided: the product before k times s(k) = grad(k) + x(k + 1) s(k + 1), from the
  // end.
  const int64_t n = x.size(dim);
  const bool is_long = dispatch::active && n > kFewSteps;
  if (is_long && !(grad_enabled() && n <= kFixedSizes)) return cumprod_backward_by_zeros(grad, x, dim, result);
  Tensor joined;
  if (is_long) {
    joined = sums_by_doubling(grad, x, dim);
  } else {
    std::vector<Tensor> sums(n);
    sums[n - 1] = grad.narrow(dim, n - 1, 1);
    for (int64_t k = n - 2; k >= 0; --k) sums[k] = grad.narrow(dim, k, 1) + x.narrow(dim, k + 1, 1) * sums[k + 1];
    joined = cat(sums, dim);
  }
  DimVector edge(x.sizes());
  edge[wrap_dim(dim, x.dim())] = 1;
  const Tensor before = cat({ones(edge, x.options()), x.narrow(dim, 0, n - 1)}, dim).cumprod(dim);
  return before * joined;
}

Tensor cummaxmin_backward(const Tensor& grad, IntArrayRef sizes, const Tensor& indices, int64_t dim) {
  if (sizes.empty() || grad.numel() == 0) return grad;
  return scatter_add(zeros_like_gradient(grad, sizes), dim, indices, grad);
}

Tensor logcumsumexp_backward(const Tensor& grad, const Tensor& self, const Tensor& result, int64_t dim) {
  if (self.numel() <= 1 || self.size(dim) == 1) return grad;
  if (self.is_complex()) return exp(reverse_logcumsumexp(log(grad) - conj_of(result), dim) + conj_of(self));
  // Logarithms keep products of large and small factors in range. Positive and negative gradients are computed apart.
  const Tensor size = log(abs(grad));
  // Finite, so that no difference of two of them is NaN when this is differentiated once more.
  const Scalar none = lowest_of(grad.dtype());
  const Tensor positive = where(gt(grad, Scalar(0)), size, none), negative = where(lt(grad, Scalar(0)), size, none);
  return exp(reverse_logcumsumexp(positive - result, dim) + self) -
         exp(reverse_logcumsumexp(negative - result, dim) + self);
}

}  // namespace mica::formulas
