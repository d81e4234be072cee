#include "backends/cpu/convolution/columns.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/index/element_bytes.h"
#include "backends/shared/read_element.h"

namespace mica::cpu::convolution {

namespace {

template <class F>
void visit_summed(DType dtype, const F& f) {
  switch (dtype) {
    case DType::Float32:
      return f(Tag<float>{});
    case DType::Float64:
      return f(Tag<double>{});
    case DType::Int64:
      return f(Tag<int64_t>{});
    case DType::Complex64:
      return f(Tag<complex64>{});
    case DType::Complex128:
      return f(Tag<complex128>{});
    case DType::Bool:
      return f(Tag<bool>{});
    default:
      unsupported_dtype("col2im_out_cpu", dtype);
  }
}

// The output positions [low, high) along one dimension for which a tap meets the image.
struct Range {
  int64_t low, high;
};
Range meeting(const Problem& p, int d, int64_t tap) {
  const int64_t shift = tap * p.dilation[d] - p.padding[d], s = p.stride[d];
  const int64_t low = shift >= 0 ? 0 : (-shift + s - 1) / s;
  const int64_t last = p.input.sizes[d] - 1 - shift;
  const int64_t high = last < 0 ? 0 : std::min(p.output.sizes[d], last / s + 1);
  return {std::min(low, p.output.sizes[d]), std::max(high, std::min(low, p.output.sizes[d]))};
}

// Calls body(column, position of the row's run, length, source or null) for the runs along the last dimension that make
// up the positions of `columns`. A run lies in one row of the output; source is the offset of its first element.
template <class Body>
void for_each_run(const Problem& p, const int64_t (&tap)[3], const Columns& columns, const Body& body) {
  const Images &in = p.input, &out = p.output;
  const Range depth = meeting(p, 0, tap[0]), height = meeting(p, 1, tap[1]);
  const int64_t width = out.sizes[2], end = columns.first + columns.count;
  for (int64_t at = columns.first; at < end;) {
    const int64_t row = at / width, x = at - row * width, z = row / out.sizes[1], y = row - z * out.sizes[1];
    const int64_t count = std::min(width - x, end - at);
    const bool meets = z >= depth.low && z < depth.high && y >= height.low && y < height.high;
    const int64_t offset = meets ? (z * p.stride[0] + tap[0] * p.dilation[0] - p.padding[0]) * in.strides[0] +
                                       (y * p.stride[1] + tap[1] * p.dilation[1] - p.padding[1]) * in.strides[1]
                                 : 0;
    body(at - columns.first, x, count, meets, offset);
    at += count;
  }
}

// Where each column of each tap is read in a plane. Runs of a few elements take longer to find than to copy, so that
// they are found once for all channels.
class ShortRuns {
 public:
  // Whether runs are short, and channels enough to make up for finding them.
  static bool suit(const Problem& p, int64_t channels, const Columns& columns) {
    constexpr int64_t kShort = 16, kLeastChannels = 8, kMostPlaces = 1 << 14;
    return p.output.sizes[2] <= kShort && channels >= kLeastChannels && p.taps() * columns.count <= kMostPlaces;
  }

  ShortRuns(const Problem& p, const Columns& columns) {
    for (int64_t kz = 0; kz < p.kernel[0]; ++kz)
      for (int64_t ky = 0; ky < p.kernel[1]; ++ky)
        for (int64_t kx = 0; kx < p.kernel[2]; ++kx) {
          const Range width = meeting(p, 2, kx);
          const int64_t shift = (kx * p.dilation[2] - p.padding[2]) * p.input.strides[2];
          for_each_run(p, {kz, ky, kx}, columns, [&](int64_t at, int64_t x, int64_t n, bool meets, int64_t offset) {
            const int64_t low = meets ? std::clamp(width.low - x, int64_t{0}, n) : n;
            const int64_t high = meets ? std::clamp(width.high - x, low, n) : n;
            for (int64_t i = low; i < high; ++i)
              places_.push_back({at + i, offset + shift + (x + i) * p.stride[2] * p.input.strides[2]});
          });
          ends_.push_back(places_.size());
        }
  }

  // The rows of a channel: one for each tap.
  template <class T>
  void gather(const T* plane, T* rows, const Columns& columns) const {
    size_t i = 0;
    for (const size_t end : ends_) {
      std::fill_n(rows, columns.count, T{});
      for (; i < end; ++i) rows[places_[i].column] = plane[places_[i].offset];
      rows += columns.element_stride();
    }
  }

 private:
  struct Place {
    int64_t column, offset;
  };
  std::vector<Place> places_;  // by tap
  std::vector<size_t> ends_;   // of the places of each tap
};

template <class T>
void gather_rows(const Problem& p, const T* images, int64_t begin, int64_t end, const Columns& columns) {
  if (ShortRuns::suit(p, end - begin, columns)) {
    const ShortRuns runs(p, columns);
    for (int64_t c = begin; c < end; ++c)
      runs.gather(images + c * p.input.channel_stride,
                  reinterpret_cast<T*>(columns.data) + c * p.taps() * columns.element_stride(), columns);
    return;
  }
  const int64_t step = p.stride[2] * p.input.strides[2];
  for (int64_t c = begin; c < end; ++c) {
    const T* plane = images + c * p.input.channel_stride;
    int64_t element = c * p.taps();
    for (int64_t kz = 0; kz < p.kernel[0]; ++kz) {
      for (int64_t ky = 0; ky < p.kernel[1]; ++ky) {
        for (int64_t kx = 0; kx < p.kernel[2]; ++kx, ++element) {
          T* row = reinterpret_cast<T*>(columns.data) + element * columns.element_stride();
          const Range width = meeting(p, 2, kx);
          const int64_t shift = (kx * p.dilation[2] - p.padding[2]) * p.input.strides[2];
          for_each_run(p, {kz, ky, kx}, columns, [&](int64_t at, int64_t x, int64_t n, bool meets, int64_t offset) {
            T* to = row + at;
            const int64_t low = meets ? std::clamp(width.low - x, int64_t{0}, n) : n;
            const int64_t high = meets ? std::clamp(width.high - x, low, n) : n;
            std::fill(to, to + low, T{});
            const T* from = plane + offset + shift + x * step;
            if (step == 1) {
              std::copy(from + low, from + high, to + low);
            } else {
              for (int64_t i = low; i < high; ++i) to[i] = from[i * step];
            }
            std::fill(to + high, to + n, T{});
          });
        }
      }
    }
  }
}

template <class T>
void scatter_rows(const Problem& p, T* images, int64_t begin, int64_t end, const Columns& columns) {
  const int64_t step = p.stride[2] * p.input.strides[2];
  for (int64_t c = begin; c < end; ++c) {
    T* plane = images + c * p.input.channel_stride;
    int64_t element = c * p.taps();
    for (int64_t kz = 0; kz < p.kernel[0]; ++kz) {
      for (int64_t ky = 0; ky < p.kernel[1]; ++ky) {
        for (int64_t kx = 0; kx < p.kernel[2]; ++kx, ++element) {
          const T* row = reinterpret_cast<const T*>(columns.data) + element * columns.element_stride();
          const Range width = meeting(p, 2, kx);
          const int64_t shift = (kx * p.dilation[2] - p.padding[2]) * p.input.strides[2];
          for_each_run(p, {kz, ky, kx}, columns, [&](int64_t at, int64_t x, int64_t n, bool meets, int64_t offset) {
            if (!meets) return;
            const int64_t low = std::clamp(width.low - x, int64_t{0}, n), high = std::clamp(width.high - x, low, n);
            const T* from = row + at;
            T* to = plane + offset + shift + x * step;
            if (step == 1) {
              for (int64_t i = low; i < high; ++i) to[i] = static_cast<T>(read_element(to[i]) + read_element(from[i]));
            } else {
              for (int64_t i = low; i < high; ++i)
                to[i * step] = static_cast<T>(read_element(to[i * step]) + read_element(from[i]));
            }
          });
        }
      }
    }
  }
}

// For an image whose channels are last: calls body(block, image offset, elements) for every run of a position's block
// that lies together in the image, and absent(block, elements) for what falls outside of it.
template <class Body, class Absent>
void for_each_block_run(const Problem& p, int64_t position, const Body& body, const Absent& absent) {
  const Images& in = p.input;
  const int64_t row = position / p.output.sizes[2], x = position - row * p.output.sizes[2];
  const int64_t z = row / p.output.sizes[1], y = row - z * p.output.sizes[1];
  const int64_t x0 = x * p.stride[2] - p.padding[2], taps = p.kernel[2], c = p.channels;
  const bool adjacent = p.dilation[2] == 1 && p.groups == 1;
  int64_t block = 0;
  for (int64_t kz = 0; kz < p.kernel[0]; ++kz) {
    const int64_t iz = z * p.stride[0] + kz * p.dilation[0] - p.padding[0];
    for (int64_t ky = 0; ky < p.kernel[1]; ++ky, block += taps * c) {
      const int64_t iy = y * p.stride[1] + ky * p.dilation[1] - p.padding[1];
      if (iz < 0 || iz >= in.sizes[0] || iy < 0 || iy >= in.sizes[1]) {
        absent(block, taps * c);
        continue;
      }
      const int64_t line = iz * in.strides[0] + iy * in.strides[1];
      if (adjacent) {
        const int64_t low = std::clamp<int64_t>(-x0, 0, taps), high = std::clamp(in.sizes[2] - x0, low, taps);
        if (low > 0) absent(block, low * c);
        if (high > low) body(block + low * c, line + (x0 + low) * in.strides[2], (high - low) * c);
        if (high < taps) absent(block + high * c, (taps - high) * c);
        continue;
      }
      for (int64_t kx = 0; kx < taps; ++kx) {
        const int64_t ix = x0 + kx * p.dilation[2];
        if (ix < 0 || ix >= in.sizes[2]) {
          absent(block + kx * c, c);
        } else {
          body(block + kx * c, line + ix * in.strides[2], c);
        }
      }
    }
  }
}

template <class T>
void gather_blocks(const Problem& p, const T* images, const Columns& columns) {
  T* to = reinterpret_cast<T*>(columns.data);
  for (int64_t i = 0; i < columns.count; ++i, to += p.depth()) {
    for_each_block_run(
        p, columns.first + i,
        [&](int64_t block, int64_t at, int64_t n) { std::copy(images + at, images + at + n, to + block); },
        [&](int64_t block, int64_t n) { std::fill(to + block, to + block + n, T{}); });
  }
}

template <class T>
void scatter_blocks(const Problem& p, T* images, const Columns& columns) {
  const T* from = reinterpret_cast<const T*>(columns.data);
  for (int64_t i = 0; i < columns.count; ++i, from += p.depth()) {
    for_each_block_run(
        p, columns.first + i,
        [&](int64_t block, int64_t at, int64_t n) {
          T* to = images + at;
          for (int64_t j = 0; j < n; ++j) to[j] = static_cast<T>(read_element(to[j]) + read_element(from[block + j]));
        },
        [](int64_t, int64_t) {});
  }
}

// Calls move(weight element, ordered element) for every element of the weight.
template <class Move>
void for_each_weight(const Problem& p, bool channels_last, const Move& move) {
  int64_t at = 0;
  const auto taps = [&](int64_t base, const auto& body) {
    for (int64_t z = 0; z < p.kernel[0]; ++z)
      for (int64_t y = 0; y < p.kernel[1]; ++y)
        for (int64_t x = 0; x < p.kernel[2]; ++x)
          body(base + z * p.tap_strides[0] + y * p.tap_strides[1] + x * p.tap_strides[2]);
  };
  for (int64_t f = 0; f < p.groups * p.filters; ++f) {
    const int64_t filter = f * p.filter_stride;
    if (channels_last) {
      taps(filter, [&](int64_t tap) {
        for (int64_t c = 0; c < p.channels; ++c) move(tap + c * p.weight_channel_stride, at++);
      });
    } else {
      for (int64_t c = 0; c < p.channels; ++c)
        taps(filter + c * p.weight_channel_stride, [&](int64_t tap) { move(tap, at++); });
    }
  }
}

}  // namespace

void gather_columns(const Problem& p, const char* images, int64_t begin, int64_t end, const Columns& columns) {
  visit_element_size(p.element_size, [&]<class T>(Tag<T>) {
    const T* from = reinterpret_cast<const T*>(images);
    columns.channels_last ? gather_blocks(p, from, columns) : gather_rows(p, from, begin, end, columns);
  });
}

void scatter_columns(const Problem& p, char* images, int64_t begin, int64_t end, const Columns& columns) {
  visit_summed(p.dtype, [&]<class T>(Tag<T>) {
    T* to = reinterpret_cast<T*>(images);
    columns.channels_last ? scatter_blocks(p, to, columns) : scatter_rows(p, to, begin, end, columns);
  });
}

bool filters_are_ordered(const Problem& p, bool channels_last) {
  int64_t step = 1;
  const auto follows = [&](int64_t size, int64_t stride) {
    const bool fits = size == 1 || stride == step;
    step *= size;
    return fits;
  };
  if (channels_last && !follows(p.channels, p.weight_channel_stride)) return false;
  for (int d = 2; d >= 0; --d)
    if (!follows(p.kernel[d], p.tap_strides[d])) return false;
  return channels_last || follows(p.channels, p.weight_channel_stride);
}

void order_filters(const Problem& p, bool channels_last, char* ordered) {
  visit_element_size(p.element_size, [&]<class T>(Tag<T>) {
    const T* weight = reinterpret_cast<const T*>(p.weight);
    T* to = reinterpret_cast<T*>(ordered);
    for_each_weight(p, channels_last, [&](int64_t from, int64_t at) { to[at] = weight[from]; });
  });
}

void restore_filters(const Problem& p, bool channels_last, const char* ordered) {
  visit_element_size(p.element_size, [&]<class T>(Tag<T>) {
    T* weight = reinterpret_cast<T*>(p.weight);
    const T* from = reinterpret_cast<const T*>(ordered);
    for_each_weight(p, channels_last, [&](int64_t to, int64_t at) { weight[to] = from[at]; });
  });
}

}  // namespace mica::cpu::convolution
