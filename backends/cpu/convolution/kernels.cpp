// The slots of convolutions, and the choice of a way for each.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "backends/cpu/convolution/columns.h"
#include "backends/cpu/convolution/depthwise.h"
#include "backends/cpu/convolution/interleaved.h"
#include "backends/cpu/convolution/merged_groups.h"
#include "backends/cpu/convolution/winograd.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/register.h"
#include "mica/parallel.h"

namespace mica::cpu {

using namespace convolution;

namespace {

// Whether all results are finite. If not, a merged group may have spoiled another one by a product of zero and
// infinity.
bool all_finite(const Plane& images, int64_t batch, int64_t channels) {
  constexpr uint32_t kExponent = 0x7f800000;
  const int64_t size = channels * images.height * images.width;  // images are dense
  std::atomic<bool> finite{true};
  parallel_for(0, batch * size, 1 << 16, [&](int64_t begin, int64_t end) {
    uint32_t bad = 0;
    for (int64_t i = begin; i < end; ++i)
      bad |= (std::bit_cast<uint32_t>(images.data[i]) & kExponent) == kExponent ? 1 : 0;
    if (bad) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

bool correlate(const Correlation& original) {
  if (suits_winograd(original)) return convolve_winograd(original), true;
  if (is_short(original)) return false;
  const MergedGroups groups(original, true);
  const Correlation& c = groups.correlation();
  if (suits_winograd(c)) {
    convolve_winograd(c);
  } else if (suits_direct(c)) {
    convolve_direct(c);
  } else {
    return false;
  }
  return !groups.any() || all_finite(c.target, c.batch, c.groups * c.filters);
}

bool correlate_volume(const Correlation& c) {
  if (is_short(c) || !suits_direct(c)) return false;
  convolve_direct(c);
  return true;
}

// Uses the kernels for float32 images. Returns false where none of them suits.
bool convolve_planar(const Problem& p) {
  if (is_volume(p) && !p.is_pointwise()) return correlate_volume(forward_correlation(p));
  if (!is_planar(p)) return false;
  if (is_depthwise(p)) return convolve_depthwise(p), true;
  if (p.is_pointwise() && p.groups == 1) return false;
  return correlate(forward_correlation(p));
}

bool input_gradient_planar(const Problem& p) {
  const bool plain = p.stride[0] == 1 && p.stride[1] == 1 && p.stride[2] == 1;
  if (is_volume(p) && !p.is_pointwise() && plain) return correlate_volume(input_gradient_correlation(p));
  if (!is_planar(p)) return false;
  if (is_depthwise(p)) return input_gradient_depthwise(p), true;
  if (p.is_pointwise() && p.groups == 1) return false;
  if (p.stride[1] == 1 && p.stride[2] == 1) {
    // Where there are few outputs for a large image, a correlation would mostly read padding.
    constexpr int64_t kMostlyPadding = 4;
    if (p.output.positions() * kMostlyPadding <= p.input.positions()) return false;
    return correlate(input_gradient_correlation(p));
  }
  const MergedGroups groups(forward_correlation(p), true);
  const Correlation& c = groups.correlation();
  if (!suits_direct_strided(c)) return false;
  input_gradient_strided(c);
  return !groups.any() || all_finite(c.source, c.batch, c.groups * c.channels);
}

bool weight_gradient_planar(const Problem& p) {
  if (is_volume(p) && !p.is_pointwise()) {
    const Correlation c = forward_correlation(p);
    if (!suits_direct_weight(c)) return false;
    weight_gradient_direct(c, reinterpret_cast<float*>(p.weight));
    return true;
  }
  if (!is_planar(p)) return false;
  if (is_depthwise(p)) return weight_gradient_depthwise(p), true;
  if (p.is_pointwise() && p.groups == 1) return false;
  const MergedGroups groups(forward_correlation(p), false);
  const Correlation& c = groups.correlation();
  float* weight = reinterpret_cast<float*>(p.weight);
  if (!groups.any() && suits_winograd(c)) return weight_gradient_winograd(p), true;
  if (!suits_direct_weight(c)) return false;
  weight_gradient_direct(c, groups.any() ? groups.weight() : weight);
  if (groups.any()) groups.extract(weight);
  return true;
}

// Whether few filters meet many positions with their channels side by side: such a product is summed in another order
// than that of planes.
bool is_thin_product(const Problem& p) {
  return p.is_pointwise() && p.filters <= kThinExtent && !p.output.channels_last();
}

void convolve(Problem& p) {
  drop_unmet_taps(p);
  if (p.interleaved) {
    if (suits_interleaved(p)) return convolve_interleaved(p);
    if (p.input.channels_last() && p.output.channels_last() && suits_depthwise_interleaved(p))
      return convolve_depthwise_interleaved(p);
    const Correlation c = forward_correlation(p);
    const bool by_columns = is_short(c) && !suits_winograd(c);
    if (by_columns && suits_few_positions(p)) return convolve_few_positions(p);
    if (by_columns || is_thin_product(p)) {
      SeparatedProblem separated(p);
      convolve(separated.problem());
      return separated.finish();
    }
  }
  if (is_whole(p)) return convolve_whole(p);
  if (skips_pixels(p)) return convolve_read_pixels(p);
  if (convolve_planar(p) || (!p.is_pointwise() && convolve_together(p))) return;
  convolve_columns(p);
}

// The input with each channel multiplied by its factor, in `products`.
void multiply_input(Problem& p, float* products) {
  const int64_t positions = p.input.positions();
  const float* from = reinterpret_cast<const float*>(p.input.data);
  if (p.input.channels_last()) {
    parallel_for(0, p.batch * positions, std::max<int64_t>(1, (1 << 14) / p.channels), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t c = 0; c < p.channels; ++c)
          products[i * p.channels + c] = from[i * p.channels + c] * factor_of(*p.factors, i / positions, c);
    });
    p.input.data = reinterpret_cast<char*>(products);
    p.factors = nullptr;
    return;
  }
  parallel_for(0, p.batch * p.channels, std::max<int64_t>(1, (1 << 14) / positions), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float factor = factor_of(*p.factors, i / p.channels, i % p.channels);
      for (int64_t j = i * positions; j < (i + 1) * positions; ++j) products[j] = from[j] * factor;
    }
  });
  p.input.data = reinterpret_cast<char*>(products);
  p.factors = nullptr;
}

void convolution_kernel(const TensorView& out, const TensorView& input, const TensorView& weight,
                        const TensorView& bias, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                        int64_t groups) {
  Problem p = make_problem(input, out, weight, bias, stride, padding, dilation, groups);
  p.work = recording::take_block_work();
  p.factors = recording::take_channel_factors();
  p.interleaved = recording::take_interleaved();
  if (p.factors && !(p.interleaved ? suits_interleaved(p) : takes_factors(p))) {
    const Scratch products(static_cast<size_t>(input.numel) * sizeof(float));
    multiply_input(p, products.as<float>());
    return convolve(p);
  }
  convolve(p);
}

void input_gradient_kernel(const TensorView& grad_input, const TensorView& grad, const TensorView& weight,
                           const TensorView& bias, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                           int64_t groups) {
  Problem p = make_problem(grad_input, grad, weight, bias, stride, padding, dilation, groups);
  drop_unmet_taps(p);
  if (is_whole(p)) return input_gradient_whole(p);
  if (input_gradient_planar(p) || (!p.is_pointwise() && input_gradient_together(p))) return;
  input_gradient_columns(p);
}

void weight_gradient_kernel(const TensorView& grad_weight, const TensorView& grad, const TensorView& input,
                            IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  Problem p = make_problem(input, grad, grad_weight, TensorView(), stride, padding, dilation, groups);
  if (drop_unmet_taps(p)) std::memset(grad_weight.data, 0, static_cast<size_t>(grad_weight.numel * p.element_size));
  if (is_whole(p)) return weight_gradient_whole(p);
  if (!weight_gradient_planar(p) && !weight_gradient_together(p)) weight_gradient_columns(p);
}

// Sliding blocks of whole images: a problem without filters.
Problem blocks_problem(const TensorView& image, IntArrayRef kernel_size, IntArrayRef dilation, IntArrayRef padding,
                       IntArrayRef stride) {
  Problem p{};
  p.dtype = image.dtype;
  p.element_size = element_size(image.dtype);
  p.batch = image.size(0);
  p.groups = 1;
  p.channels = image.size(1);
  p.input = {static_cast<char*>(image.data),
             image.stride(0),
             image.stride(1),
             {1, image.size(2), image.size(3)},
             {0, image.stride(2), image.stride(3)}};
  p.output = {nullptr, 0, 0, {1, 1, 1}, {0, 0, 1}};
  for (int d = 0; d < 3; ++d) {
    const size_t from = d ? static_cast<size_t>(d) - 1 : 0;
    p.kernel[d] = d ? kernel_size[from] : 1;
    p.dilation[d] = d ? dilation[from] : 1;
    p.padding[d] = d ? padding[from] : 0;
    p.stride[d] = d ? stride[from] : 1;
    if (d)
      p.output.sizes[d] =
          (p.input.sizes[d] + 2 * p.padding[d] - p.dilation[d] * (p.kernel[d] - 1) - 1) / p.stride[d] + 1;
  }
  return p;
}

constexpr int64_t kBlockGrain = 1 << 14;

void im2col_kernel(const TensorView& out, const TensorView& self, IntArrayRef kernel_size, IntArrayRef dilation,
                   IntArrayRef padding, IntArrayRef stride) {
  const Problem p = blocks_problem(self, kernel_size, dilation, padding, stride);
  const int64_t positions = p.output.positions(), image_size = p.depth() * positions;
  parallel_for(0, p.batch * p.channels, std::max<int64_t>(1, kBlockGrain / (p.taps() * positions)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t image = i / p.channels, channel = i % p.channels;
                   const Columns columns{static_cast<char*>(out.data) + image * image_size * p.element_size, 0,
                                         positions, false};
                   gather_columns(p, p.input_at(image, 0), channel, channel + 1, columns);
                 }
               });
}

void col2im_kernel(const TensorView& out, const TensorView& self, IntArrayRef kernel_size, IntArrayRef dilation,
                   IntArrayRef padding, IntArrayRef stride) {
  const Problem p = blocks_problem(out, kernel_size, dilation, padding, stride);
  const int64_t positions = p.output.positions(), image_size = p.depth() * positions;
  const int64_t plane = p.input.positions() * p.element_size;
  parallel_for(0, p.batch * p.channels, std::max<int64_t>(1, kBlockGrain / (p.taps() * positions)),
               [&](int64_t begin, int64_t end) {
                 std::fill_n(static_cast<char*>(out.data) + begin * plane, (end - begin) * plane, char{0});
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t image = i / p.channels, channel = i % p.channels;
                   const Columns columns{static_cast<char*>(self.data) + image * image_size * p.element_size, 0,
                                         positions, false};
                   scatter_columns(p, p.input_at(image, 0), channel, channel + 1, columns);
                 }
               });
}

MICA_REGISTER_CPU(convolution, convolution_kernel);
MICA_REGISTER_CPU(convolution_input_gradient, input_gradient_kernel);
MICA_REGISTER_CPU(convolution_weight_gradient, weight_gradient_kernel);
MICA_REGISTER_CPU(im2col, im2col_kernel);
MICA_REGISTER_CPU(col2im, col2im_kernel);

}  // namespace
}  // namespace mica::cpu
