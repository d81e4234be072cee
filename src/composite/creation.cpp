// Factories.
#include <algorithm>

#include "core/allocate.h"
#include "core/default_device.h"
#include "core/entry.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/uninitialized.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/generated/layers/sparse.h"
#include "mica/ops.h"
#include "mica/values.h"
#include "shapes/indexing.h"
#include "mica/warning.h"

namespace mica::composite {

namespace {

void check_layout(const char* op, const TensorOptions& o) {
  MICA_CHECK_KIND(!o.has_layout() || o.layout() == Layout::Strided, NotImplemented, op,
                  "(): only layout=torch.strided is there");
}

bool is_sparse(const TensorOptions& o) {
  return o.has_layout() && o.layout() != Layout::Strided && o.layout() != Layout::Jagged;
}

// A sparse tensor without elements.
Tensor empty_sparse(IntArrayRef size, const TensorOptions& options) {
  const Layout layout = options.layout();
  const TensorOptions own = TensorOptions(options.dtype()).device(options.device());
  const TensorOptions places = own.dtype(DType::Int64);
  const auto dims = static_cast<int64_t>(size.size());
  const IntArrayRef nothing(int64_t{0});
  Tensor made;
  if (layout == Layout::SparseCoo) {
    made = mica::_sparse_coo_tensor_unsafe(mica::empty({dims, 0}, places), mica::empty(nothing, own), size, true);
  } else {
    MICA_CHECK(layout == Layout::SparseCsr || layout == Layout::SparseCsc,
               "empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got ", layout);
    MICA_CHECK(dims >= 2,
               "torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size ", size);
    DimVector starts(size.slice(0, static_cast<size_t>(dims - 2))), none = starts;
    starts.push_back(size[static_cast<size_t>(layout == Layout::SparseCsr ? dims - 2 : dims - 1)] + 1);
    none.push_back(0);
    made = mica::_sparse_compressed_tensor_unsafe(mica::zeros(starts, places), mica::empty(none, places),
                                                  mica::empty(none, own), size, layout);
  }
  return options.requires_grad() ? made.requires_grad_(true) : made;
}

// The options, with those that were not given taken from `t`.
TensorOptions inherit(TensorOptions o, const Tensor& t) {
  if (!o.has_dtype()) o = o.dtype(t.dtype());
  if (!o.has_device()) o = o.device(t.device());
  return o;
}

TensorOptions inherit_layout(const TensorOptions& o, const Tensor& t) {
  const TensorOptions own = inherit(o, t);
  return own.has_layout() || t.layout() == Layout::Strided ? own : own.layout(t.layout());
}

DType dtype_of_number(const Scalar& s) {
  switch (s.category()) {
    case Category::Bool:
      return DType::Bool;
    case Category::Integral:
      return DType::Int64;
    case Category::Floating:
      return default_dtype();
    default:
      return default_complex_dtype();
  }
}

}  // namespace

Tensor empty(IntArrayRef size, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  if (is_sparse(options)) return empty_sparse(size, options);
  check_layout("empty", options);
  const DType dtype = options.dtype();
  const Device device = options.device();
  if (!memory_format || *memory_format == MemoryFormat::Contiguous)
    return made_with(filled_if_asked(empty_contiguous(size, dtype, device)), options);
  MICA_CHECK(*memory_format != MemoryFormat::Preserve,
             "Preserve memory format is not supported by empty: there is no tensor to take it from");
  return made_with(
      filled_if_asked(empty_with_strides(size, memory_format_strides(size, *memory_format), dtype, device)), options);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, const TensorOptions& options) {
  MICA_CHECK(size.size() == stride.size(), "dimensionality of sizes (", size.size(),
             ") must match dimensionality of strides (", stride.size(), "): got ", size, " and ", stride);
  for (int64_t s : stride)
    MICA_CHECK(s >= 0, "Storage size calculation overflowed with sizes=", size, " and strides=", stride,
               ": the strides of a new tensor are not negative");
  return made_with(filled_if_asked(empty_with_strides(size, stride, options.dtype(), options.device())), options);
}

Tensor empty_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  const TensorOptions o = inherit(options, self);
  check_layout("empty_like", o);
  const MemoryFormat format = memory_format.value_or(MemoryFormat::Preserve);
  if (format == MemoryFormat::Preserve)
    return made_with(filled_if_asked(empty_dense_like(self, o.dtype(), o.device())), o);
  const DimVector strides = memory_format_strides(self.sizes(), format);
  return made_with(filled_if_asked(empty_with_strides(self.sizes(), strides, o.dtype(), o.device())), o);
}

Tensor full(IntArrayRef size, const Scalar& fill_value, const TensorOptions& options) {
  check_layout("full", options);
  const DType dtype = options.has_dtype() ? options.dtype() : dtype_of_number(fill_value);
  Tensor t = empty_contiguous(size, dtype, options.device());
  inplace::fill_(t, fill_value);  // this is not an operation on the tensor, so its version stays 0
  return made_with(std::move(t), options);
}

void full_out(const Tensor& out, IntArrayRef size, const Scalar& fill_value) {
  if (out.sizes() == size) {
    out.fill_(fill_value);
  } else {
    entry::write_new(out, composite::full(size, fill_value, out.options()));
  }
}

Tensor full_like(const Tensor& self, const Scalar& fill_value, const TensorOptions& options,
                 std::optional<MemoryFormat> memory_format) {
  const TensorOptions plain = options.requires_grad(false).pinned_memory(false);
  Tensor t = composite::empty_like(self, plain, memory_format);
  inplace::fill_(t, fill_value);
  return made_with(std::move(t), options);
}

Tensor zeros(IntArrayRef size, const TensorOptions& options) {
  if (is_sparse(options)) return empty_sparse(size, options);
  check_layout("zeros", options);
  Tensor t = empty_contiguous(size, options.dtype(), options.device());
  inplace::zero_(t);
  return made_with(std::move(t), options);
}
void zeros_out(const Tensor& out, IntArrayRef size) {
  if (out.sizes() == size) {
    out.zero_();
  } else {
    entry::write_new(out, composite::zeros(size, out.options()));
  }
}
Tensor zeros_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  return composite::full_like(self, 0, options, memory_format);
}
Tensor ones(IntArrayRef size, const TensorOptions& options) {
  return composite::full(size, 1, options.dtype(options.dtype()));
}
void ones_out(const Tensor& out, IntArrayRef size) { composite::full_out(out, size, 1); }
Tensor ones_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  return composite::full_like(self, 1, options, memory_format);
}

Tensor scalar_tensor(const Scalar& s, const TensorOptions& options) {
  return composite::full({}, s, options.dtype(options.dtype()));
}

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options) {
  check_layout("arange", options);
  const bool integral = !start.is_floating() && !end.is_floating() && !step.is_floating();
  const DType dtype = options.has_dtype() ? options.dtype() : integral ? DType::Int64 : default_dtype();
  MICA_CHECK(dtype != DType::Bool && !is_complex(dtype), "arange not supported for dtype ", dtype);
  const double from = start.to_double(), to = end.to_double(), by = step.to_double();
  MICA_CHECK(by != 0, "step must be nonzero");
  MICA_CHECK(std::isfinite(from) && std::isfinite(to), "unsupported range: ", from, " -> ", to);
  MICA_CHECK((by > 0 && to >= from) || (by < 0 && to <= from),
             "upper bound and lower bound inconsistent with step sign");
  double count;
  if (dtype == DType::Int64 || (integral && is_integral(dtype))) {  // bounds and step of int64 lose their fractions
    const int64_t s = step.cast<int64_t>();
    MICA_CHECK_KIND(s != 0, Value, "step must be nonzero; ", step, " is 0 as int64");
    const auto a = static_cast<uint64_t>(start.cast<int64_t>()), b = static_cast<uint64_t>(end.cast<int64_t>());
    const uint64_t distance = s > 0 ? b - a : a - b,
                   by_each = s > 0 ? static_cast<uint64_t>(s) : -static_cast<uint64_t>(s);
    count = static_cast<double>(distance / by_each + (distance % by_each != 0));
  } else {
    count = std::ceil((to - from) / by);
  }
  MICA_CHECK(count >= 0 && count <= 9.2e18, "invalid size, possible overflow?");
  Tensor t = empty_contiguous({static_cast<int64_t>(count)}, dtype, options.device());
  if (has_work(t)) MICA_KERNEL(t.device(), arange)(t.view_of(), start, step);
  return made_with(t, options);
}

Tensor eye(int64_t n, int64_t m, const TensorOptions& options) {
  MICA_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  MICA_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  const TensorOptions plain = options.requires_grad(false).pinned_memory(false);
  const Tensor t = composite::zeros({n, m}, plain);
  inplace::fill_(views::diagonal(t, 0, 0, 1), 1);
  return made_with(t, options);
}
Tensor eye(int64_t n, const TensorOptions& options) { return composite::eye(n, n, options); }
void eye_out(const Tensor& out, int64_t n, int64_t m) {
  if (out.sizes() == IntArrayRef{n, m}) {
    out.zero_();
    out.diagonal().fill_(1);
  } else {
    entry::write_new(out, composite::eye(n, m, out.options()));
  }
}
void eye_out(const Tensor& out, int64_t n) { composite::eye_out(out, n, n); }

namespace {

DType sequence_dtype(const char* op, const Scalar& start, const Scalar& end, const TensorOptions& options) {
  const bool complex_bounds = start.is_complex() || end.is_complex();
  if (!options.has_dtype()) return complex_bounds ? default_complex_dtype() : default_dtype();
  MICA_CHECK(!complex_bounds || is_complex(options.dtype()), "torch.", op,
             "(): inferred dtype c10::complex<float> can't be safely cast to passed dtype ",
             info(options.dtype()).legacy);
  return options.dtype();
}

// A bound, rounded to an element of the result.
Scalar as_element(const Scalar& bound, DType dtype) {
  check_number_fits(bound, dtype);
  return mica::scalar_tensor(bound, TensorOptions(dtype).device(kCPU)).item();
}

}  // namespace

Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, const TensorOptions& options) {
  check_layout("linspace", options);
  MICA_CHECK(steps >= 0, "number of steps must be non-negative, but got ", steps);
  const DType dtype = sequence_dtype("linspace", start, end, options);
  check_number_fits(start, dtype);
  check_number_fits(end, dtype);
  const Tensor t = empty_contiguous({steps}, dtype, options.device());
  if (steps > 0 && !t.is_meta()) MICA_KERNEL(t.device(), linspace)(t.view_of(), start, end);
  return made_with(t, options);
}

Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base, const TensorOptions& options) {
  check_layout("logspace", options);
  MICA_CHECK(steps >= 0, "number of steps must be non-negative, but got ", steps);
  const DType dtype = sequence_dtype("logspace", start, end, options);
  MICA_CHECK_KIND(dtype != DType::Bool, NotImplemented, "\"logspace\" not implemented for 'Bool'");
  const TensorOptions plain =
      options.dtype(is_complex(dtype) ? DType::Complex128 : DType::Float64).requires_grad(false).pinned_memory(false);
  // A single element is the power of `start` itself, not of a rounded one.
  const Tensor exponents = steps == 1
                               ? composite::linspace(start, end, steps, plain)
                               : composite::linspace(as_element(start, dtype), as_element(end, dtype), steps, plain);
  return made_with(mica::pow(Scalar(base), exponents).to(dtype), options);
}

// ---- bounds that tensors hold

namespace {

void check_bounds(const char* op, int64_t start_dims, int64_t end_dims) {
  MICA_CHECK(start_dims == 0 && end_dims == 0, op,
             " only supports 0-dimensional start and end tensors, but got start with ", start_dims,
             " dimension(s) and end with ", end_dims, " dimension(s).");
}

}  // namespace

Tensor linspace(const Tensor& start, const Tensor& end, int64_t steps, const TensorOptions& options) {
  check_bounds("linspace", start.dim(), end.dim());
  return composite::linspace(start.item(), end.item(), steps, options);
}
Tensor linspace(const Tensor& start, const Scalar& end, int64_t steps, const TensorOptions& options) {
  check_bounds("linspace", start.dim(), 0);
  return composite::linspace(start.item(), end, steps, options);
}
Tensor linspace(const Scalar& start, const Tensor& end, int64_t steps, const TensorOptions& options) {
  check_bounds("linspace", 0, end.dim());
  return composite::linspace(start, end.item(), steps, options);
}

Tensor logspace(const Tensor& start, const Tensor& end, int64_t steps, double base, const TensorOptions& options) {
  check_bounds("logspace", start.dim(), end.dim());
  return composite::logspace(start.item(), end.item(), steps, base, options);
}
Tensor logspace(const Tensor& start, const Scalar& end, int64_t steps, double base, const TensorOptions& options) {
  check_bounds("logspace", start.dim(), 0);
  return composite::logspace(start.item(), end, steps, base, options);
}
Tensor logspace(const Scalar& start, const Tensor& end, int64_t steps, double base, const TensorOptions& options) {
  check_bounds("logspace", 0, end.dim());
  return composite::logspace(start, end.item(), steps, base, options);
}

Tensor range(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options) {
  warn(
      "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
      "Python's range "
      "builtin. Instead, use torch.arange, which produces values in [start, end).");
  const double from = start.to_double(), to = end.to_double(), by = step.to_double();
  MICA_CHECK(by != 0, "step must be nonzero");
  MICA_CHECK(std::isfinite(from) && std::isfinite(to), "unsupported range: ", from, " -> ", to);
  MICA_CHECK((by > 0 && to >= from) || (by < 0 && to <= from),
             "upper bound and lower bound inconsistent with step sign");
  const Device device = options.device_opt().value_or(tensor_type_device());
  const Tensor t = empty_contiguous({static_cast<int64_t>((to - from) / by + 1)}, options.dtype(), device);
  if (has_work(t)) MICA_KERNEL(t.device(), arange)(t.view_of(), start, step);
  return made_with(t, options);
}

static Tensor triangle_indices(int64_t row, int64_t col, int64_t offset, bool upper, const TensorOptions& options) {
  MICA_CHECK(row >= 0, "row must be non-negative, got", row);
  MICA_CHECK(col >= 0, "col must be non-negative, got", col);
  const DType dtype = options.dtype_opt().value_or(DType::Int64);
  const Device device = options.device();
  if (device.is_meta()) {
    int64_t count = 0;
    for (int64_t i = 0; i < row; ++i) {
      const int64_t before = std::clamp<int64_t>(upper ? i + offset : i + offset + 1, 0, col);
      count += upper ? col - before : before;
    }
    return empty_contiguous({2, count}, dtype, device);
  }
  const Tensor ones = mica::ones({row, col}, TensorOptions(device).dtype(DType::Bool));
  return mica::nonzero(upper ? ones.triu(offset) : ones.tril(offset)).t().contiguous().to(dtype);
}
Tensor triu_indices(int64_t row, int64_t col, int64_t offset, const TensorOptions& options) {
  return triangle_indices(row, col, offset, true, options);
}
Tensor tril_indices(int64_t row, int64_t col, int64_t offset, const TensorOptions& options) {
  return triangle_indices(row, col, offset, false, options);
}

Tensor empty_permuted(IntArrayRef size, IntArrayRef physical_layout, const TensorOptions& options) {
  MICA_CHECK(size.size() == physical_layout.size(),
             "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = ",
             size.size(), " is not equal to len(physical_layout) = ", physical_layout.size());
  DimVector order, physical;
  for (size_t i = 0; i < size.size(); ++i) {
    const int64_t d = physical_layout[i];
    MICA_CHECK(d >= 0 && d < static_cast<int64_t>(size.size()), "Dimension out of range (expected to be between 0 and ",
               size.size() - 1, ", but got ", d, " at index ", i, ").");
    MICA_CHECK(std::find(order.begin(), order.end(), d) == order.end(), "Duplicate dim not allowed: ", d);
    order.push_back(d);
  }
  for (int64_t d : order) physical.push_back(size[d]);
  const DimVector dense = contiguous_strides(physical);
  DimVector strides(size.size());
  for (size_t i = 0; i < order.size(); ++i) strides[order[i]] = dense[i];
  return composite::empty_strided(size, strides, options);
}

Tensor new_empty(const Tensor& self, IntArrayRef size, const TensorOptions& options) {
  return composite::empty(size, inherit_layout(options, self), std::nullopt);
}
Tensor new_empty_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride, const TensorOptions& options) {
  return composite::empty_strided(size, stride, inherit(options, self));
}
Tensor new_zeros(const Tensor& self, IntArrayRef size, const TensorOptions& options) {
  return composite::zeros(size, inherit_layout(options, self));
}
Tensor new_ones(const Tensor& self, IntArrayRef size, const TensorOptions& options) {
  return composite::ones(size, inherit(options, self));
}
Tensor new_full(const Tensor& self, IntArrayRef size, const Scalar& fill_value, const TensorOptions& options) {
  return composite::full(size, fill_value, inherit(options, self));
}

}  // namespace mica::composite
