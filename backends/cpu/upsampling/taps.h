// The resampling of one axis: for every output, the inputs that it is made of and their weights. Weights are computed
// in torch's type, so that they round alike.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mica::cpu {

template <class C>
struct AxisTaps {
  std::vector<int64_t> begin;  // where each output's taps begin, and the end of the last
  std::vector<int64_t> index;
  std::vector<C> weight;
  int64_t uniform = 0;  // how many taps every output has, if all have the same number
  int64_t span = 1;     // from the first input of an output to its last, at most
  bool copies = false;  // every output is one input
  int bits = 0;         // fractional bits of the weights, where they are fixed-point numbers

  int64_t outputs() const { return static_cast<int64_t>(begin.size()) - 1; }
};

enum class Filter { Nearest, NearestExact, Linear, Cubic, Lanczos };

inline Filter filter_of(std::string_view mode) {
  if (mode == "nearest") return Filter::Nearest;
  if (mode == "nearest-exact") return Filter::NearestExact;
  if (mode == "bicubic") return Filter::Cubic;
  if (mode == "lanczos") return Filter::Lanczos;
  return Filter::Linear;
}

// Input elements per output element; `factor` is the enlargement that was asked for, or 0.
template <class C>
C axis_scale(int64_t in, int64_t out, bool align_corners, double factor) {
  if (align_corners) return out > 1 ? static_cast<C>(in - 1) / static_cast<C>(out - 1) : C(0);
  return factor > 0 ? static_cast<C>(1.0 / factor) : static_cast<C>(in) / static_cast<C>(out);
}

template <class C>
C cubic_near(C x, C a) {  // |x| <= 1
  return ((a + 2) * x - (a + 3)) * x * x + 1;
}
template <class C>
C cubic_far(C x, C a) {  // 1 < |x| < 2
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

// The filters of antialiased resampling, which are Pillow's.
template <class C>
C filter_value(Filter filter, C x) {
  x = std::abs(x);
  if (filter == Filter::Linear) return x < 1 ? 1 - x : C(0);
  if (filter == Filter::Cubic) return x < 1 ? cubic_near(x, C(-0.5)) : x < 2 ? cubic_far(x, C(-0.5)) : C(0);
  const auto sinc = [](C y) { return y == 0 ? C(1) : std::sin(C(M_PI) * y) / (C(M_PI) * y); };
  return x < 3 ? sinc(x) * sinc(x / 3) : C(0);
}

template <class C>
void append_antialiased(AxisTaps<C>& taps, Filter filter, int64_t in, C scale, int64_t o) {
  const C radius = filter == Filter::Linear ? C(1) : filter == Filter::Cubic ? C(2) : C(3);
  const C support = scale >= 1 ? radius * scale : radius, inverse = scale >= 1 ? C(1) / scale : C(1);
  const C center = scale * (static_cast<C>(o) + C(0.5));
  const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + C(0.5)), 0);
  const int64_t last = std::min<int64_t>(static_cast<int64_t>(center + support + C(0.5)), in);
  const size_t from = taps.weight.size();
  C total = 0;
  for (int64_t i = first; i < last; ++i) {
    taps.index.push_back(i);
    taps.weight.push_back(filter_value(filter, (static_cast<C>(i) - center + C(0.5)) * inverse));
    total += taps.weight.back();
  }
  if (total != 0)
    for (size_t k = from; k < taps.weight.size(); ++k) taps.weight[k] /= total;
}

template <class C>
AxisTaps<C> axis_taps(Filter filter, int64_t in, int64_t out, bool align_corners, bool antialias, double factor) {
  AxisTaps<C> taps;
  const C scale = axis_scale<C>(in, out, align_corners, factor);
  const auto put = [&](int64_t index, C weight) {
    taps.index.push_back(std::clamp<int64_t>(index, 0, in - 1));
    taps.weight.push_back(weight);
  };
  taps.begin.push_back(0);
  for (int64_t o = 0; o < out; ++o) {
    const C place = static_cast<C>(o);
    const C between = align_corners ? scale * place : scale * (place + C(0.5)) - C(0.5);
    if (antialias) {
      append_antialiased(taps, filter, in, scale, o);
    } else if (filter == Filter::Nearest) {  // torch rounds the place to float in any dtype
      put(static_cast<int64_t>(std::floor(static_cast<float>(scale * place))), 1);
    } else if (filter == Filter::NearestExact) {
      put(static_cast<int64_t>(std::floor(static_cast<float>(std::max(between, C(0)) + C(0.5)))), 1);
    } else if (filter == Filter::Linear) {
      const C real = in == out ? place : std::max(between, C(0));
      const int64_t index = std::min(static_cast<int64_t>(real), in - 1);
      const C second = std::clamp(real - static_cast<C>(index), C(0), C(1));
      put(index, 1 - second);
      put(index + 1, second);
    } else {
      const int64_t index = std::min(static_cast<int64_t>(std::floor(between)), in - 1);
      const C t = std::clamp(between - static_cast<C>(index), C(0), C(1)), a = C(-0.75);
      put(index - 1, cubic_far(t + 1, a));
      put(index, cubic_near(t, a));
      put(index + 1, cubic_near(1 - t, a));
      put(index + 2, cubic_far(2 - t, a));
    }
    taps.begin.push_back(static_cast<int64_t>(taps.index.size()));
  }
  return taps;
}

// The nearest inputs as torch finds them where channels lie innermost: in float, with equal sizes and doublings taken
// as such whatever factor was asked for.
template <class C>
AxisTaps<C> nearest_taps_channels_last(Filter filter, int64_t in, int64_t out, double factor) {
  AxisTaps<C> taps;
  const float scale = axis_scale<float>(in, out, false, factor);
  taps.begin.push_back(0);
  for (int64_t o = 0; o < out; ++o) {
    int64_t index;
    if (filter == Filter::NearestExact) {
      index = static_cast<int64_t>(std::floor((static_cast<float>(o) + 0.5f) * scale));
    } else if (in == out) {
      index = o;
    } else if (out == 2 * in) {
      index = o >> 1;
    } else {
      index = static_cast<int64_t>(std::floor(static_cast<float>(o) * scale));
    }
    taps.index.push_back(std::min(index, in - 1));
    taps.weight.push_back(1);
    taps.begin.push_back(o + 1);
  }
  return taps;
}

// The taps with inputs and outputs exchanged: how a gradient flows back.
template <class C>
AxisTaps<C> transposed(const AxisTaps<C>& taps, int64_t in) {
  AxisTaps<C> back;
  back.begin.assign(static_cast<size_t>(in) + 1, 0);
  for (int64_t i : taps.index) ++back.begin[i + 1];
  for (int64_t i = 0; i < in; ++i) back.begin[i + 1] += back.begin[i];
  back.index.resize(taps.index.size());
  back.weight.resize(taps.weight.size());
  std::vector<int64_t> next(back.begin.begin(), back.begin.end() - 1);
  for (int64_t o = 0; o < taps.outputs(); ++o) {
    for (int64_t k = taps.begin[o]; k < taps.begin[o + 1]; ++k) {
      const int64_t at = next[taps.index[k]]++;
      back.index[at] = o;
      back.weight[at] = taps.weight[k];
    }
  }
  return back;
}

// The taps of bytes: torch sums them with 16-bit weights, as Pillow does, of as many fractional bits as the largest
// allows. Clamped taps that meet in one input count as one. Copied axes need no fraction.
template <class C>
AxisTaps<int32_t> quantized(const AxisTaps<C>& taps, bool copied) {
  AxisTaps<int32_t> fixed;
  std::vector<double> weights;
  fixed.begin.push_back(0);
  for (int64_t o = 0; o < taps.outputs(); ++o) {
    for (int64_t k = taps.begin[o]; k < taps.begin[o + 1]; ++k) {
      if (k > taps.begin[o] && taps.index[k] == fixed.index.back()) {
        weights.back() += taps.weight[k];
      } else {
        fixed.index.push_back(taps.index[k]);
        weights.push_back(taps.weight[k]);
      }
    }
    fixed.begin.push_back(static_cast<int64_t>(fixed.index.size()));
  }
  const double largest = weights.empty() ? 0 : *std::max_element(weights.begin(), weights.end());
  while (!copied && fixed.bits < 22 && 0.5 + largest * (1 << (fixed.bits + 1)) < 1 << 15) ++fixed.bits;
  for (double w : weights) fixed.weight.push_back(static_cast<int32_t>(w * (1 << fixed.bits) + (w < 0 ? -0.5 : 0.5)));
  return fixed;
}

// Fills in the members that follow from the lists.
template <class C>
void summarize(AxisTaps<C>& taps) {
  const int64_t n = taps.outputs();
  taps.uniform = n ? taps.begin[1] - taps.begin[0] : 0;
  taps.copies = true;
  for (int64_t o = 0; o < n; ++o) {
    if (taps.begin[o + 1] - taps.begin[o] != taps.uniform) taps.uniform = 0;
    taps.copies = taps.copies && taps.begin[o + 1] - taps.begin[o] == 1 && taps.weight[taps.begin[o]] == C(1);
    if (taps.begin[o + 1] == taps.begin[o]) continue;
    const auto [low, high] =
        std::minmax_element(taps.index.begin() + taps.begin[o], taps.index.begin() + taps.begin[o + 1]);
    taps.span = std::max(taps.span, *high - *low + 1);
  }
}

}  // namespace mica::cpu
