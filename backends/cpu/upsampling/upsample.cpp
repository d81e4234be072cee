// upsample and its derivative. Axes are resampled one after the other: a row of outputs is a weighted sum of input
// rows, each resampled along the width once and kept as long as the rows that follow may need it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/upsampling/upsample.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "backends/cpu/pooling/lanes-inl.h"
#include "backends/cpu/pooling/windows.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/upsampling/edges.h"
#include "backends/cpu/upsampling/taps.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Bytes are summed in fixed point, one axis at a time: the result along one axis is bytes again.
template <class T>
constexpr bool is_byte = std::is_same_v<T, uint8_t>;
template <class T>
using Interpolated =
    std::conditional_t<is_byte<T>, int32_t, std::conditional_t<std::is_same_v<T, double>, double, float>>;

template <class D, class V>
HWY_INLINE V multiply_add(D, V a, V b, V sum) {
  if constexpr (std::is_same_v<hn::TFromD<D>, int32_t>) {
    return hn::Add(hn::Mul(a, b), sum);
  } else {
    return hn::MulAdd(a, b, sum);
  }
}

inline int32_t nearest_byte(int32_t sum, int bits) {
  const int32_t rounded = bits ? (sum + (1 << (bits - 1))) >> bits : sum;
  return std::clamp(rounded, 0, 255);
}

// The taps of an axis as lists over the outputs, with the same number for each: additional taps have weight zero. For
// integers only, since zero times infinity is not zero.
struct TapLists {
  int64_t count = 0;
  std::vector<int32_t> index, weight;
};

inline TapLists lists_of(const AxisTaps<int32_t>& taps) {
  const int64_t n = taps.outputs();
  TapLists lists;
  for (int64_t o = 0; o < n; ++o) lists.count = std::max(lists.count, taps.begin[o + 1] - taps.begin[o]);
  lists.index.resize(static_cast<size_t>(lists.count * n));
  lists.weight.resize(lists.index.size());
  for (int64_t o = 0; o < n; ++o) {
    for (int64_t k = taps.begin[o]; k < taps.begin[o + 1]; ++k) {
      lists.index[(k - taps.begin[o]) * n + o] = static_cast<int32_t>(taps.index[k]);
      lists.weight[(k - taps.begin[o]) * n + o] = taps.weight[k];
    }
  }
  return lists;
}

inline void resample_lists(const int32_t* row, const TapLists& lists, int64_t n, int32_t* out) {
  std::fill_n(out, n, 0);
  for (int64_t k = 0; k < lists.count; ++k) {
    const int32_t *index = lists.index.data() + k * n, *weight = lists.weight.data() + k * n;
    for (int64_t o = 0; o < n; ++o) out[o] += weight[o] * row[index[o]];
  }
}

template <class C>
struct Resampling {
  int64_t images;  // rows are (image, depth, height); an image is one channel, or all of them where they lie innermost
  Extent3 in, out;
  int64_t channels;     // innermost; 1 otherwise
  AxisTaps<C> axes[3];  // depth, height, width
  TapLists lists;       // the lists of the width, for bytes
};

// There are versions for two taps and for any number, and for adjacent elements and channels.
template <class C>
void resample_width(const C* row, const Resampling<C>& r, C* out) {
  const AxisTaps<C>& taps = r.axes[2];
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = r.out[2], channels = r.channels;
  if (channels > 1 && taps.copies) {
    for (int64_t o = 0; o < n; ++o)
      std::memcpy(out + o * channels, row + taps.index[o] * channels, static_cast<size_t>(channels) * sizeof(C));
    return;
  }
  if (channels > 1) {
    for (int64_t o = 0; o < n; ++o) {
      const int64_t begin = taps.begin[o], end = taps.begin[o + 1];
      for (int64_t c = 0; c < channels; c += lanes) {
        const size_t count = static_cast<size_t>(std::min(lanes, channels - c));
        auto sum = hn::Zero(d);
        for (int64_t k = begin; k < end; ++k) {
          const C* from = row + taps.index[k] * channels + c;
          const auto v = count == static_cast<size_t>(lanes) ? hn::LoadU(d, from) : load_first(d, from, count);
          sum =
              k == begin ? hn::Mul(v, hn::Set(d, taps.weight[k])) : multiply_add(d, v, hn::Set(d, taps.weight[k]), sum);
        }
        store_first(sum, d, out + o * channels + c, count);
      }
    }
    return;
  }
  if constexpr (std::is_same_v<C, int32_t>) return resample_lists(row, r.lists, n, out);
  const int64_t* index = taps.index.data();
  const C* weight = taps.weight.data();
  if (taps.copies) {
    for (int64_t o = 0; o < n; ++o) out[o] = row[index[o]];
  } else if (taps.uniform == 2) {
    for (int64_t o = 0; o < n; ++o)
      out[o] = weight[2 * o] * row[index[2 * o]] + weight[2 * o + 1] * row[index[2 * o + 1]];
  } else if (taps.uniform == 4) {
    for (int64_t o = 0; o < n; ++o) {
      const C* w = weight + 4 * o;
      const int64_t* i = index + 4 * o;
      out[o] = w[0] * row[i[0]] + w[1] * row[i[1]] + w[2] * row[i[2]] + w[3] * row[i[3]];
    }
  } else {
    for (int64_t o = 0; o < n; ++o) {
      C sum = 0;
      for (int64_t k = taps.begin[o]; k < taps.begin[o + 1]; ++k) sum += weight[k] * row[index[k]];
      out[o] = sum;
    }
  }
}

// Rows resampled along the width, the latest ones kept.
template <class T>
class ResampledRows {
 public:
  using C = Interpolated<T>;
  ResampledRows(const Resampling<C>& r, const T* in)
      : r_(r),
        in_(in),
        length_(r.out[2] * r.channels),
        rows_(r.axes[0].span * r.axes[1].span),
        tags_(static_cast<size_t>(rows_), -1),
        kept_(static_cast<size_t>(rows_ * length_)),
        loaded_(static_cast<size_t>(std::is_same_v<T, C> ? 0 : r.in[2] * r.channels)) {}

  const C* row(int64_t image, int64_t z, int64_t y) {
    const int64_t slot = z % r_.axes[0].span * r_.axes[1].span + y % r_.axes[1].span;
    const int64_t row = (image * r_.in[0] + z) * r_.in[1] + y;
    C* kept = kept_.data() + slot * length_;
    if (tags_[slot] == row) return kept;
    const int64_t width = r_.in[2] * r_.channels;
    if constexpr (std::is_same_v<T, C>) {
      resample_width(in_ + row * width, r_, kept);
    } else {
      load_run(in_ + row * width, width, loaded_.data());
      resample_width(loaded_.data(), r_, kept);
      if constexpr (is_byte<T>)
        for (int64_t i = 0; i < length_; ++i) kept[i] = nearest_byte(kept[i], r_.axes[2].bits);
    }
    tags_[slot] = row;
    return kept;
  }
  int64_t length() const { return length_; }

 private:
  const Resampling<C>& r_;
  const T* in_;
  int64_t length_, rows_;
  std::vector<int64_t> tags_;
  std::vector<C> kept_, loaded_;
};

template <class T, class C>
void combine_rows(const std::vector<const C*>& rows, const std::vector<C>& weights, int bits, int64_t n, T* out,
                  C* buffer) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr bool kBytes = is_byte<T>;
  const size_t count = rows.size();
  for (int64_t i = 0; i < n; i += lanes) {
    const size_t left = static_cast<size_t>(std::min(lanes, n - i));
    const bool whole = left == static_cast<size_t>(lanes);
    auto sum = hn::Zero(d);
    for (size_t k = 0; k < count; ++k) {
      const auto v = whole ? hn::LoadU(d, rows[k] + i) : load_first(d, rows[k] + i, left);
      sum = k == 0 ? hn::Mul(v, hn::Set(d, weights[k])) : multiply_add(d, v, hn::Set(d, weights[k]), sum);
    }
    if constexpr (kBytes) {
      store_first(sum, d, buffer + i, left);
    } else if (whole) {
      store_lanes(sum, d, out + i);
    } else {
      store_first_lanes(sum, d, out + i, left);
    }
  }
  if constexpr (kBytes)
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(nearest_byte(buffer[i], bits));
}

template <class T, class C>
void copy_row(const C* row, int64_t n, T* out) {
  if constexpr (std::is_same_v<T, C>) {
    std::memcpy(out, row, static_cast<size_t>(n) * sizeof(T));
  } else {
    store_run(row, n, out);
  }
}

template <class T>
void resample(const T* in, T* out, const Resampling<Interpolated<T>>& r) {
  using C = Interpolated<T>;
  const int64_t rows = r.images * r.out[0] * r.out[1];
  const int64_t length = r.out[2] * r.channels;
  parallel_for(0, rows, std::max<int64_t>(1, 16384 / length), [&](int64_t begin, int64_t end) {
    ResampledRows<T> source(r, in);
    std::vector<const C*> pointers;
    std::vector<C> weights, buffer(static_cast<size_t>(is_byte<T> ? length : 0));
    Position p = Position::of_row(begin, r.out);
    for (int64_t row = begin; row < end; ++row, p.next_row(r.out)) {
      pointers.clear();
      weights.clear();
      const AxisTaps<C>&depth = r.axes[0], &height = r.axes[1];
      for (int64_t k = depth.begin[p.d]; k < depth.begin[p.d + 1]; ++k) {
        for (int64_t m = height.begin[p.h]; m < height.begin[p.h + 1]; ++m) {
          pointers.push_back(source.row(p.plane, depth.index[k], height.index[m]));
          weights.push_back(depth.weight[k] * height.weight[m]);
        }
      }
      if (depth.copies && height.copies) {
        copy_row(pointers[0], length, out + row * length);
        continue;
      }
      combine_rows(pointers, weights, height.bits, length, out + row * length, buffer.data());
    }
  });
}

template <class C>
Resampling<C> plan(const TensorView& forward_in, const TensorView& forward_out, std::string_view mode,
                   bool align_corners, bool antialias, ArrayRef<double> scales, bool channels_last, bool backward) {
  Resampling<C> r;
  const Extent3 from = spatial(forward_in), to = spatial(forward_out);
  r.channels = channels_last ? forward_in.size(1) : 1;
  r.images = forward_in.size(0) * forward_in.size(1) / r.channels;
  r.in = backward ? to : from;
  r.out = backward ? from : to;
  const Filter filter = filter_of(mode);
  const bool copied = filter == Filter::Nearest || filter == Filter::NearestExact;
  for (int a = 0; a < 3; ++a) {
    const bool present = scales.size() + static_cast<size_t>(a) >= 3;  // missing dimensions are copied
    const auto taps_in = [&]<class W>(Tag<W>) {
      if (!present) return axis_taps<W>(Filter::Nearest, 1, 1, false, false, 0);
      // With one channel both layouts are the same.
      if (copied && scales.size() > 1 && (channels_last || forward_in.size(1) == 1))
        return nearest_taps_channels_last<W>(filter, from[a], to[a], scales[scales.size() + a - 3]);
      return axis_taps<W>(filter, from[a], to[a], align_corners, antialias, scales[scales.size() + a - 3]);
    };
    if constexpr (std::is_same_v<C, int32_t>) {  // of bytes torch finds the nearest in float, the weights in double
      r.axes[a] =
          copied || !present ? quantized(taps_in(Tag<float>{}), true) : quantized(taps_in(Tag<double>{}), false);
    } else {
      r.axes[a] = backward ? transposed(taps_in(Tag<C>{}), from[a]) : taps_in(Tag<C>{});
    }
    summarize(r.axes[a]);
  }
  if constexpr (std::is_same_v<C, int32_t>) r.lists = lists_of(r.axes[2]);
  return r;
}

template <class F>
void visit_resampled(std::string_view mode, bool antialias, DType dtype, const F& f) {
  const char* name = antialias           ? "compute_index_ranges_weights"
                     : mode == "bicubic" ? "compute_indices_weights_cubic"
                     : mode == "nearest" ? "compute_indices_weights_nearest"
                                         : "compute_indices_weights_linear";
  if (dtype == DType::UInt8 && mode != "linear" && mode != "trilinear") return f(Tag<uint8_t>{});
  visit_floating(name, dtype, f);
}

void upsample(const TensorView& out, const TensorView& self, std::string_view mode, bool align_corners, bool antialias,
              ArrayRef<double> scales, bool channels_last) {
  visit_resampled(mode, antialias, self.dtype, [&]<class T>(Tag<T>) {
    const auto r = plan<Interpolated<T>>(self, out, mode, align_corners, antialias, scales, channels_last, false);
    resample(self.ptr<const T>(), out.ptr<T>(), r);
  });
}

void upsample_backward(const TensorView& grad_self, const TensorView& grad, std::string_view mode, bool align_corners,
                       bool antialias, ArrayRef<double> scales, bool channels_last) {
  visit_floating("upsample_backward", grad.dtype, [&]<class T>(Tag<T>) {
    const auto r = plan<Interpolated<T>>(grad_self, grad, mode, align_corners, antialias, scales, channels_last, true);
    resample(grad.ptr<const T>(), grad_self.ptr<T>(), r);
  });
}

// The derivative of padding, whose forward reads one element for each output: backends/cpu/upsampling/pad_edges.cpp.
void pad_edges_backward(const TensorView& grad_self, const TensorView& grad, std::string_view mode, IntArrayRef before,
                        bool channels_last) {
  const auto run = [&]<class T>(Tag<T>) {
    using C = Interpolated<T>;
    const int64_t parts = is_complex(grad.dtype) ? 2 : 1, channels = channels_last ? grad.size(1) : 1;
    Resampling<C> r;
    r.channels = channels * parts;
    r.images = grad.size(0) * grad.size(1) / channels;
    r.in = spatial(grad);
    r.out = spatial(grad_self);
    for (int a = 0; a < 3; ++a) {
      AxisTaps<C> taps;
      taps.index = edge_sources(mode, r.out[a], r.in[a], before[a]);
      taps.weight.assign(taps.index.size(), C(1));
      for (int64_t i = 0; i <= r.in[a]; ++i) taps.begin.push_back(i);
      r.axes[a] = transposed(taps, r.out[a]);
      summarize(r.axes[a]);
    }
    resample(grad.ptr<const T>(), grad_self.ptr<T>(), r);
  };
  if (grad.dtype == DType::Complex64) return run(Tag<float>{});
  if (grad.dtype == DType::Complex128) return run(Tag<double>{});
  visit_floating("pad_backward", grad.dtype, run);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(upsample);
HWY_EXPORT(upsample_backward);
MICA_REGISTER_SIMD(upsample, upsample);
HWY_EXPORT(pad_edges_backward);
MICA_REGISTER_SIMD(upsample_backward, upsample_backward);
MICA_REGISTER_SIMD(pad_edges_backward, pad_edges_backward);
}  // namespace mica::cpu
#endif
