// Maxima over windows that differ from each other: adaptive_max_pool and fractional_max_pool.
#include <limits>
#include <vector>

#include "backends/cpu/pooling/visit.h"
#include "backends/cpu/pooling/windows.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

using Spans = std::vector<Span>;

// The maxima of all boxes of a plane whose elements are `step` apart, in order, and their indices.
template <class T>
void box_maxima(const T* plane, const Extent3& in, int64_t step, const Spans* spans, T* values, int64_t* indices) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  for (const Span& d : spans[0]) {
    for (const Span& h : spans[1]) {
      for (const Span& w : spans[2]) {
        int64_t best = (d.begin * in[1] + h.begin) * in[2] + w.begin;
        C highest = -std::numeric_limits<C>::infinity();
        for (int64_t z = d.begin; z < d.end; ++z) {
          for (int64_t y = h.begin; y < h.end; ++y) {
            const int64_t row = (z * in[1] + y) * in[2];
            for (int64_t x = w.begin; x < w.end; ++x) {
              const C v = static_cast<C>(plane[(row + x) * step]);
              const bool takes = (v > highest) | (v != v);
              highest = takes ? v : highest;
              best = takes ? row + x : best;
            }
          }
        }
        *values = static_cast<T>(highest);
        *indices = best;
        values += step;
        indices += step;
      }
    }
  }
}

Spans adaptive_spans(int64_t in, int64_t out) {
  Spans spans;
  for (int64_t o = 0; o < out; ++o) spans.push_back(adaptive_span(o, in, out));
  return spans;
}

void adaptive_max_pool(const TensorView& out, const TensorView& indices, const TensorView& self, bool channels_last) {
  const Extent3 in = spatial(self), to = spatial(out);
  const Spans spans[3] = {adaptive_spans(in[0], to[0]), adaptive_spans(in[1], to[1]), adaptive_spans(in[2], to[2])};
  const int64_t channels = self.size(1), planes = self.size(0) * channels;
  const char* name = self.size(2) > 1 ? "adaptive_max_pool3d_cpu" : "adaptive_max_pool2d";
  visit_floating(name, self.dtype, [&]<class T>(Tag<T>) {
    parallel_for(0, planes, std::max<int64_t>(1, 16384 / volume(in)), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t step = channels_last ? channels : 1;
        const int64_t from = channels_last ? p / channels * volume(in) * channels + p % channels : p * volume(in);
        const int64_t at = channels_last ? p / channels * volume(to) * channels + p % channels : p * volume(to);
        box_maxima(self.ptr<const T>() + from, in, step, spans, out.ptr<T>() + at, indices.ptr<int64_t>() + at);
      }
    });
  });
}

// Where windows of `kernel` elements begin. The distances alternate between two integers as the sample says, and the
// last window ends with the input.
template <class C>
void find_fractional_spans(C sample, int64_t in, int64_t out, int64_t kernel, Spans& spans) {
  spans.clear();
  if (out > 1) {
    const C alpha = static_cast<C>(in - kernel) / static_cast<C>(out - 1);
    for (int64_t o = 0; o < out - 1; ++o) {
      const int64_t begin =
          static_cast<int64_t>((static_cast<C>(o) + sample) * alpha) - static_cast<int64_t>(sample * alpha);
      spans.push_back({begin, begin + kernel});
    }
  }
  if (out > 0) spans.push_back({in - kernel, in});
  // A sample outside [0, 1) must not lead outside the input.
  for (Span& s : spans) {
    s.begin = std::clamp<int64_t>(s.begin, 0, in);
    s.end = std::clamp<int64_t>(s.end, s.begin, in);
  }
}

void fractional_max_pool(const TensorView& out, const TensorView& indices, const TensorView& self,
                         const TensorView& samples, IntArrayRef kernel, IntArrayRef axes) {
  const Extent3 in = spatial(self), to = spatial(out);
  const int64_t planes = self.size(0) * self.size(1), dims = static_cast<int64_t>(axes.size());
  const char* name = dims == 3 ? "fractional_max_pool3d_out_frame" : "fractional_max_pool2d_out_frame";
  visit_floating(name, self.dtype, [&]<class T>(Tag<T>) {
    using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
    parallel_for(0, planes, std::max<int64_t>(1, 4096 / volume(in)), [&](int64_t begin, int64_t end) {
      Spans spans[3] = {{{0, 1}}, {{0, 1}}, {{0, 1}}};
      for (int64_t p = begin; p < end; ++p) {
        for (int64_t i = 0; i < dims; ++i) {
          const int64_t axis = axes[i];
          const C sample = static_cast<C>(samples.ptr<const T>()[p * dims + i]);
          find_fractional_spans(sample, in[axis], to[axis], kernel[axis], spans[axis]);
        }
        const int64_t at = p * volume(to);
        box_maxima(self.ptr<const T>() + p * volume(in), in, 1, spans, out.ptr<T>() + at, indices.ptr<int64_t>() + at);
      }
    });
  });
}

MICA_REGISTER_CPU(adaptive_max_pool, adaptive_max_pool);
MICA_REGISTER_CPU(fractional_max_pool, fractional_max_pool);

}  // namespace

}  // namespace mica::cpu
