// Sliding blocks of images: im2col (unfold) and col2im (fold).
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/out.h"
#include "mica/backend/kernel_types.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/convolution.h"
#include "mica/generated/layers/convolution_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"

namespace mica::shapes {

namespace {

struct Blocks {
  IntArrayRef kernel, dilation, padding, stride;

  void check() const {
    const auto two = [](const char* name, IntArrayRef list) {
      MICA_CHECK(list.size() == 2, "It is expected ", name, " equals to 2, but got size ", list.size());
      check_window_numbers(name, list);
    };
    two("kernel_size", kernel);
    two("dilation", dilation);
    two("padding", padding);
    two("stride", stride);
    MICA_CHECK(kernel[0] > 0 && kernel[1] > 0,
               "kernel size should be greater than zero, but got kernel_height: ", kernel[0],
               " kernel_width: ", kernel[1]);
    MICA_CHECK(dilation[0] > 0 && dilation[1] > 0,
               "dilation should be greater than zero, but got dilation_height: ", dilation[0],
               " dilation_width: ", dilation[1]);
    MICA_CHECK(padding[0] >= 0 && padding[1] >= 0, "padding should be non-negative, but got pad_height: ", padding[0],
               " pad_width: ", padding[1]);
    MICA_CHECK(stride[0] > 0 && stride[1] > 0, "stride should be greater than zero, but got stride_height: ", stride[0],
               " stride_width: ", stride[1]);
  }

  // How many blocks fit along a dimension; rounds down, also below zero.
  int64_t count(size_t d, int64_t size) const {
    const int64_t room = size + 2 * padding[d] - (dilation[d] * (kernel[d] - 1) + 1);
    return (room >= 0 ? room : room - stride[d] + 1) / stride[d] + 1;
  }
};

std::string pair(IntArrayRef list) { return mica::cat("(", list[0], ", ", list[1], ")"); }

void check_dtype(const char* op, const Tensor& t) {
  const DType d = t.dtype();
  const bool floating = is_floating(d) && !is_float8(d), complex = d == DType::Complex64 || d == DType::Complex128;
  if (!t.is_meta() && !floating && !complex && d != DType::Bool) unsupported_dtype(op, d);
}

}  // namespace

void im2col(Out& out, const Tensor& self, IntArrayRef kernel_size, IntArrayRef dilation, IntArrayRef padding,
            IntArrayRef stride) {
  const Blocks blocks{kernel_size, dilation, padding, stride};
  blocks.check();
  const int64_t n = self.dim();
  bool valid = n == 3 || n == 4;
  for (int64_t d = n == 4 ? 1 : 0; valid && d < n; ++d) valid = self.size(d) != 0;
  MICA_CHECK(
      valid,
      "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
      "but got: ",
      self.sizes());
  const int64_t height = self.size(n - 2), width = self.size(n - 1);
  const int64_t rows = blocks.count(0, height), cols = blocks.count(1, width);
  MICA_CHECK(rows >= 1 && cols >= 1, "Given input with spatial size (", height, ", ", width,
             "), kernel_size=", pair(kernel_size), ", dilation=", pair(dilation), ", padding=", pair(padding),
             ", calculated shape of the array of sliding blocks as (", rows, ", ", cols,
             "), but its components must be at least one.");
  check_dtype("im2col_out_cpu", self);
  DimVector sizes;
  if (n == 4) sizes.push_back(self.size(0));
  sizes.push_back(count_elements({self.size(n - 3), kernel_size[0], kernel_size[1]}));
  sizes.push_back(count_elements({rows, cols}));
  const Tensor& result = out.set(sizes, self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  const Tensor columns = n == 4 ? result : result.unsqueeze(0), image = n == 4 ? self : self.unsqueeze(0);
  MICA_LAYER_KERNEL(self.device(), im2col)
  (columns.view_of(), image.view_of(), kernel_size, dilation, padding, stride);
}

void col2im(Out& out, const Tensor& self, IntArrayRef output_size, IntArrayRef kernel_size, IntArrayRef dilation,
            IntArrayRef padding, IntArrayRef stride) {
  MICA_CHECK(output_size.size() == 2, "It is expected output_size equals to 2, but got size ", output_size.size());
  check_window_numbers("output_size", output_size);
  const Blocks blocks{kernel_size, dilation, padding, stride};
  blocks.check();
  const int64_t n = self.dim();
  MICA_CHECK((n == 2 || n == 3) && self.size(n - 2) != 0 && self.size(n - 1) != 0,
             "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for "
             "input, but got: ",
             self.sizes());
  const int64_t taps = kernel_size[0] * kernel_size[1];
  MICA_CHECK(self.size(n - 2) % taps == 0,
             "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
             "input.size(1)=",
             self.size(n - 2), " and kernel_size=", pair(kernel_size), ".");
  const int64_t rows = blocks.count(0, output_size[0]), cols = blocks.count(1, output_size[1]);
  int64_t count = 0;
  MICA_CHECK(!__builtin_mul_overflow(rows, cols, &count) && self.size(n - 1) == count,
             "Given output_size=", pair(output_size), ", kernel_size=", pair(kernel_size),
             ", dilation=", pair(dilation), ", padding=", pair(padding), ", stride=", pair(stride),
             ", expected size of input's dimension 2 to match the calculated number of "
             "sliding blocks ",
             rows, " * ", cols, " = ", count, ", but got input.size(2)=", self.size(n - 1), ".");
  MICA_CHECK(rows >= 1 && cols >= 1, "Given output_size=", pair(output_size), ", kernel_size=", pair(kernel_size),
             ", dilation=", pair(dilation), ", padding=", pair(padding), ", stride=", pair(stride),
             ", calculated shape of the array of sliding blocks as (", rows, ", ", cols,
             "), which is too small (non-positive)");
  check_dtype("col2im_out_cpu", self);
  DimVector sizes;
  if (n == 3) sizes.push_back(self.size(0));
  for (int64_t s : {self.size(n - 2) / taps, output_size[0], output_size[1]}) sizes.push_back(s);
  if (is_narrow(self.dtype())) {  // overlaps are summed in float
    out.take(
        mica::col2im(self.to(DType::Float32), output_size, kernel_size, dilation, padding, stride).to(self.dtype()));
    return;
  }
  const Tensor& result = out.set(sizes, self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  const Tensor dense = self.contiguous(), columns = n == 3 ? dense : dense.unsqueeze(0),
               image = n == 3 ? result : result.unsqueeze(0);
  MICA_LAYER_KERNEL(self.device(), col2im)
  (image.view_of(), columns.view_of(), kernel_size, dilation, padding, stride);
}

}  // namespace mica::shapes
