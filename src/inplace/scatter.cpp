// Writing one element per index, alone or combined with what is there: scatter_, scatter_add_, scatter_reduce_,
// index_reduce_.
#include <limits>

#include "core/entry.h"
#include "core/out.h"
#include "mica/generated/implementations.h"
#include "mica/warning.h"
#include "shapes/indexing.h"

namespace mica::inplace {

namespace {

// The arguments of a scatter, made plain and checked; `src` undefined for a number.
struct Scatter {
  Scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src);
  bool has_work() const { return index.numel() > 0 && !self.is_meta(); }
  void run(const Tensor& from, std::string_view reduce) const {
    MICA_KERNEL(self.device(), scatter)(self.view_of(), dim, index.view_of(), from.view_of(), reduce);
  }
  // The value, repeated for each element of the index.
  Tensor repeated(const Scalar& value) const { return scalar_tensor(value, self.options()).expand(index.sizes()); }

  Tensor self, index, src;
  int64_t dim;
};

Scatter::Scatter(const Tensor& target, int64_t along, const Tensor& given, const Tensor& source)
    : self(at_least_1d(target)), index(at_least_1d(given)), dim(wrap_dim(along, target.dim())) {
  MICA_CHECK(given.dtype() == DType::Int64 || given.dtype() == DType::Int32 || given.numel() == 0,
             "scatter(): Expected dtype int32/int64 for index, but got ", given.dtype());
  if (source.defined()) {
    MICA_CHECK(source.dtype() == self.dtype(), "scatter(): Expected self.dtype to be equal to src.dtype, but got ",
               self.dtype(), " and ", source.dtype());
    check_apart(target, source);
    src = at_least_1d(apart_from(source, target));
  }
  check_no_internal_overlap("scatter_", target);
  check_apart(target, given);
  if (given.numel() == 0) return;
  MICA_CHECK(self.dim() == index.dim(), "Index tensor must have the same number of dimensions as self tensor, but got ",
             given.sizes(), " for self ", target.sizes());
  MICA_CHECK(!src.defined() || src.dim() == index.dim(),
             "Index tensor must have the same number of dimensions as src tensor, but got ", given.sizes(), " for src ",
             source.defined() ? source.sizes() : IntArrayRef());
  bool fits = true;
  for (int64_t d = 0; d < self.dim(); ++d) {
    fits = fits && (d == dim || index.sizes()[d] <= self.sizes()[d]);
    fits = fits && (!src.defined() || index.sizes()[d] <= src.sizes()[d]);
  }
  if (!fits) {
    std::string message = mica::cat("Expected index ", given.sizes(), " to be no larger than self ", target.sizes(),
                                    " apart from dimension ", dim);
    if (src.defined()) message += mica::cat(" and to be no larger size than src ", source.sizes());
    fail(std::move(message));
  }
  const int64_t n = self.sizes()[dim];
  // An expanded index is checked where it is stored.
  Tensor stored = given;
  for (int64_t d = 0; d < stored.dim(); ++d)
    if (stored.strides()[d] == 0 && stored.sizes()[d] > 1) stored = slice(stored, d, 0, 1);
  if (const auto bad = index_outside(plain_index(stored, self.device()), 0, n))
    fail(mica::cat("index ", *bad, " is out of bounds for dimension ", dim, " with size ", n));
  index = apart_from(index.to(self.device(), DType::Int64), self);
}

// A 16-bit float target is worked on in float and rounded once.
template <class Body>
void in_wide(const Tensor& self, const Tensor& src, const Body& body) {
  if (self.dtype() != DType::Float16 && self.dtype() != DType::BFloat16) return body(self, src);
  const Tensor wide = self.to(DType::Float32);
  body(wide, src.to(DType::Float32));
  self.copy_(wide);
}

// The value that changes nothing under a reduction.
Scalar neutral(DType dtype, std::string_view reduce) {
  if (reduce == "prod") return 1;
  if (reduce == "sum" || reduce == "mean") return 0;
  const bool largest = reduce == "amax";
  if (is_floating(dtype))
    return largest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  switch (dtype) {
#define MICA_CASE(T, Name) \
  case DType::Name:        \
    return largest ? Scalar(std::numeric_limits<T>::lowest()) : Scalar(std::numeric_limits<T>::max());
    MICA_FORALL_INTEGRAL(MICA_CASE)
    MICA_FORALL_UNSIGNED(MICA_CASE)
#undef MICA_CASE
    default:
      return !largest;  // bool
  }
}

std::string_view checked_reduction(std::string_view reduce) {
  if (reduce == "max") return "amax";
  if (reduce == "min") return "amin";
  for (std::string_view known : {"sum", "prod", "mean", "amax", "amin"})
    if (reduce == known) return known;
  fail(mica::cat("reduce argument must be either sum, prod, mean, amax or amin, got ", reduce));
}

// torch's older spelling, of the reduce argument of scatter.
std::string_view checked_operator(std::string_view reduce) {
  MICA_CHECK(reduce == "add" || reduce == "multiply", "reduce argument must be either add or multiply.");
  return reduce == "add" ? "sum" : "prod";
}

void divide_by_counts(const Tensor& self, const Tensor& counts) {
  if (self.is_floating_point() || self.is_complex()) {
    self.div_(counts);
  } else {
    self.copy_(floor_divide(self, counts));
  }
}

void reduce_into(const Tensor& target, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                 bool include_self, bool round_each = false) {
  const Scatter checked(target, dim, index, source);
  MICA_CHECK_KIND(reduce != "mean" || target.dtype() != DType::Bool, NotImplemented,
                  "\"scatter_reduce_mean\" not implemented for 'Bool'");
  if (!checked.has_work()) return;
  const UncountedSteps steps(target);
  const auto body = [&](const Tensor& self, const Tensor& src) {
    Scatter s(checked);
    s.self = self;
    if (!include_self) s.run(s.repeated(neutral(self.dtype(), reduce)), "");
    s.run(src, reduce == "mean" ? "sum" : reduce);
    if (reduce != "mean") return;
    Scatter counting(s);
    counting.self = ones_like(self);
    if (!include_self) counting.run(counting.repeated(0), "");
    counting.run(counting.repeated(1), "sum");
    // A place that got no value is divided by one.
    divide_by_counts(self, counting.self);
  };
  round_each ? body(checked.self, checked.src) : in_wide(checked.self, checked.src, body);
}

}  // namespace

void scatter_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  const Scatter s(self, dim, index, src);
  if (s.has_work()) s.run(s.src, "");
}

void scatter_value_(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  check_number_fits(value, self.dtype());
  const Scatter s(self, dim, index, {});
  if (s.has_work()) s.run(s.repeated(value), "");
}

void scatter_reduced_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                      std::string_view reduce) {
  MICA_WARN_ONCE(
      "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future PyTorch "
      "release. Use torch.scatter_reduce instead for more reduction options.");
  reduce_into(self, dim, index, src, checked_operator(reduce), true);
}

void scatter_value_reduced_(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value,
                            std::string_view reduce) {
  check_number_fits(value, self.dtype());
  const Tensor src = scalar_tensor(value, self.options()).expand(index.sizes());
  reduce_into(self, dim, index, src, checked_operator(reduce), true);
}

void scatter_add_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  reduce_into(self, dim, index, src, "sum", true);
}

void scatter_reduce_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                     bool include_self) {
  reduce_into(self, dim, index, src, checked_reduction(reduce), include_self);
}

// Treats each slice of `source` as elements that all have the index of their slice.
void index_reduce_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                   bool include_self) {
  MICA_CHECK(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin",
             "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got ", reduce, ".");
  const int64_t d = check_index_reduction("index_reduce_", self, dim, index, source);
  check_apart(self, index);
  check_apart(self, source);
  const Tensor at = plain_index(at_least_1d(index), self.device());
  if (const auto bad = index_outside(at, 0, self.dim() ? self.sizes()[d] : 1))
    fail(ErrorKind::Index, mica::cat("index out of range in self: index_reduce_() got ", *bad, " for dimension ", d,
                                     " with size ", self.dim() ? self.sizes()[d] : 1));
  const Tensor from = at_least_1d(source);
  DimVector shape(from.dim(), 1);
  shape[d] = at.numel();
  // Unlike scatter_reduce_, torch rounds 16-bit floats after each value here.
  reduce_into(at_least_1d(self), d, at.view(shape).expand(from.sizes()), from, reduce, include_self, true);
}

}  // namespace mica::inplace
