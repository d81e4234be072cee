// The general ways of a convolution and of its gradients: blocks of columns and matrix products, in every dtype.
#include <algorithm>
#include <cstring>
#include <optional>

#include "backends/cpu/convolution/columns.h"
#include "backends/cpu/convolution/parts.h"
#include "backends/cpu/convolution/pointwise.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

namespace mica::cpu::convolution {

namespace {

constexpr int64_t kColumnBytes = 1 << 19;  // stay in the second cache beside what the product packs
constexpr int64_t kLeastPositions = 64;
constexpr int64_t kCopyGrain = 1 << 14;

// How many positions are taken at a time.
int64_t block_positions(const Problem& p) {
  const int64_t fitting = kColumnBytes / std::max<int64_t>(1, p.depth() * p.element_size);
  return std::min(p.output.positions(), std::max(kLeastPositions, fitting));
}

// The weight with a filter's elements in the columns' order, as a matrix of one row per filter.
class Filters {
 public:
  Filters(const Problem& p, bool channels_last) : p_(p), data_(p.weight), stride_(p.filter_stride) {
    if (filters_are_ordered(p, channels_last)) return;
    ordered_.emplace(static_cast<size_t>(p.groups * p.filters * p.depth() * p.element_size));
    order_filters(p, channels_last, ordered_->data());
    data_ = ordered_->data();
    stride_ = p.depth();
  }
  GemmOperand rows(int64_t group) const { return {at(group), stride_, 1, 0}; }
  GemmOperand columns(int64_t group) const { return {at(group), 1, stride_, 0}; }

 private:
  const char* at(int64_t group) const { return data_ + group * p_.filters * stride_ * p_.element_size; }
  const Problem& p_;
  std::optional<Scratch> ordered_;
  const char* data_;
  int64_t stride_;
};

template <class T>
void fill_images(const Images& images, T* data, int64_t channels, const T* values) {
  const int64_t n = images.positions(), step = images.position_stride();
  if (images.channels_last()) {
    for (int64_t i = 0; i < n; ++i) {
      T* at = data + i * step;
      values ? (void)std::copy(values, values + channels, at) : std::fill(at, at + channels, T{});
    }
    return;
  }
  for (int64_t c = 0; c < channels; ++c) {
    T* at = data + c * images.channel_stride;
    std::fill(at, at + n, values ? values[c] : T{});
  }
}

// Sets each channel of an image to its value, or to zero without `values`.
void fill_images(DType dtype, const Images& images, char* data, int64_t channels, const void* values) {
  visit_number_bool("convolution", dtype, [&]<class T>(Tag<T>) {
    fill_images(images, reinterpret_cast<T*>(data), channels, static_cast<const T*>(values));
  });
}

// A group's images on one side as a matrix with one row per channel.
GemmOperand channel_rows(const Images& images, const char* data) {
  return {data, images.channel_stride, images.position_stride(), images.batch_stride};
}
GemmOperand position_rows(const Images& images, const char* data) {
  return {data, images.position_stride(), images.channel_stride, images.batch_stride};
}

bool is_plane_product(const Problem& p) {
  return p.dtype == DType::Float32 && p.groups == 1 && !p.input.channels_last() && !p.output.channels_last();
}

// The blocks of a group's filters.
class FilterBlocks final : public GemmBlocks {
 public:
  FilterBlocks(const Problem& p, int64_t group) : work_(p.work), first_(group * p.filters) {}
  void finished(int64_t image, int64_t row, int64_t rows, int64_t col, int64_t cols) override {
    work_->run({image, first_ + row, rows, col, cols});
  }

 private:
  recording::BlockWork* work_;
  int64_t first_;
};

PlaneProduct plane_product(const Problem& p) {
  return {p.batch,
          p.input,
          p.output,
          reinterpret_cast<const float*>(p.weight),
          p.filters,
          p.channels,
          p.filter_stride,
          p.weight_channel_stride,
          static_cast<const float*>(p.bias),
          p.work,
          p.factors};
}

// One tap at every position: images are the matrices.
void convolve_pointwise(const Problem& p) {
  if (is_plane_product(p)) {
    const PlaneProduct product = plane_product(p);
    if (suits_turned(product)) return multiply_turned(product);
    if (suits_planes(product)) return multiply_planes(product);
  }
  const Filters filters(p, true);
  const int64_t positions = p.output.positions();
  bool works = p.work && !p.output.channels_last();
  for (int64_t g = 0; g < p.groups; ++g) {
    FilterBlocks blocks(p, g);
    GemmCall call;
    call.dtype = p.dtype;
    call.batch = p.batch;
    call.k = p.channels;
    call.c = p.output_at(0, g);
    call.c_batch_stride = p.output.batch_stride;
    if (p.output.channels_last()) {
      call.m = positions;
      call.n = p.filters;
      call.a = position_rows(p.input, p.input_at(0, g));
      call.b = filters.columns(g);
      call.c_row_stride = p.output.position_stride();
      call.c_col_stride = p.output.channel_stride;
      call.bias = p.bias_at(g);
      gemm(call);
    } else {
      call.m = p.filters;
      call.n = positions;
      call.a = filters.rows(g);
      call.b = channel_rows(p.input, p.input_at(0, g));
      call.c_row_stride = p.output.channel_stride;
      call.c_col_stride = p.output.position_stride();
      if (p.bias) {
        for (int64_t i = 0; i < p.batch; ++i)
          fill_images(p.dtype, p.output, p.output_at(i, g), p.filters, p.bias_at(g));
        call.beta = 1;
      }
      if (works) call.blocks = &blocks;
      if (p.factors) call.b_factors = {p.factors->data, p.factors->image_step, p.factors->channel_step};
      gemm(call);
      works = works && blocks.told();
    }
  }
  if (works) p.work->set_done();
}

void input_gradient_pointwise(const Problem& p) {
  if (is_plane_product(p)) {
    const PlaneProduct product{p.batch,
                               p.output,
                               p.input,
                               reinterpret_cast<const float*>(p.weight),
                               p.channels,
                               p.filters,
                               p.weight_channel_stride,
                               p.filter_stride,
                               nullptr};
    if (suits_turned(product)) return multiply_turned(product);
    if (suits_planes(product)) return multiply_planes(product);
  }
  const Filters filters(p, true);
  for (int64_t g = 0; g < p.groups; ++g) {
    GemmCall call;
    call.dtype = p.dtype;
    call.batch = p.batch;
    call.k = p.filters;
    call.c = p.input_at(0, g);
    call.c_batch_stride = p.input.batch_stride;
    if (p.input.channels_last()) {
      call.m = p.input.positions();
      call.n = p.channels;
      call.a = position_rows(p.output, p.output_at(0, g));
      call.b = filters.rows(g);
      call.c_row_stride = p.input.position_stride();
      call.c_col_stride = p.input.channel_stride;
      gemm(call);
    } else {
      call.m = p.channels;
      call.n = p.input.positions();
      call.a = filters.columns(g);
      call.b = channel_rows(p.output, p.output_at(0, g));
      call.c_row_stride = p.input.channel_stride;
      call.c_col_stride = p.input.position_stride();
      gemm(call);
    }
  }
}

}  // namespace

bool takes_factors(const Problem& p) {
  if (!p.is_pointwise() || !is_plane_product(p) || p.channels == 1 || p.output.positions() == 1) return false;
  // Products of other shapes are computed in other ways, which add in another order than those that pack the images.
  constexpr int64_t kLeastFilters = 17, kLeastPixels = 1024, kMostChannels = 2048;
  return suits_planes(plane_product(p)) ||
         (p.filters >= kLeastFilters && p.output.positions() >= kLeastPixels && p.channels <= kMostChannels);
}

bool skips_pixels(const Problem& p) {
  const bool unpadded = p.padding[0] == 0 && p.padding[1] == 0 && p.padding[2] == 0;
  return is_plane_product(p) && p.taps() == 1 && unpadded && !p.is_pointwise();
}

void convolve_read_pixels(const Problem& p) {
  const int64_t positions = p.output.positions();
  const Scratch pixels(bytes_of_floats(p.batch * p.channels * positions));
  parallel_for(0, p.batch * p.channels, std::max<int64_t>(1, kCopyGrain / positions), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / p.channels, channel = i % p.channels;
      const Columns columns{pixels.data() + image * p.channels * positions * p.element_size, 0, positions, false};
      gather_columns(p, p.input_at(image, 0), channel, channel + 1, columns);
    }
  });
  Problem plain = p;
  plain.input = p.output;
  plain.input.data = pixels.data();
  plain.input.channel_stride = positions;
  plain.input.batch_stride = p.channels * positions;
  plain.input.strides[0] = p.output.sizes[1] * p.output.sizes[2];
  plain.input.strides[1] = p.output.sizes[2];
  plain.input.strides[2] = 1;
  std::fill_n(plain.stride, 3, 1);
  convolve_pointwise(plain);
}

void convolve_columns(const Problem& p) {
  if (p.is_pointwise()) return convolve_pointwise(p);
  const bool last = p.input.channels_last();
  const Filters filters(p, last);
  const int64_t step = block_positions(p), blocks = divide_up(p.output.positions(), step);
  share_tasks(p.batch * p.groups * blocks, [&](const auto& tasks) {
    const Scratch scratch(static_cast<size_t>(p.depth() * step * p.element_size));
    tasks([&](int64_t task) {
      const int64_t image = task / blocks / p.groups, g = task / blocks % p.groups, first = task % blocks * step;
      const Columns columns{scratch.data(), first, std::min(step, p.output.positions() - first), last};
      if (last) {
        gather_columns(p, p.input_at(image, g), 0, p.channels, columns);
      } else {  // in threads, where there is one task for all
        parallel_for(0, p.channels, std::max<int64_t>(1, kCopyGrain / (p.taps() * columns.count)),
                     [&](int64_t begin, int64_t end) { gather_columns(p, p.input_at(image, g), begin, end, columns); });
      }
      char* out = p.output_at(image, g) + first * p.output.position_stride() * p.element_size;
      Images part = p.output;
      part.sizes[0] = part.sizes[1] = 1;
      part.sizes[2] = columns.count;
      GemmCall call;
      call.dtype = p.dtype;
      call.k = p.depth();
      call.c = out;
      const GemmOperand blocks_as_rows{columns.data, columns.block_stride(p.depth()), columns.element_stride(), 0};
      if (p.output.channels_last()) {
        call.m = columns.count;
        call.n = p.filters;
        call.a = blocks_as_rows;
        call.b = filters.columns(g);
        call.c_row_stride = p.output.position_stride();
        call.c_col_stride = 1;
        call.bias = p.bias_at(g);
      } else {
        call.m = p.filters;
        call.n = columns.count;
        call.a = filters.rows(g);
        call.b = {columns.data, blocks_as_rows.col_stride, blocks_as_rows.row_stride, 0};
        call.c_row_stride = p.output.channel_stride;
        call.c_col_stride = p.output.position_stride();
        if (p.bias) {
          fill_images(p.dtype, part, out, p.filters, p.bias_at(g));
          call.beta = 1;
        }
      }
      gemm(call);
    });
  });
}

void input_gradient_columns(const Problem& p) {
  if (p.is_pointwise() && !p.bias) return input_gradient_pointwise(p);
  const bool last = p.input.channels_last();
  const Filters filters(p, last);
  const int64_t step = block_positions(p), blocks = divide_up(p.output.positions(), step);
  const auto one_image = [&](int64_t image, int64_t g, const Scratch& scratch) {
    char* target = p.input_at(image, g);
    const char* bias = p.bias ? static_cast<const char*>(p.bias) + g * p.channels * p.element_size : nullptr;
    fill_images(p.dtype, p.input, target, p.channels, bias);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = block * step;
      const Columns columns{scratch.data(), first, std::min(step, p.output.positions() - first), last};
      const char* grad = p.output_at(image, g) + first * p.output.position_stride() * p.element_size;
      GemmCall call;
      call.dtype = p.dtype;
      call.k = p.filters;
      call.c = columns.data;
      call.c_col_stride = 1;
      if (last) {
        call.m = columns.count;
        call.n = call.c_row_stride = p.depth();
        call.a = position_rows(p.output, grad);
        call.b = filters.rows(g);
      } else {
        call.m = p.depth();
        call.n = call.c_row_stride = columns.count;
        call.a = filters.columns(g);
        call.b = channel_rows(p.output, grad);
      }
      gemm(call);
      if (last) {
        scatter_columns(p, target, 0, p.channels, columns);
      } else {  // channels have memory of their own, so that threads can share them
        parallel_for(0, p.channels, std::max<int64_t>(1, (1 << 14) / (p.taps() * columns.count)),
                     [&](int64_t begin, int64_t end) { scatter_columns(p, target, begin, end, columns); });
      }
    }
  };
  const size_t bytes = static_cast<size_t>(p.depth() * step * p.element_size);
  const int64_t tasks = p.batch * p.groups;
  const auto run = [&](int64_t begin, int64_t end) {
    const Scratch scratch(bytes);
    for (int64_t task = begin; task < end; ++task) one_image(task / p.groups, task % p.groups, scratch);
  };
  tasks < get_num_threads() ? run(0, tasks) : parallel_for(0, tasks, 1, run);
}

void weight_gradient_columns(const Problem& p) {
  const bool pointwise = p.is_pointwise();
  const bool last = p.input.channels_last();
  const int64_t step = pointwise ? p.output.positions() : block_positions(p);
  const int64_t blocks = divide_up(p.output.positions(), step), size = p.filters * p.depth();
  const size_t bytes = pointwise ? 0 : static_cast<size_t>(p.depth() * step * p.element_size);
  // Adds the share of images [begin, end) to `sums`, which it sets first.
  const auto add_images = [&](int64_t g, int64_t begin, int64_t end, char* sums) {
    const Scratch scratch(bytes);
    for (int64_t image = begin; image < end; ++image) {
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = block * step;
        const Columns columns{scratch.data(), first, std::min(step, p.output.positions() - first), last};
        GemmCall call;
        call.dtype = p.dtype;
        call.m = p.filters;
        call.n = call.c_row_stride = p.depth();
        call.k = columns.count;
        call.a = channel_rows(p.output, p.output_at(image, g) + first * p.output.position_stride() * p.element_size);
        if (pointwise) {
          call.b = position_rows(p.input, p.input_at(image, g));
        } else {
          gather_columns(p, p.input_at(image, g), 0, p.channels, columns);
          call.b = {columns.data, columns.block_stride(p.depth()), columns.element_stride(), 0};
        }
        call.c = sums;
        call.c_col_stride = 1;
        call.beta = image > begin || block > 0 ? 1 : 0;
        gemm(call);
      }
    }
  };
  const int64_t group_bytes = size * p.element_size;
  const int64_t shares = std::min<int64_t>(p.batch, get_num_threads());
  const Scratch all(static_cast<size_t>(p.groups * shares * group_bytes));
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t g = task / shares, share = task % shares;
      add_images(g, share * p.batch / shares, (share + 1) * p.batch / shares,
                 all.data() + (share * p.groups + g) * group_bytes);
    }
  };
  p.groups* shares < get_num_threads() ? run(0, p.groups * shares) : parallel_for(0, p.groups * shares, 1, run);
  visit_number("convolution_backward", p.dtype, [&]<class T>(Tag<T>) {
    T* sums = all.as<T>();
    const int64_t n = p.groups * size;
    for (int64_t share = 1; share < shares; ++share)
      for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<T>(sums[i] + sums[share * n + i]);
  });
  restore_filters(p, last, all.data());
}

}  // namespace mica::cpu::convolution
