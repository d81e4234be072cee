#include "core/kernel_arguments.h"
#include "shapes/recorded_reduction.h"
#include "shapes/reduced_dims.h"

#include <cmath>

#include "core/error_advice.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::shapes {

void check_not_empty(const char* op, const Tensor& self, uint64_t dims) {
  if (self.numel() > 0) return;
  MICA_CHECK(dims != kAllDims, op,
             "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
             "'dim' argument.");
  for (int64_t d = 0; d < self.dim(); ++d)
    MICA_CHECK_KIND(!(dims >> d & 1) || self.sizes()[d] > 0, Index, op, "(): Expected reduction dim ", d,
                    " to have non-zero size.");
}

namespace {

bool is_number_without_fraction(DType t) { return is_integral(t) || t == DType::Bool; }

// The dtype in which sums and products are computed: integers would overflow in their own dtype.
DType sum_dtype(const Out& out, const Tensor& self, std::optional<DType> dtype) {
  if (dtype) return *dtype;
  if (out.defined_given()) return *out.given_dtype();
  return is_number_without_fraction(self.dtype()) ? DType::Int64 : self.dtype();
}

// The input as a kernel takes it, which widens integers to int64 and 16-bit floats to float32 by itself.
Tensor summand(const Tensor& self, DType result) {
  if (self.dtype() == result) return self;
  if (is_number_without_fraction(self.dtype()) && is_integral(result)) return self;
  if (result == DType::Float32 && is_narrow(self.dtype())) return self;
  return self.to(result);
}

// Sums, products and the like: `kernel` is called with the output, the converted input and the dimensions.
template <class Kernel>
void run(Out& out, const Tensor& self, uint64_t dims, bool keepdim, DType result, Kernel kernel) {
  const recording::Promises promised(recording::rows_may_wait(self));
  const Tensor& target = dims == kAllDims && !keepdim
                             ? out.set({}, result, self.device())
                             : out.set(reduced_sizes(self, dims, keepdim), result, self.device());
  if (out.needs_kernel()) kernel(target, self, dims);
}

void run_sum(Out& out, const Tensor& self, uint64_t dims, bool keepdim, std::optional<DType> dtype) {
  const DType result = sum_dtype(out, self, dtype);
  run(out, self, dims, keepdim, result, [&](const Tensor& target, const Tensor& t, uint64_t d) {
    reduce("reduce_sum", MICA_KERNEL(t.device(), reduce_sum), target, t.dtype() == result ? t : summand(t, result), d);
  });
}

void run_mean(Out& out, const Tensor& self, uint64_t dims, bool keepdim, std::optional<DType> dtype) {
  const DType result = dtype.value_or(self.dtype());
  MICA_CHECK(is_floating(result) || is_complex(result), "mean(): could not infer output dtype. ",
             dtype ? "Optional" : "Input",
             " dtype must be either a floating point or complex dtype. Got: ", info(result).legacy);
  run(out, self, dims, keepdim, result, [&](const Tensor& target, const Tensor& t, uint64_t d) {
    reduce("reduce_mean", MICA_KERNEL(t.device(), reduce_mean), target, summand(t, result), d);
  });
}

void run_prod(Out& out, const Tensor& self, uint64_t dims, bool keepdim, std::optional<DType> dtype) {
  const DType result = sum_dtype(out, self, dtype);
  run(out, self, dims, keepdim, result, [&](const Tensor& target, const Tensor& t, uint64_t d) {
    reduce("reduce_prod", MICA_KERNEL(t.device(), reduce_prod), target, summand(t, result), d);
  });
}

}  // namespace

void check_out_dtype(const Out& out, DType wanted) {
  MICA_CHECK(!out.defined_given() || *out.given_dtype() == wanted, "Expected out tensor to have dtype ",
             cpp_name(wanted), ", but got ", cpp_name(*out.given_dtype()), " instead");
}

// ---- sums and products

void sum_all(Out& out, const Tensor& self, std::optional<DType> dtype) { run_sum(out, self, kAllDims, false, dtype); }
void sum(Out& out, const Tensor& self, OptionalIntArrayRef dim, bool keepdim, std::optional<DType> dtype) {
  run_sum(out, self, reduced_dims(dim, self.dim()), keepdim, dtype);
}

void nansum(Out& out, const Tensor& self, OptionalIntArrayRef dim, bool keepdim, std::optional<DType> dtype) {
  MICA_CHECK(!self.is_complex(), "nansum on CPU does not support complex inputs");
  const DType result = sum_dtype(out, self, dtype);
  run(out, self, reduced_dims(dim, self.dim()), keepdim, result,
      [&](const Tensor& target, const Tensor& t, uint64_t d) {
        // A NaN has no integer value, so it is dropped before the conversion.
        const bool loses_nan = is_floating(t.dtype()) && is_number_without_fraction(result);
        const Tensor input = loses_nan ? mica::where(mica::isnan(t), Scalar(0), t) : t;
        MICA_KERNEL(t.device(), reduce_nansum)(target.view_of(), summand(input, result).view_of(), d);
      });
}

void mean_all(Out& out, const Tensor& self, std::optional<DType> dtype) { run_mean(out, self, kAllDims, false, dtype); }
void mean(Out& out, const Tensor& self, OptionalIntArrayRef dim, bool keepdim, std::optional<DType> dtype) {
  run_mean(out, self, reduced_dims(dim, self.dim()), keepdim, dtype);
}

void prod_all(Out& out, const Tensor& self, std::optional<DType> dtype) { run_prod(out, self, kAllDims, false, dtype); }
void prod(Out& out, const Tensor& self, int64_t dim, bool keepdim, std::optional<DType> dtype) {
  run_prod(out, self, reduced_dim(dim, self.dim()), keepdim, dtype);
}

// ---- tests and counts

namespace {

void check_truth_out(const char* op, const Out& out) {
  const DType t = out.given_dtype().value_or(DType::Bool);
  MICA_CHECK(t == DType::Bool || t == DType::UInt8, op, " only supports bool tensor for result, got: ", info(t).legacy);
}

// uint8 stood for bool before there was one, and tests of uint8 still give uint8.
DType truth_dtype(const Out& out, const Tensor& self) {
  return out.given_dtype().value_or(self.dtype() == DType::UInt8 ? DType::UInt8 : DType::Bool);
}

void run_all(Out& out, const Tensor& self, uint64_t dims, bool keepdim) {
  check_truth_out("all", out);
  run(out, self, dims, keepdim, truth_dtype(out, self), [](const Tensor& target, const Tensor& t, uint64_t d) {
    MICA_KERNEL(t.device(), reduce_all)(target.view_of(), t.view_of(), d);
  });
}

void run_any(Out& out, const Tensor& self, uint64_t dims, bool keepdim) {
  check_truth_out("any", out);
  run(out, self, dims, keepdim, truth_dtype(out, self), [](const Tensor& target, const Tensor& t, uint64_t d) {
    MICA_KERNEL(t.device(), reduce_any)(target.view_of(), t.view_of(), d);
  });
}

void run_count_nonzero(Out& out, const Tensor& self, uint64_t dims) {
  run(out, self, dims, false, DType::Int64, [](const Tensor& target, const Tensor& t, uint64_t d) {
    MICA_KERNEL(t.device(), reduce_count_nonzero)(target.view_of(), t.view_of(), d);
  });
}

}  // namespace

void all(Out& out, const Tensor& self) { run_all(out, self, kAllDims, false); }
void all(Out& out, const Tensor& self, int64_t dim, bool keepdim) {
  run_all(out, self, reduced_dim(dim, self.dim()), keepdim);
}
void all(Out& out, const Tensor& self, OptionalIntArrayRef dim, bool keepdim) {
  run_all(out, self, reduced_dims(dim, self.dim(), false), keepdim);
}

void any(Out& out, const Tensor& self) { run_any(out, self, kAllDims, false); }
void any(Out& out, const Tensor& self, int64_t dim, bool keepdim) {
  run_any(out, self, reduced_dim(dim, self.dim()), keepdim);
}
void any(Out& out, const Tensor& self, OptionalIntArrayRef dim, bool keepdim) {
  run_any(out, self, reduced_dims(dim, self.dim(), false), keepdim);
}

void count_nonzero(Out& out, const Tensor& self, std::optional<int64_t> dim) {
  run_count_nonzero(out, self, dim ? reduced_dim(*dim, self.dim()) : kAllDims);
}
void count_nonzero(Out& out, const Tensor& self, IntArrayRef dim) {
  run_count_nonzero(out, self, reduced_dims(dim, self.dim()));
}

// ---- norms and moments

void norm(Out& out, const Tensor& self, const std::optional<Scalar>& p, OptionalIntArrayRef dim, bool keepdim,
          std::optional<DType> dtype) {
  constexpr const char* kOp = "linalg.vector_norm";
  MICA_CHECK(is_floating(self.dtype()) || self.is_complex(), kOp,
             ": Expected a floating point or complex tensor as input. Got ", info(self.dtype()).legacy);
  MICA_CHECK(!p || !p->is_complex(), kOp, ": Expected a non-complex scalar as the order of norm.");
  if (dtype) {
    MICA_CHECK(is_floating(*dtype) || is_complex(*dtype), kOp, ": dtype should be floating point or complex, but got ",
               info(*dtype).legacy);
    MICA_CHECK(is_complex(*dtype) == self.is_complex(), kOp, ": dtype should be ",
               self.is_complex() ? "complex for complex inputs" : "real for real inputs", ", but got ",
               info(*dtype).legacy);
  }
  const double order = p ? p->to_double() : 2.0;
  const uint64_t dims = reduced_dims(dim, self.dim());
  if (self.numel() == 0 && (order < 0 || std::isinf(order))) {
    const Scalar shown = p ? *p : Scalar(2);
    MICA_CHECK(dims != kAllDims, kOp, " cannot compute the ", shown,
               " norm on an empty tensor because the operation does not have an identity");
    for (int64_t d = 0; d < self.dim(); ++d)
      MICA_CHECK(!(dims >> d & 1) || self.sizes()[d] != 0, kOp, " cannot compute the ", shown,
                 " norm on the dimension ", d,
                 " because this dimension is empty and the operation does not have an identity");
  }
  const DType computed = dtype.value_or(self.dtype()), result = to_real(computed);
  check_out_dtype(out, result);
  run(out, self, dims, keepdim, result, [&](const Tensor& target, const Tensor& t, uint64_t d) {
    MICA_KERNEL(t.device(), reduce_norm)(target.view_of(), summand(t, computed).view_of(), d, order);
  });
}

void norm_all(Out& out, const Tensor& self, const Scalar& p) {
  shapes::norm(out, self, p, std::nullopt, false, std::nullopt);
}

namespace {

// The variance and, where it is asked for, the mean. The variance of complex numbers is the sum of the variances of
// their parts.
void run_var(const char* op, Out& out, Out* mean, const Tensor& self, OptionalIntArrayRef dim,
             const std::optional<Scalar>& correction, bool keepdim, bool root) {
  MICA_CHECK(is_floating(self.dtype()) || self.is_complex(), mean ? op : "std and var",
             " only support floating point and complex dtypes");
  const double less = correction ? correction->to_double() : 1.0;
  const uint64_t dims = reduced_dims(dim, self.dim());
  const DimVector sizes = reduced_sizes(self, dims, keepdim);
  if ((self.numel() == 0 ? 0 : static_cast<double>(reduced_count(self, dims))) <= less)
    warn(mica::cat(op,
                   "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
                   "(input numel divided by output numel)."));
  if (self.is_complex()) {
    const Tensor parts =
        mica::var(mica::real(self), dim, correction, keepdim) + mica::var(mica::imag(self), dim, correction, keepdim);
    out.take(root ? mica::sqrt(parts) : parts);
    if (mean) mean->take(mica::mean(self, dim, keepdim));
    return;
  }
  const Tensor& target = out.set(sizes, self.dtype(), self.device());
  const TensorView no_mean;
  const TensorView& mean_view = mean ? mean->set(sizes, self.dtype(), self.device()).view_of() : no_mean;
  if (out.needs_kernel())
    MICA_KERNEL(self.device(), reduce_var)(target.view_of(), mean_view, self.view_of(), dims, less, root);
}

}  // namespace

void var(Out& out, const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>& correction, bool keepdim) {
  run_var("var", out, nullptr, self, dim, correction, keepdim, false);
}
void std(Out& out, const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>& correction, bool keepdim) {
  run_var("std", out, nullptr, self, dim, correction, keepdim, true);
}
void var_mean(Out& var, Out& mean, const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>& correction,
              bool keepdim) {
  run_var("var_mean", var, &mean, self, dim, correction, keepdim, false);
}
void std_mean(Out& std, Out& mean, const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>& correction,
              bool keepdim) {
  run_var("std_mean", std, &mean, self, dim, correction, keepdim, true);
}

void logsumexp(Out& out, const Tensor& self, IntArrayRef dim, bool keepdim) {
  const uint64_t dims = reduced_dims(dim, self.dim());
  if (self.is_complex()) {
    const Tensor largest = self.numel() ? mica::amax(mica::real(self), dim, true)
                                        : mica::zeros(reduced_sizes(self, dims, true), mica::real(self).options());
    const Tensor shift = mica::where(mica::isfinite(largest), largest, Scalar(0));
    Tensor total = mica::log(mica::sum(mica::exp(self - shift), dim, true)) + shift;
    out.take(keepdim ? total : total.view(reduced_sizes(self, dims, false)));
    return;
  }
  const DType result = is_number_without_fraction(self.dtype()) ? default_dtype() : self.dtype();
  run(out, self, dims, keepdim, result, [&](const Tensor& target, const Tensor& t, uint64_t d) {
    MICA_KERNEL(t.device(), reduce_logsumexp)(target.view_of(), summand(t, result).view_of(), d);
  });
}

}  // namespace mica::shapes
