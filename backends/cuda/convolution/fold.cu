// im2col and col2im.
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

struct Blocks {
  int64_t channels, height, width, rows, cols;
  int64_t kernel[2], dilation[2], padding[2], stride[2];
};
Blocks blocks_of(const TensorView& image, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
                 IntArrayRef stride) {
  Blocks b{};
  b.channels = image.sizes[1], b.height = image.sizes[2], b.width = image.sizes[3];
  for (size_t a = 0; a < 2; ++a)
    b.kernel[a] = kernel[a], b.dilation[a] = dilation[a], b.padding[a] = padding[a], b.stride[a] = stride[a];
  auto count = [&](int a, int64_t size) {
    return (size + 2 * b.padding[a] - b.dilation[a] * (b.kernel[a] - 1) - 1) / b.stride[a] + 1;
  };
  b.rows = count(0, b.height), b.cols = count(1, b.width);
  return b;
}

// Columns are [batch, channel * tap, position]; the image may have any strides.
template <class T>
struct Unfold {
  Blocks b;
  const T* image;
  int64_t image_strides[4];
  T* columns;
  int64_t column_strides[3];
  __device__ void operator()(int64_t i) const {
    const int64_t positions = b.rows * b.cols, position = i % positions;
    const int64_t taps = b.kernel[0] * b.kernel[1], element = i / positions % (b.channels * taps);
    const int64_t batch = i / (positions * b.channels * taps), tap = element % taps, c = element / taps;
    const int64_t y = position / b.cols * b.stride[0] - b.padding[0] + tap / b.kernel[1] * b.dilation[0];
    const int64_t x = position % b.cols * b.stride[1] - b.padding[1] + tap % b.kernel[1] * b.dilation[1];
    const bool inside = y >= 0 && y < b.height && x >= 0 && x < b.width;
    columns[batch * column_strides[0] + element * column_strides[1] + position * column_strides[2]] =
        inside ? image[batch * image_strides[0] + c * image_strides[1] + y * image_strides[2] + x * image_strides[3]]
               : T{};
  }
};
// Every element of the image gathers the positions that hold it.
template <class T>
struct Fold {
  Blocks b;
  const T* columns;
  T* image;
  int64_t image_strides[4];
  __device__ void operator()(int64_t i) const {
    using C = compute_t<T>;
    const int64_t x = i % b.width, y = i / b.width % b.height, c = i / (b.width * b.height) % b.channels,
                  batch = i / (b.width * b.height * b.channels);
    const int64_t positions = b.rows * b.cols, taps = b.kernel[0] * b.kernel[1];
    const T* from = columns + (batch * b.channels + c) * taps * positions;
    C sum = C(0);
    for (int64_t ky = 0; ky < b.kernel[0]; ++ky) {
      const int64_t top = y + b.padding[0] - ky * b.dilation[0];
      if (top < 0 || top % b.stride[0] || top / b.stride[0] >= b.rows) continue;
      for (int64_t kx = 0; kx < b.kernel[1]; ++kx) {
        const int64_t left = x + b.padding[1] - kx * b.dilation[1];
        if (left < 0 || left % b.stride[1] || left / b.stride[1] >= b.cols) continue;
        const int64_t position = top / b.stride[0] * b.cols + left / b.stride[1];
        sum = static_cast<C>(sum + convert<C>(from[(ky * b.kernel[1] + kx) * positions + position]));
      }
    }
    image[batch * image_strides[0] + c * image_strides[1] + y * image_strides[2] + x * image_strides[3]] =
        convert<T>(sum);
  }
};

}  // namespace

void im2col(const TensorView& out, const TensorView& self, IntArrayRef kernel_size, IntArrayRef dilation,
            IntArrayRef padding, IntArrayRef stride) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_size(element_size(out.dtype), [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel,
             Unfold<T>{blocks_of(self, kernel_size, dilation, padding, stride),
                       self.ptr<const T>(),
                       {self.strides[0], self.strides[1], self.strides[2], self.strides[3]},
                       out.ptr<T>(),
                       {out.strides[0], out.strides[1], out.strides[2]}});
  });
}

void col2im(const TensorView& out, const TensorView& self, IntArrayRef kernel_size, IntArrayRef dilation,
            IntArrayRef padding, IntArrayRef stride) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  auto run = [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel,
             Fold<T>{blocks_of(out, kernel_size, dilation, padding, stride),
                     self.ptr<const T>(),
                     out.ptr<T>(),
                     {out.strides[0], out.strides[1], out.strides[2], out.strides[3]}});
  };
  if (out.dtype == DType::Bool) return run(Tag<bool>{});
  visit_floating_complex("col2im", out.dtype, run);
}

}  // namespace mica::cuda
