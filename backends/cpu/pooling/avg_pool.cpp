// avg_pool and adaptive_avg_pool.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pooling/avg_pool.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pooling/boxes.h"
#include "backends/cpu/pooling/rows-inl.h"
#include "backends/cpu/pooling/visit.h"
#include "backends/cpu/simd_register.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// sums[i] = the sum over the rows of a box, column by column. Rows are `row_step` apart, planes `plane_step`.
template <class T>
void sum_columns(const T* in, int64_t planes, int64_t plane_step, int64_t rows, int64_t row_step, int64_t n,
                 Computed<T>* sums) {
  const hn::ScalableTag<Computed<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const size_t count = static_cast<size_t>(std::min(lanes, n - i));
    auto sum = hn::Zero(d);
    for (int64_t p = 0; p < planes; ++p) {
      for (int64_t r = 0; r < rows; ++r) {
        const T* from = in + p * plane_step + r * row_step + i;
        const auto v =
            HWY_LIKELY(count == static_cast<size_t>(lanes)) ? load_lanes(d, from) : load_first_lanes(d, from, count);
        sum = hn::Add(sum, v);
      }
    }
    store_first(sum, d, sums + i, count);
  }
}

// out[o] = the sum of the `kernel` columns from o * stride on. The last vector may reach over both ends.
template <int kStride, class C>
void sum_windows(const C* columns, int64_t stride, int64_t kernel, int64_t n, C* out) {
  const hn::ScalableTag<C> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto offsets = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<hn::TFromD<decltype(di)>>(stride)));
  for (int64_t o = 0; o < n; o += lanes) {
    auto sum = hn::Zero(d);
    for (int64_t k = 0; k < kernel; ++k)
      sum = hn::Add(sum, load_strided<kStride>(d, columns + o * stride + k, offsets));
    hn::StoreU(sum, d, out + o);
  }
}

// How many outputs of a row are computed at a time: long rows are shared by threads, and take memory for a part only.
int64_t outputs_at_once(const BoxAxis& axis) {
  const int64_t step = axis.kernel ? axis.stride : std::max<int64_t>(1, axis.in / axis.out);
  const int64_t box = std::min(axis.kernel ? axis.kernel : step, axis.in);
  return std::max<int64_t>({4096, 262144 / step, box / step}) / 64 * 64;
}

// The outputs `first` to `first + count` of rows: which columns they read, and what they are divided by.
template <class C>
struct RowPart {
  int64_t first = -1, count = 0;
  int64_t start = 0;              // the column of columns[0], which may be before the input
  int64_t begin = 0, end = 0;     // the columns of the input that are read
  std::vector<Span> spans;        // of boxes that differ, relative to `start`
  std::vector<int64_t> divisors;  // one per output
  std::vector<C> columns, sums;

  void set(const BoxAxis& axis, int64_t first_output, int64_t outputs) {
    if (first == first_output) return;
    first = first_output;
    count = outputs;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<C>()));
    const int64_t whole = (count + lanes - 1) / lanes * lanes;
    divisors.resize(static_cast<size_t>(count));
    for (int64_t o = 0; o < count; ++o) divisors[o] = axis.divisor(first + o);
    int64_t held;  // columns, with those outside of the input
    if (axis.padded_rows) {
      start = first * axis.stride - axis.padding;
      held = (whole - 1) * axis.stride + axis.kernel + 1;
    } else {
      start = axis.span(first).begin;
      held = axis.span(first + count - 1).end - start;
      spans.resize(static_cast<size_t>(count));
      for (int64_t o = 0; o < count; ++o) {
        const Span s = axis.span(first + o);
        spans[o] = {s.begin - start, s.end - start};
      }
    }
    begin = std::min(std::max<int64_t>(start, 0), axis.in);
    end = std::clamp(start + held, begin, axis.in);
    columns.assign(static_cast<size_t>(std::max<int64_t>(held, 1)), C(0));
    sums.resize(static_cast<size_t>(whole));
  }

  void divide(int64_t rest, int64_t divisor) {
    for (int64_t o = 0; o < count; ++o) sums[o] /= static_cast<C>(divisor ? divisor : rest * divisors[o]);
  }
};

template <class T>
void average_rows(const T* in, T* out, const Boxes& b) {
  using C = Computed<T>;
  const BoxAxis &axis_d = b.axes[0], &axis_h = b.axes[1], &axis_w = b.axes[2];
  const int64_t n = b.out[2], width = b.in[2];
  const int64_t rows = b.batch * b.channels * b.out[0] * b.out[1];
  const int64_t at_once = outputs_at_once(axis_w), parts = (n + at_once - 1) / at_once;
  const int64_t work = std::max<int64_t>(1, volume(b.in) / (b.out[0] * b.out[1]) / parts);
  parallel_for(0, rows * parts, std::max<int64_t>(1, 32768 / work), [&](int64_t begin, int64_t end) {
    RowPart<C> part;
    Position p = Position::of_row(begin / parts, b.out);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts, first = i % parts * at_once;
      if (i > begin && first == 0) p.next_row(b.out);
      part.set(axis_w, first, std::min(at_once, n - first));
      const Span d = axis_d.span(p.d), h = axis_h.span(p.h);
      const T* from = in + ((p.plane * b.in[0] + d.begin) * b.in[1] + h.begin) * width + part.begin;
      sum_columns(from, d.end - d.begin, b.in[1] * width, h.end - h.begin, width, part.end - part.begin,
                  part.columns.data() + (part.begin - part.start));
      if (axis_w.padded_rows) {
        with_stride(axis_w.stride, [&]<int kStride>(std::integral_constant<int, kStride>) {
          sum_windows<kStride>(part.columns.data(), axis_w.stride, axis_w.kernel, part.count, part.sums.data());
        });
      } else {
        for (int64_t o = 0; o < part.count; ++o) {
          C sum = 0;
          for (int64_t w = part.spans[o].begin; w < part.spans[o].end; ++w) sum += part.columns[w];
          part.sums[o] = sum;
        }
      }
      part.divide(axis_d.divisor(p.d) * axis_h.divisor(p.h), b.divisor);
      store_run(part.sums.data(), part.count, out + row * n + first);
    }
  });
}

template <class T>
void average_channels_last(const T* in, T* out, const Boxes& b) {
  using C = Computed<T>;
  const int64_t channels = b.channels, pixels = b.batch * volume(b.out);
  const int64_t work = std::max<int64_t>(1, volume(b.in) / volume(b.out)) * channels;
  parallel_for(0, pixels, std::max<int64_t>(1, 32768 / work), [&](int64_t begin, int64_t end) {
    std::vector<C> sums(static_cast<size_t>(channels));
    Position p = Position::of_element(begin, b.out);
    for (int64_t i = begin; i < end; ++i, p.next_element(b.out)) {
      const Span d = b.axes[0].span(p.d), h = b.axes[1].span(p.h), w = b.axes[2].span(p.w);
      const hn::ScalableTag<C> tag;
      const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
      const T* first = in + (((p.plane * b.in[0] + d.begin) * b.in[1] + h.begin) * b.in[2] + w.begin) * channels;
      for (int64_t c = 0; c < channels; c += lanes) {
        const size_t count = static_cast<size_t>(std::min(lanes, channels - c));
        auto sum = hn::Zero(tag);
        for (int64_t z = 0; z < d.end - d.begin; ++z) {
          for (int64_t y = 0; y < h.end - h.begin; ++y) {
            const T* line = first + (z * b.in[1] + y) * b.in[2] * channels + c;
            for (int64_t x = 0; x < w.end - w.begin; ++x) {
              const T* from = line + x * channels;
              const auto v = HWY_LIKELY(count == static_cast<size_t>(lanes)) ? load_lanes(tag, from)
                                                                             : load_first_lanes(tag, from, count);
              sum = hn::Add(sum, v);
            }
          }
        }
        store_first(sum, tag, sums.data() + c, count);
      }
      const int64_t all = b.axes[0].divisor(p.d) * b.axes[1].divisor(p.h) * b.axes[2].divisor(p.w);
      const C divisor = static_cast<C>(b.divisor ? b.divisor : all);
      for (C& s : sums) s /= divisor;
      store_run(sums.data(), channels, out + i * channels);
    }
  });
}

void average(const char* op, const TensorView& out, const TensorView& self, const Boxes& b, bool channels_last) {
  const auto run = [&]<class T>(Tag<T>) {
    if (channels_last) {
      average_channels_last(self.ptr<const T>(), out.ptr<T>(), b);
    } else {
      average_rows(self.ptr<const T>(), out.ptr<T>(), b);
    }
  };
  if (self.dtype == DType::Int64) return run(Tag<int64_t>{});
  visit_floating(op, self.dtype, run);
}

void avg_pool(const TensorView& out, const TensorView& self, IntArrayRef kernel, IntArrayRef stride,
              IntArrayRef padding, bool count_include_pad, int64_t divisor, bool channels_last) {
  const Boxes b = regular_boxes(self, out, kernel, stride, padding, count_include_pad, divisor);
  average(self.size(2) > 1 ? "avg_pool3d_out_frame" : "avg_pool2d", out, self, b, channels_last);
}

void adaptive_avg_pool(const TensorView& out, const TensorView& self, bool channels_last) {
  const char* name = self.size(2) > 1 ? "adaptive_avg_pool3d_cpu" : "adaptive_avg_pool2d";
  if (self.dtype == DType::Int64) unsupported_dtype(name, self.dtype);
  average(name, out, self, adaptive_boxes(self, out), channels_last);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(avg_pool);
HWY_EXPORT(adaptive_avg_pool);
MICA_REGISTER_SIMD(avg_pool, avg_pool);
MICA_REGISTER_SIMD(adaptive_avg_pool, adaptive_avg_pool);
}  // namespace mica::cpu
#endif
