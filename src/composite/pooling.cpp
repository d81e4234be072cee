// The poolings of torch.nn.functional in terms of the operations that have kernels.
#include <cmath>

#include "mica/autograd.h"
#include "mica/generated/layers/pooling.h"
#include "mica/generated/layers/pooling_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"

namespace mica::composite {

namespace {

DimVector expanded(const char* op, const char* what, IntArrayRef given, size_t n) {
  MICA_CHECK(given.size() == 1 || given.size() == n, op, ": ", what, " must ",
             what[0] == 'd' ? "be either" : "either be", " a single int, or a tuple of ", n == 2 ? "two" : "three",
             " ints");
  return given.size() == 1 ? DimVector(n, given[0]) : DimVector(given);
}

Tensor max_pool(const char* op, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                IntArrayRef dilation, bool ceil_mode, size_t n) {
  const DimVector kernel = expanded(op, "kernel_size", kernel_size, n);
  MICA_CHECK(stride.empty() || stride.size() == 1 || stride.size() == n, op,
             ": stride must either be omitted, a single int, or a tuple of ", n == 2 ? "two" : "three", " ints");
  const DimVector steps = stride.empty() ? kernel : expanded(op, "stride", stride, n);
  return std::get<0>(mica::_max_pool(self, kernel, steps, expanded(op, "padding", padding, n),
                                     expanded(op, "dilation", dilation, n), ceil_mode, compute_requires_grad(self)));
}

// Checks that torch makes for max_pool1d only, in words of its own.
void check_max_pool1d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                      IntArrayRef dilation, bool ceil_mode) {
  const bool filled = self.dim() >= 2 && self.size(-1) != 0 && self.size(-2) != 0;
  MICA_CHECK(filled && self.dim() <= 3,
             "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:",
             self.sizes());
  MICA_CHECK(kernel_size.size() == 1,
             "max_pool1d() kernel_size must be an int, list of ints or tuple of ints of size 1 but got size ",
             kernel_size.size());
  MICA_CHECK(stride.size() <= 1,
             "max_pool1d() stride must be None, an int, list of ints, or tuple of ints of size 1 but got size ",
             stride.size());
  MICA_CHECK(padding.size() == 1,
             "max_pool1d() padding must be an int, list of ints, or tuple of ints of size 1 but got size ",
             padding.size());
  MICA_CHECK(dilation.size() == 1,
             "max_pool1d() dilation must be an int, list of ints or tuple of ints of size 1 but got size ",
             dilation.size());
  for (const IntArrayRef& numbers : {kernel_size, stride, padding, dilation})
    shapes::check_window_numbers("max_pool1d's numbers", numbers);
  const int64_t k = kernel_size[0], s = stride.empty() ? k : stride[0], p = padding[0], d = dilation[0];
  MICA_CHECK(k > 0, "max_pool1d() kernel_size must be greater than zero, but got ", k);
  MICA_CHECK(s > 0, "max_pool1d() stride must be greater than zero, but got ", s);
  MICA_CHECK(p >= 0, "max_pool1d() padding must be non-negative, but got ", p);
  MICA_CHECK(p <= k / 2, "max_pool1d() padding should be at most half of kernel size, but got padding=", p,
             " and kernel_size=", k);
  MICA_CHECK(d > 0, "max_pool1d() dilation must be greater than zero, but got ", d);
  const int64_t reach = self.size(-1) + 2 * p - d * (k - 1) - 1 + (ceil_mode ? s - 1 : 0);
  MICA_CHECK(reach >= 0, "max_pool1d() Invalid computed output size: ", (reach - s + 1) / s + 1);
}

}  // namespace

// ---- maximum -----------------------------------------------------------------------------------------------------

Tensor max_pool1d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  check_max_pool1d(self, kernel_size, stride, padding, dilation, ceil_mode);
  return std::get<0>(mica::_max_pool(self, kernel_size, stride.empty() ? kernel_size : stride, padding, dilation,
                                     ceil_mode, compute_requires_grad(self)));
}
Tensor max_pool2d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return max_pool("max_pool2d", self, kernel_size, stride, padding, dilation, ceil_mode, 2);
}
// Whether a volume without a batch lies with its channels last: the maxima then do too, as in torch.
static bool is_volume_channels_last(const Tensor& self) {
  return self.dim() == 4 && self.size(0) > 1 && !self.is_contiguous() &&
         self.unsqueeze(0).is_contiguous(MemoryFormat::ChannelsLast3d);
}

// The volume as a batch of one, whose strides show that channels come last.
static Tensor batch_of_one(const Tensor& self) {
  const int64_t sizes[] = {1, self.size(0), self.size(1), self.size(2), self.size(3)};
  const int64_t strides[] = {self.numel(), self.stride(0), self.stride(1), self.stride(2), self.stride(3)};
  return self.as_strided(sizes, strides, self.storage_offset());
}

Tensor max_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  if (is_volume_channels_last(self))
    return mica::max_pool3d(batch_of_one(self), kernel_size, stride, padding, dilation, ceil_mode).squeeze(0);
  return max_pool("max_pool3d", self, kernel_size, stride, padding, dilation, ceil_mode, 3);
}

std::tuple<Tensor, Tensor> functional_max_pool1d_with_indices(const Tensor& input, IntArrayRef kernel_size,
                                                              OptionalIntArrayRef stride, IntArrayRef padding,
                                                              IntArrayRef dilation, bool ceil_mode, bool) {
  return mica::max_pool1d_with_indices(input, kernel_size, stride.value_or(IntArrayRef()), padding, dilation,
                                       ceil_mode);
}
std::tuple<Tensor, Tensor> functional_max_pool2d_with_indices(const Tensor& input, IntArrayRef kernel_size,
                                                              OptionalIntArrayRef stride, IntArrayRef padding,
                                                              IntArrayRef dilation, bool ceil_mode, bool) {
  return mica::max_pool2d_with_indices(input, kernel_size, stride.value_or(IntArrayRef()), padding, dilation,
                                       ceil_mode);
}
std::tuple<Tensor, Tensor> functional_max_pool3d_with_indices(const Tensor& input, IntArrayRef kernel_size,
                                                              OptionalIntArrayRef stride, IntArrayRef padding,
                                                              IntArrayRef dilation, bool ceil_mode, bool) {
  if (is_volume_channels_last(input)) {
    const auto [values, indices] = mica::max_pool3d_with_indices(
        batch_of_one(input), kernel_size, stride.value_or(IntArrayRef()), padding, dilation, ceil_mode);
    return {values.squeeze(0), indices.squeeze(0)};
  }
  return mica::max_pool3d_with_indices(input, kernel_size, stride.value_or(IntArrayRef()), padding, dilation,
                                       ceil_mode);
}

// ---- adaptive ----------------------------------------------------------------------------------------------------

namespace {

template <class Pool>
Tensor adaptive_avg_pool(const char* op, const Tensor& self, IntArrayRef output_size, size_t n, Pool pool) {
  const size_t ndim = static_cast<size_t>(self.dim());
  if (n == 1) {
    MICA_CHECK(ndim == 2 || ndim == 3, "Expected 2 to 3 dimensions, but got ", ndim,
               "-dimensional tensor for argument #1 'self' (while checking arguments for ", op, ")");
    MICA_CHECK(output_size.size() == 1, op, "() argument 'output_size' should contain one int (got ",
               output_size.size(), ")");
  }
  MICA_CHECK(output_size.size() == n, op, ": output_size must be ", n);
  MICA_CHECK(ndim == n + 1 || ndim == n + 2, op, "(): Expected ", n + 1, "D or ", n + 2, "D tensor, but got ",
             self.sizes());
  bool whole = true;
  for (int64_t s : output_size) {
    MICA_CHECK(s >= 0, op, ": elements of output_size must be greater than or equal to 0 but received ", output_size);
    whole = whole && s == 1;
  }
  if (!whole) return pool();
  DimVector dims;
  for (size_t d = ndim - n; d < ndim; ++d) dims.push_back(static_cast<int64_t>(d));
  const Tensor mean = mica::mean(self, dims.ref(), true);
  const MemoryFormat format = self.suggest_memory_format();
  // Copied for its strides: one pixel fits either format.
  return format == MemoryFormat::Contiguous ? mean : mean.clone(format);
}

}  // namespace

Tensor adaptive_avg_pool1d(const Tensor& self, IntArrayRef output_size) {
  return adaptive_avg_pool("adaptive_avg_pool1d", self, output_size, 1,
                           [&] { return mica::_adaptive_avg_pool1d(self, output_size); });
}
Tensor adaptive_avg_pool2d(const Tensor& self, IntArrayRef output_size) {
  return adaptive_avg_pool("adaptive_avg_pool2d", self, output_size, 2,
                           [&] { return mica::_adaptive_avg_pool2d(self, output_size); });
}
Tensor adaptive_avg_pool3d(const Tensor& self, IntArrayRef output_size) {
  return adaptive_avg_pool("adaptive_avg_pool3d", self, output_size, 3,
                           [&] { return mica::_adaptive_avg_pool3d(self, output_size); });
}

// ---- fractional --------------------------------------------------------------------------------------------------

namespace {

// The sizes of a fractional pooling and the random numbers that choose its windows.
struct Fractional {
  DimVector sizes;
  Tensor samples;
};

Fractional prepare_fractional(const char* op, const Tensor& input, IntArrayRef kernel_size,
                              OptionalIntArrayRef output_size, std::optional<ArrayRef<double>> ratio,
                              const Tensor& samples, int64_t n) {
  MICA_CHECK_KIND(output_size || ratio, Value, op, " requires specifying either an output_size or an output_ratio");
  const char* ints = n == 2 ? "Ints" : "three Ints";
  MICA_CHECK(static_cast<int64_t>(kernel_size.size()) == n, op,
             ": kernel_size must either be a single Int or tuple of ", ints, ", but got ", kernel_size);
  MICA_CHECK(!output_size || static_cast<int64_t>(output_size->size()) == n, op,
             ": output_size must either be a single Int or tuple of ", ints, ", but got ", *output_size);
  Fractional f{output_size ? DimVector(*output_size) : DimVector(), samples};
  if (!output_size) {
    MICA_CHECK_KIND(ratio->size() == 1 || static_cast<int64_t>(ratio->size()) == n, Value, op,
                    " requires output_ratio to either be a single Int or tuple of Ints.");
    for (int64_t i = 0; i < n; ++i) {
      const double factor = (*ratio)[ratio->size() == 1 ? 0 : static_cast<size_t>(i)];
      f.sizes.push_back(static_cast<int64_t>(static_cast<double>(input.size(i - n)) * factor));
    }
  }
  if (!samples.defined()) {
    const int64_t batch = input.dim() == n + 1 ? 1 : input.size(0);
    f.samples = mica::rand({batch, input.size(-n - 1), n}, std::nullopt, input.options());
  }
  return f;
}

}  // namespace

std::tuple<Tensor, Tensor> functional_fractional_max_pool2d(const Tensor& input, IntArrayRef kernel_size,
                                                            OptionalIntArrayRef output_size,
                                                            std::optional<ArrayRef<double>> output_ratio, bool,
                                                            const Tensor& _random_samples) {
  const Fractional f =
      prepare_fractional("fractional_max_pool2d", input, kernel_size, output_size, output_ratio, _random_samples, 2);
  return mica::fractional_max_pool2d(input, kernel_size, f.sizes, f.samples);
}
std::tuple<Tensor, Tensor> functional_fractional_max_pool3d(const Tensor& input, IntArrayRef kernel_size,
                                                            OptionalIntArrayRef output_size,
                                                            std::optional<ArrayRef<double>> output_ratio, bool,
                                                            const Tensor& _random_samples) {
  const Fractional f =
      prepare_fractional("fractional_max_pool3d", input, kernel_size, output_size, output_ratio, _random_samples, 3);
  return mica::fractional_max_pool3d(input, kernel_size, f.sizes, f.samples);
}

// ---- unpooling ---------------------------------------------------------------------------------------------------

namespace {

struct Unpooling {
  DimVector stride, padding, sizes;
};

// The size of the unpooled result. Where one is given, pooling it must be able to give the input; otherwise it is the
// usual one.
Unpooling prepare_unpooling(const Tensor& input, IntArrayRef kernel_size, OptionalIntArrayRef stride,
                            IntArrayRef padding, OptionalIntArrayRef output_size, int64_t n) {
  const auto at = [n](IntArrayRef given, int64_t i) {
    MICA_CHECK_KIND(given.size() == 1 || static_cast<int64_t>(given.size()) == n, Index,
                    "tuple index out of range: expected ", n, " numbers, but got ", given);
    return given[given.size() == 1 ? 0 : static_cast<size_t>(i)];
  };
  MICA_CHECK(n == 1 || kernel_size.size() == 1 || static_cast<int64_t>(kernel_size.size()) >= n,
             "There should be exactly ",
             n == 2 ? "two elements (height, width)" : "three elements (depth, height, width)",
             " in output_size, but got ", kernel_size.size(), " elements: kernel_size is ", kernel_size);
  IntArrayRef wanted = output_size.value_or(IntArrayRef());
  if (output_size) {
    if (static_cast<int64_t>(wanted.size()) == n + 2) wanted = wanted.slice(2, static_cast<size_t>(n));
    MICA_CHECK_KIND(static_cast<int64_t>(wanted.size()) == n, Value, "output_size should be a sequence containing ", n,
                    " or ", n + 2, " elements, but it has a length of '", wanted.size(), "'");
  }
  Unpooling u;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t kernel = at(kernel_size, i), step = stride ? at(*stride, i) : kernel, pad = at(padding, i);
    int64_t usual, both_pads, low, high;
    const bool overflows =
        __builtin_mul_overflow(input.size(i - n) - 1, step, &usual) || __builtin_add_overflow(usual, kernel, &usual) ||
        __builtin_mul_overflow(pad, 2, &both_pads) || __builtin_sub_overflow(usual, both_pads, &usual) ||
        __builtin_sub_overflow(usual, step, &low) || __builtin_add_overflow(usual, step, &high);
    MICA_CHECK_KIND(!overflows, Value, "max_unpooling: kernel_size ", kernel, ", stride ", step, " and padding ", pad,
                    " ask for more elements than there can be");
    u.stride.push_back(step);
    u.padding.push_back(pad);
    u.sizes.push_back(output_size ? wanted[static_cast<size_t>(i)] : usual);
    MICA_CHECK_KIND(!output_size || (low < u.sizes[i] && u.sizes[i] < high), Value, "invalid output_size \"", wanted,
                    "\" (dim ", i, " must be between ", low, " and ", high, ")");
  }
  for (int64_t i = 0; i < n; ++i)
    MICA_CHECK_KIND(u.sizes[i] >= 0, Value,
                    "max_unpooling: output_size must contain non-negative spatial dimensions, but got output_size[", i,
                    "]=", u.sizes[i]);
  return u;
}

}  // namespace

Tensor functional_max_unpool1d(const Tensor& input, const Tensor& indices, IntArrayRef kernel_size,
                               OptionalIntArrayRef stride, IntArrayRef padding, OptionalIntArrayRef output_size) {
  Unpooling u = prepare_unpooling(input, kernel_size, stride, padding, output_size, 1);
  u.sizes.push_back(1);
  return mica::max_unpool2d(input.unsqueeze(-1), indices.unsqueeze(-1), u.sizes).squeeze(-1);
}
Tensor functional_max_unpool2d(const Tensor& input, const Tensor& indices, IntArrayRef kernel_size,
                               OptionalIntArrayRef stride, IntArrayRef padding, OptionalIntArrayRef output_size) {
  return mica::max_unpool2d(input, indices,
                            prepare_unpooling(input, kernel_size, stride, padding, output_size, 2).sizes);
}
Tensor functional_max_unpool3d(const Tensor& input, const Tensor& indices, IntArrayRef kernel_size,
                               OptionalIntArrayRef stride, IntArrayRef padding, OptionalIntArrayRef output_size) {
  const Unpooling u = prepare_unpooling(input, kernel_size, stride, padding, output_size, 3);
  return mica::max_unpool3d(input, indices, u.sizes, u.stride, u.padding);
}

// ---- power averages ----------------------------------------------------------------------------------------------

namespace {

template <class Max, class Average>
Tensor lp_pool(const Tensor& input, const Scalar& norm_type, IntArrayRef kernel_size, size_t n, Max max,
               Average average) {
  const double p = norm_type.to<double>();
  if (std::isinf(p)) return p > 0 ? max(mica::abs(input)) : mica::neg(max(mica::neg(mica::abs(input))));
  double count = 1;  // also where a window is far larger than the input
  for (size_t i = 0; i < n; ++i) count *= static_cast<double>(kernel_size[kernel_size.size() == 1 ? 0 : i]);
  const Tensor means = average(mica::pow(input, norm_type));
  return mica::pow(mica::mul(mica::sign(means) * mica::relu(mica::abs(means)), count), 1.0 / p);
}

}  // namespace

Tensor lp_pool1d(const Tensor& input, const Scalar& norm_type, IntArrayRef kernel_size, OptionalIntArrayRef stride,
                 bool ceil_mode) {
  const IntArrayRef steps = stride.value_or(IntArrayRef());
  return lp_pool(
      input, norm_type, kernel_size, 1,
      [&](const Tensor& t) { return mica::max_pool1d(t, kernel_size, steps, 0, 1, ceil_mode); },
      [&](const Tensor& t) { return mica::avg_pool1d(t, kernel_size, steps, 0, ceil_mode); });
}
Tensor lp_pool2d(const Tensor& input, const Scalar& norm_type, IntArrayRef kernel_size, OptionalIntArrayRef stride,
                 bool ceil_mode) {
  const IntArrayRef steps = stride.value_or(IntArrayRef());
  return lp_pool(
      input, norm_type, kernel_size, 2,
      [&](const Tensor& t) { return mica::max_pool2d(t, kernel_size, steps, 0, 1, ceil_mode); },
      [&](const Tensor& t) { return mica::avg_pool2d(t, kernel_size, steps, 0, ceil_mode); });
}
Tensor lp_pool3d(const Tensor& input, const Scalar& norm_type, IntArrayRef kernel_size, OptionalIntArrayRef stride,
                 bool ceil_mode) {
  const IntArrayRef steps = stride.value_or(IntArrayRef());
  return lp_pool(
      input, norm_type, kernel_size, 3,
      [&](const Tensor& t) { return mica::max_pool3d(t, kernel_size, steps, 0, 1, ceil_mode); },
      [&](const Tensor& t) { return mica::avg_pool3d(t, kernel_size, steps, 0, ceil_mode); });
}

}  // namespace mica::composite
