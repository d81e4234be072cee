#include "core/kernel_arguments.h"
#include "shapes/convolution.h"

#include "core/error_advice.h"
#include "core/geometry.h"
#include "core/kept.h"
#include "core/out.h"
#include "core/recorded_convolution.h"
#include "core/recorded_rows.h"
#include "mica/backend/kernel_types.h"
#include "mica/backend/layer_backend.h"
#include "mica/core/recording.h"
#include "mica/generated/layers/convolution.h"
#include "mica/generated/layers/convolution_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"

namespace mica::shapes {

size_t spatial_dimensions(const Tensor& weight) {
  MICA_CHECK(weight.dim() > 2, "weight should have at least three dimensions");
  return static_cast<size_t>(weight.dim()) - 2;
}

DimVector one_per_dimension(const char* name, IntArrayRef list, size_t dims) {
  if (list.size() == dims) return list;
  MICA_CHECK(list.size() == 1, "expected ", name, " to be a single integer value or a list of ", dims,
             " values to match the convolution dimensions, but got ", name, "=", list);
  return DimVector(dims, list[0]);
}

namespace {

template <class Test>
bool any(IntArrayRef list, const Test& test) {
  for (int64_t v : list)
    if (test(v)) return true;
  return false;
}

std::string times(IntArrayRef list) {
  std::string text = "(";
  for (size_t i = 0; i < list.size(); ++i) text += mica::cat(i ? " x " : "", list[i]);
  return text + ")";
}

// The dtypes that torch's kernels take, under the names that its errors have.
void check_dtype(const Tensor& input, const ConvolutionArguments& args) {
  const DType t = input.dtype();
  if (input.numel() == 0) return;  // nothing is computed for an empty batch
  if ((is_floating(t) && !is_float8(t)) || mica::is_complex(t) || t == DType::Int64) return;
  const bool dilated = any(args.dilation, [](int64_t d) { return d != 1; });
  const bool small = t == DType::Int8 || t == DType::UInt8 || t == DType::Int16 || t == DType::Int32;
  if (small && !dilated && !args.transposed) return;
  const bool volume = args.stride.size() == 3;
  unsupported_dtype(args.transposed ? (volume ? "slow_conv_transpose3d_out_cpu" : "slow_conv_transpose2d_out_cpu")
                    : dilated       ? "slow_conv_dilated<>"
                    : volume        ? "compute_columns3d"
                                    : "slow_conv2d_cpu",
                    t);
}

void check_same_type(const Tensor& input, const Tensor& other, const char* what) {
  if (other.dtype() == input.dtype()) return;
  // torch has the two messages in two kernels, and the machine decides which one a program gets.
  const bool narrow = input.dtype() == DType::Float16 || input.dtype() == DType::BFloat16;
  MICA_CHECK(narrow || what == std::string_view("bias"), "expected scalar type ", info(input.dtype()).legacy,
             " but found ", info(other.dtype()).legacy, ": Input type (", cpp_name(input.dtype()), ") and ", what,
             " type (", cpp_name(other.dtype()),
             ") should be the same. Convert the input with .float(), or the whole model with model.to(dtype).");
  fail(mica::cat("Input type (", cpp_name(input.dtype()), ") and ", what, " type (", cpp_name(other.dtype()),
                 ") should be the same"));
}

}  // namespace

ConvolutionArguments::ConvolutionArguments(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                           IntArrayRef stride_, IntArrayRef padding_, IntArrayRef dilation_,
                                           bool transposed_, IntArrayRef output_padding_, int64_t groups_)
    : transposed(transposed_), groups(groups_) {
  const size_t dims = spatial_dimensions(weight);
  MICA_CHECK(weight.dim() <= 5, "convolution: at most three spatial dimensions are supported, but the weight has ",
             weight.dim() - 2);
  MICA_CHECK(groups > 0, "non-positive groups is not supported, but got groups=", groups);
  stride = one_per_dimension("stride", stride_, dims);
  padding = one_per_dimension("padding", padding_, dims);
  dilation = one_per_dimension("dilation", dilation_, dims);
  output_padding = one_per_dimension("output_padding", output_padding_, dims);
  const auto negative = [](int64_t v) { return v < 0; };
  MICA_CHECK(!any(padding, negative), "negative padding is not supported, but got ", IntArrayRef(padding));
  MICA_CHECK(!any(output_padding, negative), "negative output_padding is not supported, but got ",
             IntArrayRef(output_padding));
  MICA_CHECK(!any(stride, [](int64_t v) { return v <= 0; }), "non-positive stride is not supported, but got ",
             IntArrayRef(stride));
  MICA_CHECK(!any(dilation, negative), "dilation should be greater than zero, but got ", IntArrayRef(dilation));
  MICA_CHECK(!any(dilation, [](int64_t v) { return v == 0; }), "non-positive dilation is not supported, but got ",
             IntArrayRef(dilation));
  const IntArrayRef w = weight.sizes(), x = input.sizes();
  MICA_CHECK(input.dim() == weight.dim(), "Expected ", weight.dim(), "-dimensional input for ", weight.dim(),
             "-dimensional weight ", w, ", but got ", input.dim(), "-dimensional input of size ", x, " instead");
  MICA_CHECK(w[0] >= groups, "Given groups=", groups, ", expected weight to be at least ", groups,
             " at dimension 0, but got weight of size ", w, " instead");
  MICA_CHECK(w[0] % groups == 0, "Given groups=", groups, ", expected weight to be divisible by ", groups,
             " at dimension 0, but got weight of size [", w, "] instead");
  const int64_t channels = transposed ? w[0] : w[1] * groups, filters = transposed ? w[1] * groups : w[0];
  const std::string given = transposed ? "Given transposed=1" : mica::cat("Given groups=", groups);
  MICA_CHECK(x[1] == channels, given, ", weight of size ", w, ", expected input", x, " to have ", channels,
             " channels, but got ", x[1], " channels instead");
  MICA_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == filters), "Given ",
             transposed ? "transposed=1, " : "", "weight of size ", w, ", expected bias to be 1-dimensional with ",
             filters, " elements, but got bias of size ", bias.sizes(), " instead");
  if (bias.defined()) check_same_type(input, bias, "bias");
  check_same_type(input, weight, "weight");
  check_one_device("convolution", {&input, &weight, &bias});
  DimVector padded, kernel;
  bool fits = true;
  check_window_numbers("padding", padding);
  for (size_t d = 0; d < dims; ++d) {
    MICA_CHECK(w[d + 2] > 0, "convolution: the kernel is empty: weight of size ", w);
    MICA_CHECK(!transposed || output_padding[d] < std::max(stride[d], dilation[d]),
               "output padding must be smaller than either stride or dilation, but got output_padding ",
               output_padding.ref(), ", stride ", stride.ref(), ", dilation ", dilation.ref());
    padded.push_back(x[d + 2] + 2 * padding[d]);
    // A filter of one element has no gaps, and beyond the input there is no next place. So any large number will do.
    if (w[d + 2] == 1) dilation[d] = 1;
    stride[d] = std::min(stride[d], transposed && x[d + 2] > 1 ? stride[d] : std::max<int64_t>(padded[d], 1));
  }
  check_window_numbers("stride", stride);
  check_window_numbers("dilation", dilation);
  check_window_numbers("output_padding", output_padding);
  for (size_t d = 0; d < dims; ++d) {
    kernel.push_back(dilation[d] * (w[d + 2] - 1) + 1);
    fits = fits && kernel[d] <= padded[d];
  }
  MICA_CHECK(transposed || fits, "Calculated padded input size per channel: ", times(padded),
             ". Kernel size: ", times(kernel), ". Kernel size can't be greater than actual input size");
  MICA_CHECK(input.numel() > 0 || x[0] == 0 || x[1] == 0,
             "Only zero batch or zero channel inputs are supported, but got input shape: ", x);
  if (!input.is_meta()) check_dtype(input, *this);
}

DimVector ConvolutionArguments::output_sizes(const Tensor& input, const Tensor& weight) const {
  const IntArrayRef x = input.sizes(), w = weight.sizes();
  DimVector sizes{x[0], x[1] == 0 ? 0 : transposed ? w[1] * groups : w[0]};
  for (size_t d = 0; d < stride.size(); ++d) {
    const int64_t reach = dilation[d] * (w[d + 2] - 1), n = x[d + 2];
    int64_t span = 0;
    MICA_CHECK(!transposed || (!__builtin_mul_overflow(n - 1, stride[d], &span) && span < INT64_MAX / 2),
               "convolution: an output of ", n, " places ", stride[d], " apart is too large");
    sizes.push_back(transposed ? span - 2 * padding[d] + reach + output_padding[d] + 1
                               : (n + 2 * padding[d] - reach - 1) / stride[d] + 1);
  }
  const IntArrayRef places = sizes.ref().slice(2, stride.size());
  for (const int64_t size : places)
    MICA_CHECK(size > 0 || (size == 0 && input.numel() == 0),
               "Given input size per channel: ", times(x.slice(2, stride.size())),
               ". Calculated output size per channel: ", times(places), ". Output size is too small");
  return sizes;
}

MemoryFormat convolution_format(const Tensor& input, const Tensor& weight) {
  const int64_t dims = weight.dim() - 2;
  const DType t = input.dtype();
  // Like torch's, volumes keep their layout only in the dtypes that networks use.
  const bool takes_volumes = t == DType::Float32 || is_narrow(t);
  if (input.numel() == 0 || dims < 2 || (dims == 3 && !takes_volumes)) return MemoryFormat::Contiguous;
  const bool plain = input.suggest_memory_format() == MemoryFormat::Contiguous &&
                     weight.suggest_memory_format() == MemoryFormat::Contiguous;
  if (plain) return MemoryFormat::Contiguous;
  return dims == 2 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d;
}

DType convolution_dtype(const Tensor& input, const Tensor& weight, bool transposed, int64_t groups) {
  const DType t = input.dtype();
  if (t == DType::Complex32) return DType::Complex64;
  if (!is_narrow(t) || !input.is_cpu()) return t;
  if (transposed || groups > 1) return DType::Float32;
  const bool one_tap = weight.numel() == weight.sizes()[0] * weight.sizes()[1];
  return t == DType::Float16 && !one_tap ? DType::Float32 : t;
}

Tensor dense_weight(const Tensor& weight) {
  const MemoryFormat last = weight.dim() == 5 ? MemoryFormat::ChannelsLast3d : MemoryFormat::ChannelsLast;
  if (weight.is_contiguous() || (weight.dim() > 3 && weight.is_contiguous(last))) return weight;
  return weight.contiguous();
}

void convolution(Out& out, const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
                 IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                 int64_t groups) {
  const ConvolutionArguments args(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  const DimVector sizes = args.output_sizes(input, weight);
  const MemoryFormat format = convolution_format(input, weight);
  const DType computed = convolution_dtype(input, weight, transposed, groups);
  if (computed != input.dtype()) {
    const Tensor wide =
        mica::convolution(input.to(computed), weight.to(computed), bias.defined() ? bias.to(computed) : bias, stride,
                          padding, dilation, transposed, output_padding, groups);
    out.take(wide.to(input.dtype()));
    return;
  }
  const bool may_wait = recording::in_function() && !transposed && format == MemoryFormat::Contiguous &&
                        input.is_cpu() && input.dtype() == DType::Float32;
  const recording::Promises promised(may_wait);
  const Tensor& result =
      out.set(sizes, input.dtype(), input.device(),
              format == MemoryFormat::Contiguous ? DimVector() : memory_format_strides(sizes, format));
  if (!out.needs_kernel()) return;
  const Tensor x = input.contiguous(format), w = dense_weight(weight),
               b = bias.defined() ? bias.contiguous() : Tensor();
  const TensorView bias_view = view_or_none(b);  // what it holds is computed before
  if (transposed) {
    MICA_LAYER_KERNEL(input.device(), convolution_input_gradient)
    (result.view_of(), x.view_of(), w.view_of(), bias_view, args.stride, args.padding, args.dilation, groups);
  } else {
    const auto kernel = MICA_LAYER_KERNEL(input.device(), convolution);
    if (may_wait) {
      // What it reads is computed before, unless it is a product that the kernel can compute as it reads it.
      const bool one_pixel =
          w.numel() == w.size(0) * w.size(1) && groups == 1 && result.numel() * w.size(1) == x.numel() * w.size(0);
      if (!one_pixel || !recording::waits_as_product(x))
        recording::compute_input(result, x, w, b, args.stride, args.padding, args.dilation, groups);
      (void)kept::view_to_read(w);
      if (recording::put_off_convolution(kernel, result, x, w, b, args.stride, args.padding, args.dilation, groups))
        return;
    }
    const kept::Scope scope(w);
    kernel(result.view_of(), x.view_of(), kept::view_to_read(w), bias_view, args.stride, args.padding, args.dilation,
           groups);
  }
}

}  // namespace mica::shapes
