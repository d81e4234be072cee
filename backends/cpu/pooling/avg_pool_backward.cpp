// The derivatives of avg_pool and adaptive_avg_pool. Every input sums the gradients of the boxes that hold it, each
// divided by the box's divisor.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pooling/avg_pool_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pooling/boxes.h"
#include "backends/cpu/pooling/rows-inl.h"
#include "backends/cpu/pooling/visit.h"
#include "backends/cpu/simd_register.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// sums[o] += values[o] / (rest * divisors[o])
template <class C>
void add_quotients(const C* values, const C* divisors, C rest, int64_t n, C* sums) {
  for (int64_t o = 0; o < n; ++o) sums[o] += values[o] / (rest * divisors[o]);
}

// result[w] = the sum of sums[o] over the boxes o that hold w. `boxes` has `most` lists over w; where fewer boxes hold
// w, the others name an element that is zero.
template <class C>
void gather_sums(const C* sums, const int32_t* boxes, int64_t most, int64_t width, C* result) {
  for (int64_t w = 0; w < width; ++w) result[w] = sums[boxes[w]];
  for (int64_t k = 1; k < most; ++k)
    for (int64_t w = 0; w < width; ++w) result[w] += sums[boxes[k * width + w]];
}

template <class T>
void spread_rows(const T* grad, T* grad_in, const Boxes& b, const std::vector<Span>* holding) {
  using C = Computed<T>;
  const int64_t n = b.out[2], width = b.in[2];
  const int64_t rows = b.batch * b.channels * b.in[0] * b.in[1];
  int64_t most = 1;
  for (const Span& s : holding[2]) most = std::max(most, s.end - s.begin);
  std::vector<int32_t> boxes(static_cast<size_t>(most * width), static_cast<int32_t>(n));
  for (int64_t w = 0; w < width; ++w)
    for (int64_t o = holding[2][w].begin; o < holding[2][w].end; ++o)
      boxes[(o - holding[2][w].begin) * width + w] = static_cast<int32_t>(o);
  std::vector<C> divisors(static_cast<size_t>(n));
  for (int64_t o = 0; o < n; ++o) divisors[o] = static_cast<C>(b.divisor ? b.divisor : b.axes[2].divisor(o));
  parallel_for(0, rows, std::max<int64_t>(1, 16384 / (n + width)), [&](int64_t begin, int64_t end) {
    std::vector<C> loaded(static_cast<size_t>(n)), sums(static_cast<size_t>(n) + 1), result(static_cast<size_t>(width));
    Span d{-1, -1}, h{-1, -1};
    int64_t plane = -1;
    Position p = Position::of_row(begin, b.in);
    for (int64_t row = begin; row < end; ++row, p.next_row(b.in)) {
      T* to = grad_in + row * width;
      const Span next_d = holding[0][p.d], next_h = holding[1][p.h];
      const bool same = p.plane == plane && next_d.begin == d.begin && next_d.end == d.end && next_h.begin == h.begin &&
                        next_h.end == h.end;
      if (!same) {  // rows under the same boxes have the same gradient
        plane = p.plane;
        d = next_d;
        h = next_h;
        std::fill(sums.begin(), sums.end(), C(0));
        for (int64_t z = d.begin; z < d.end; ++z) {
          for (int64_t y = h.begin; y < h.end; ++y) {
            const T* from = grad + ((plane * b.out[0] + z) * b.out[1] + y) * n;
            const int64_t rest = b.divisor ? 1 : b.axes[0].divisor(z) * b.axes[1].divisor(y);
            if constexpr (std::is_same_v<T, C>) {
              add_quotients(from, divisors.data(), static_cast<C>(rest), n, sums.data());
            } else {
              load_run(from, n, loaded.data());
              add_quotients(loaded.data(), divisors.data(), static_cast<C>(rest), n, sums.data());
            }
          }
        }
        gather_sums(sums.data(), boxes.data(), most, width, result.data());
      }
      store_run(result.data(), width, to);
    }
  });
}

template <class T>
void spread_channels_last(const T* grad, T* grad_in, const Boxes& b, const std::vector<Span>* holding) {
  using C = Computed<T>;
  const int64_t channels = b.channels, pixels = b.batch * volume(b.in);
  std::vector<int64_t> divisors(static_cast<size_t>(b.out[2]));
  for (int64_t o = 0; o < b.out[2]; ++o) divisors[o] = b.axes[2].divisor(o);
  parallel_for(0, pixels, std::max<int64_t>(1, 16384 / channels), [&](int64_t begin, int64_t end) {
    const hn::ScalableTag<C> tag;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
    Position p = Position::of_element(begin, b.in);
    for (int64_t i = begin; i < end; ++i, p.next_element(b.in)) {
      const Span d = holding[0][p.d], h = holding[1][p.h], w = holding[2][p.w];
      for (int64_t c = 0; c < channels; c += lanes) {
        const size_t count = static_cast<size_t>(std::min(lanes, channels - c));
        auto sum = hn::Zero(tag);
        for (int64_t z = d.begin; z < d.end; ++z) {
          for (int64_t y = h.begin; y < h.end; ++y) {
            const int64_t rest = b.axes[0].divisor(z) * b.axes[1].divisor(y);
            for (int64_t x = w.begin; x < w.end; ++x) {
              const T* from = grad + (((p.plane * b.out[0] + z) * b.out[1] + y) * b.out[2] + x) * channels + c;
              const auto v = HWY_LIKELY(count == static_cast<size_t>(lanes)) ? load_lanes(tag, from)
                                                                             : load_first_lanes(tag, from, count);
              const int64_t divisor = b.divisor ? b.divisor : rest * divisors[x];
              sum = hn::Add(sum, hn::Div(v, hn::Set(tag, static_cast<C>(divisor))));
            }
          }
        }
        store_first_lanes(sum, tag, grad_in + i * channels + c, count);
      }
    }
  });
}

void spread(const char* op, const TensorView& grad_self, const TensorView& grad, const Boxes& b, bool channels_last) {
  const std::vector<Span> holding[3] = {holders(b.axes[0], b.in[0]), holders(b.axes[1], b.in[1]),
                                        holders(b.axes[2], b.in[2])};
  visit_floating(op, grad.dtype, [&]<class T>(Tag<T>) {
    if (channels_last) {
      spread_channels_last(grad.ptr<const T>(), grad_self.ptr<T>(), b, holding);
    } else {
      spread_rows(grad.ptr<const T>(), grad_self.ptr<T>(), b, holding);
    }
  });
}

void avg_pool_backward(const TensorView& grad_self, const TensorView& grad, IntArrayRef kernel, IntArrayRef stride,
                       IntArrayRef padding, bool count_include_pad, int64_t divisor, bool channels_last) {
  const Boxes b = regular_boxes(grad_self, grad, kernel, stride, padding, count_include_pad, divisor);
  spread("avg_pool2d_backward", grad_self, grad, b, channels_last);
}

void adaptive_avg_pool_backward(const TensorView& grad_self, const TensorView& grad, bool channels_last) {
  spread("adaptive_avg_pool2d_backward", grad_self, grad, adaptive_boxes(grad_self, grad), channels_last);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(avg_pool_backward);
HWY_EXPORT(adaptive_avg_pool_backward);
MICA_REGISTER_SIMD(avg_pool_backward, avg_pool_backward);
MICA_REGISTER_SIMD(adaptive_avg_pool_backward, adaptive_avg_pool_backward);
}  // namespace mica::cpu
#endif
