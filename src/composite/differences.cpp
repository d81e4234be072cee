// Finite differences and the integrals that undo them.
#include <utility>

#include "core/geometry.h"
#include "core/out.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::composite {

// ---- diff

namespace {

void check_edge(const Tensor& self, const Tensor& edge, int64_t dim) {
  MICA_CHECK(edge.dim() == self.dim(),
             "diff expects prepend or append to be the same dimension as input, but they have ", edge.dim(), " and ",
             self.dim(), " dimensions");
  for (int64_t d = 0; d < self.dim(); ++d)
    MICA_CHECK(d == dim || edge.size(d) == self.size(d),
               "diff expects the shape of tensor to prepend or append to match that of input except along the "
               "differencing dimension; input.size(",
               d, ") = ", self.size(d), ", but got tensor.size(", d, ") = ", edge.size(d));
}

// The two tensors whose difference is that of neighbours.
std::pair<Tensor, Tensor> neighbours(const Tensor& t, int64_t dim) {
  return {mica::slice(t, dim, 1), mica::slice(t, dim, 0, -1)};
}

Tensor difference(const Tensor& t, int64_t dim) {
  const auto [later, earlier] = neighbours(t, dim);
  return t.dtype() == DType::Bool ? mica::logical_xor(later, earlier) : later - earlier;
}

// A tensor, joined to its edges, whose differences along `dim` are to be taken so often.
struct Differences {
  Differences(const Tensor& self, int64_t n, int64_t along, const Tensor& prepend, const Tensor& append);
  Tensor t;
  int64_t dim, count;
};

Differences::Differences(const Tensor& self, int64_t n, int64_t along, const Tensor& prepend, const Tensor& append)
    : t(self) {
  MICA_CHECK(self.dim() >= 1, "diff expects input to be at least one-dimensional");
  MICA_CHECK(n >= 0, "order must be non-negative but got ", n);
  dim = wrap_dim(along, self.dim());
  if (prepend.defined()) check_edge(self, prepend, dim);
  if (append.defined()) check_edge(self, append, dim);
  count = n;
  if (n == 0) return;
  if (prepend.defined() && append.defined())
    t = mica::cat({prepend, self, append}, dim);
  else if (prepend.defined())
    t = mica::cat({prepend, self}, dim);
  else if (append.defined())
    t = mica::cat({self, append}, dim);
  count = std::min(n, t.size(dim));
}

}  // namespace

Tensor diff(const Tensor& self, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) {
  Differences d(self, n, dim, prepend, append);
  if (n == 0) return self.clone();
  for (; d.count > 0; --d.count) d.t = difference(d.t, d.dim);
  return d.t;
}
void diff_out(const Tensor& out, const Tensor& self, int64_t n, int64_t dim, const Tensor& prepend,
              const Tensor& append) {
  Differences d(self, n, dim, prepend, append);
  for (; d.count > 1; --d.count) d.t = difference(d.t, d.dim);
  if (d.count == 0) return write_out("diff", out, d.t);
  const auto [later, earlier] = neighbours(d.t, d.dim);
  if (d.t.dtype() == DType::Bool) {
    mica::logical_xor_out(out, later, earlier);
  } else {
    mica::sub_out(out, later, earlier, 1);
  }
}

// ---- gradient

namespace {

DimVector gradient_dims(const Tensor& self, OptionalIntArrayRef dim) {
  if (dim) return wrap_dims(*dim, self.dim());
  DimVector dims;
  for (int64_t d = 0; d < self.dim(); ++d) dims.push_back(d);
  return dims;
}

DimVector one_or_all(const Tensor& self, std::optional<int64_t> dim) {
  return dim ? gradient_dims(self, IntArrayRef(*dim)) : gradient_dims(self, std::nullopt);
}

void check_gradient(const Tensor& self, IntArrayRef dims, int64_t edge_order) {
  MICA_CHECK(self.dtype() != DType::UInt8, "torch.gradient does not support uint8 input.");
  MICA_CHECK(edge_order == 1 || edge_order == 2, "torch.gradient only supports edge_order=1 and edge_order=2.");
  for (int64_t d : dims)
    MICA_CHECK(self.size(d) >= edge_order + 1,
               "torch.gradient expected each dimension size to be at least edge_order+1");
}

void check_spacing(const Tensor& self, size_t spacings, IntArrayRef dims, bool dim_given) {
  if (dim_given) {
    MICA_CHECK(spacings == dims.size(),
               "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have "
               "the same length, but got a spacing argument of length ",
               spacings, " and a dim argument of length ", dims.size(), ".");
  } else {
    MICA_CHECK(
        spacings == dims.size(),
        "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = ",
        self.dim(), "', since dim argument was not given, but got a list of length ", spacings);
  }
}

// The slice at place i, with its dimension kept as size one. A negative i counts from the end.
Tensor at(const Tensor& t, int64_t dim, int64_t i) {
  const int64_t n = t.size(dim), from = i < 0 ? i + n : i;
  return mica::slice(t, dim, from, from + 1);
}

Tensor even_derivative(const Tensor& f, const Scalar& step, int64_t dim, int64_t edge_order) {
  const Tensor inside = (mica::slice(f, dim, 2) - mica::slice(f, dim, 0, -2)) / step / Scalar(2);
  Tensor first, last;
  if (edge_order == 1) {
    first = (at(f, dim, 1) - at(f, dim, 0)) / step;
    last = (at(f, dim, -1) - at(f, dim, -2)) / step;
  } else {
    first = (at(f, dim, 1) * Scalar(2) - at(f, dim, 0) * Scalar(1.5) - at(f, dim, 2) * Scalar(0.5)) / step;
    last = (at(f, dim, -1) * Scalar(1.5) - at(f, dim, -2) * Scalar(2) + at(f, dim, -3) * Scalar(0.5)) / step;
  }
  return mica::cat({first, inside, last}, dim);
}

// The derivative of the parabola through three points that are h and k apart, at the first (0), middle (1) or last (2)
// of them.
Tensor parabola_derivative(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& h, const Tensor& k,
                           int place) {
  const Tensor whole = h + k;
  if (place == 0) return -(h * Scalar(2) + k) / (h * whole) * a + whole / (h * k) * b - h / (k * whole) * c;
  if (place == 1) return -k / (h * whole) * a + (k - h) / (h * k) * b + h / (k * whole) * c;
  return k / (h * whole) * a - whole / (h * k) * b + (k * Scalar(2) + h) / (k * whole) * c;
}

Tensor uneven_derivative(const Tensor& f, const Tensor& places, int64_t dim, int64_t edge_order) {
  MICA_CHECK(places.dim() == 1 && places.size(0) == f.size(dim),
             "torch.gradient expected each element of spacing to be one-dimensional and as long as the dimension it "
             "belongs to (",
             f.size(dim), "), but got a tensor of shape ", places.sizes());
  DimVector column(f.dim(), 1);
  column[dim] = -1;
  const Tensor steps = mica::diff(places).reshape(column);
  const Tensor inside =
      parabola_derivative(mica::slice(f, dim, 0, -2), mica::slice(f, dim, 1, -1), mica::slice(f, dim, 2),
                          mica::slice(steps, dim, 0, -1), mica::slice(steps, dim, 1), 1);
  Tensor first, last;
  if (edge_order == 1) {
    first = (at(f, dim, 1) - at(f, dim, 0)) / at(steps, dim, 0);
    last = (at(f, dim, -1) - at(f, dim, -2)) / at(steps, dim, -1);
  } else {
    first = parabola_derivative(at(f, dim, 0), at(f, dim, 1), at(f, dim, 2), at(steps, dim, 0), at(steps, dim, 1), 0);
    last =
        parabola_derivative(at(f, dim, -3), at(f, dim, -2), at(f, dim, -1), at(steps, dim, -2), at(steps, dim, -1), 2);
  }
  return mica::cat({first, inside, last}, dim);
}

std::vector<Tensor> even_gradient(const Tensor& self, ArrayRef<Scalar> spacing, IntArrayRef dims, int64_t edge_order) {
  check_gradient(self, dims, edge_order);
  std::vector<Tensor> result;
  for (size_t i = 0; i < dims.size(); ++i)
    result.push_back(even_derivative(self, spacing.size() == 1 ? spacing[0] : spacing[i], dims[i], edge_order));
  return result;
}

std::vector<Tensor> uneven_gradient(const Tensor& self, TensorList spacing, IntArrayRef dims, bool dim_given,
                                    int64_t edge_order) {
  check_spacing(self, spacing.size(), dims, dim_given);
  check_gradient(self, dims, edge_order);
  std::vector<Tensor> result;
  for (size_t i = 0; i < dims.size(); ++i) result.push_back(uneven_derivative(self, spacing[i], dims[i], edge_order));
  return result;
}

}  // namespace

std::vector<Tensor> gradient(const Tensor& self, const std::optional<Scalar>& spacing, std::optional<int64_t> dim,
                             int64_t edge_order) {
  const Scalar step = spacing.value_or(Scalar(1));
  return even_gradient(self, {&step, 1}, one_or_all(self, dim), edge_order);
}
std::vector<Tensor> gradient(const Tensor& self, const Scalar& spacing, IntArrayRef dim, int64_t edge_order) {
  return even_gradient(self, {&spacing, 1}, gradient_dims(self, dim), edge_order);
}
std::vector<Tensor> gradient(const Tensor& self, IntArrayRef dim, int64_t edge_order) {
  const Scalar step = 1;
  return even_gradient(self, {&step, 1}, gradient_dims(self, dim), edge_order);
}
std::vector<Tensor> gradient(const Tensor& self, ArrayRef<Scalar> spacing, std::optional<int64_t> dim,
                             int64_t edge_order) {
  const DimVector dims = one_or_all(self, dim);
  check_spacing(self, spacing.size(), dims, dim.has_value());
  return even_gradient(self, spacing, dims, edge_order);
}
std::vector<Tensor> gradient(const Tensor& self, ArrayRef<Scalar> spacing, IntArrayRef dim, int64_t edge_order) {
  const DimVector dims = gradient_dims(self, dim);
  check_spacing(self, spacing.size(), dims, true);
  return even_gradient(self, spacing, dims, edge_order);
}
std::vector<Tensor> gradient(const Tensor& self, TensorList spacing, std::optional<int64_t> dim, int64_t edge_order) {
  return uneven_gradient(self, spacing, one_or_all(self, dim), dim.has_value(), edge_order);
}
std::vector<Tensor> gradient(const Tensor& self, TensorList spacing, IntArrayRef dim, int64_t edge_order) {
  return uneven_gradient(self, spacing, gradient_dims(self, dim), true, edge_order);
}

// ---- trapezoids

namespace {

// The distances between sample points, shaped to broadcast with the intervals of y.
Tensor intervals(const char* op, const Tensor& y, const Tensor& x, int64_t dim) {
  MICA_CHECK(y.dtype() != DType::Bool && x.dtype() != DType::Bool, op,
             ": received a bool input for `x` or `y`, but bool is not supported");
  Tensor places = x;
  if (x.dim() == 1) {
    MICA_CHECK(x.size(0) == y.size(dim), op, ": There must be one `x` value for each sample point");
    DimVector column(y.dim(), 1);
    column[dim] = x.size(0);
    places = x.reshape(column);
  } else if (x.dim() < y.dim()) {
    DimVector sizes(y.dim() - x.dim(), 1);
    for (int64_t s : x.sizes()) sizes.push_back(s);
    places = x.reshape(sizes);
  }
  return mica::slice(places, dim, 1) - mica::slice(places, dim, 0, -1);
}

Tensor neighbour_sums(const Tensor& y, int64_t dim) { return mica::slice(y, dim, 0, -1) + mica::slice(y, dim, 1); }

void check_step(const char* op, const Tensor& y, const Scalar& dx) {
  MICA_CHECK(y.dtype() != DType::Bool, op, ": received a bool input for `y`, but bool is not supported");
  MICA_CHECK(!dx.is_complex() && !dx.is_bool(), op, ": Currently, we only support dx as a real number.");
}

Tensor integral_of_nothing(const Tensor& y, int64_t dim) {
  DimVector sizes;
  for (int64_t d = 0; d < y.dim(); ++d)
    if (d != dim) sizes.push_back(y.size(d));
  return mica::zeros(sizes, y.options());
}

}  // namespace

Tensor trapezoid(const Tensor& y, const Tensor& x, int64_t dim) {
  const int64_t d = wrap_dim(dim, y.dim(), false);
  if (y.size(d) == 0) return integral_of_nothing(y, d);
  return (neighbour_sums(y, d) * intervals("trapezoid", y, x, d)).sum(d) / Scalar(2);
}

Tensor trapezoid(const Tensor& y, const Scalar& dx, int64_t dim) {
  const int64_t d = wrap_dim(dim, y.dim(), false);
  check_step("trapezoid", y, dx);
  if (y.size(d) == 0) return integral_of_nothing(y, d);
  return (y.sum(d) - (y.select(d, 0) + y.select(d, -1)) * Scalar(0.5)) * dx;
}

Tensor trapz(const Tensor& y, const Tensor& x, int64_t dim) { return mica::trapezoid(y, x, dim); }
Tensor trapz(const Tensor& y, double dx, int64_t dim) { return mica::trapezoid(y, Scalar(dx), dim); }

Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, int64_t dim) {
  const int64_t d = wrap_dim(dim, y.dim(), false);
  return (neighbour_sums(y, d) * intervals("cumulative_trapezoid", y, x, d) / Scalar(2.0)).cumsum(d);
}

Tensor cumulative_trapezoid(const Tensor& y, const Scalar& dx, int64_t dim) {
  const int64_t d = wrap_dim(dim, y.dim(), false);
  check_step("cumulative_trapezoid", y, dx);
  return (neighbour_sums(y, d) * Scalar(dx.to_double() / 2)).cumsum(d);
}

}  // namespace mica::composite
