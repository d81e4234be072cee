// max_pool: the largest element of every window, and where it stands. Of equal elements the first counts, of NaNs the
// last, as in torch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pooling/max_pool.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pooling/rows-inl.h"
#include "backends/cpu/pooling/visit.h"
#include "backends/cpu/simd_register.h"
#include "mica/error.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// An integer as wide as what is compared: relative places fit, since they span one window.
template <class C>
using Place = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;

// Where indices go, if they are wanted: int64, or int32.
struct Indices {
  void* data;
  bool wide;
  explicit operator bool() const { return data != nullptr; }
};

// One row of outputs. `places` gets each maximum's place relative to its window's start in the first covered row, or -1
// where nothing exceeds the lowest value.
template <int kStride, bool kPlaces, class C>
void max_row(const CoveredRows<C>& in, const Windows& w, bool overlap, C* out, Place<C>* places) {
  const hn::ScalableTag<C> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), stride = w.stride[2], dilation = w.dilation[2];
  const auto offsets = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<Place<C>>(stride)));
  for_each_vector(w.out[2], lanes, overlap, [&](int64_t first, int64_t) {
    auto maximum = hn::Set(d, lowest<C>());
    auto place = hn::Set(di, -1);
    for (int64_t r = 0; r < in.count; ++r) {
      const C* row = in.rows[r] + first * stride;
      for (int64_t k = 0; k < w.kernel[2]; ++k) {
        const auto v = load_strided<kStride>(d, row + k * dilation, offsets);
        const auto takes = exceeds(d, v, maximum);
        maximum = hn::IfThenElse(takes, v, maximum);
        if constexpr (kPlaces) {
          const auto here = hn::Set(di, static_cast<Place<C>>(in.offsets[r] + k * dilation));
          place = hn::IfThenElse(hn::RebindMask(di, takes), here, place);
        }
      }
    }
    hn::StoreU(maximum, d, out + first);
    if constexpr (kPlaces) hn::StoreU(place, di, places + first);
  });
}

// Places relative to the windows' starts become indices into the plane.
template <class P, class I>
void write_row(const P* places, const Windows& w, int64_t first_row, I* to) {
  for (int64_t o = 0; o < w.out[2]; ++o) {
    const int64_t start = o * w.stride[2] - w.padding[2];
    to[o] = static_cast<I>(first_row * w.in[2] + start + places[o]);
  }
  // Where nothing exceeded the lowest value, the place is the first tap, or the last element where dilation skips the
  // input.
  for (int64_t o = 0; o < w.out[2]; ++o)
    if (places[o] < 0) to[o] = static_cast<I>(std::min(first_row * w.in[2] + w.taps(2, o).first, volume(w.in) - 1));
}

template <class P>
void write_row(const P* places, const Windows& w, int64_t first_row, const Indices& indices, int64_t at) {
  if (indices.wide) {
    write_row(places, w, first_row, static_cast<int64_t*>(indices.data) + at);
  } else {
    write_row(places, w, first_row, static_cast<int32_t*>(indices.data) + at);
  }
}

template <class T>
void max_rows(const T* in, T* out, const Indices& indices, const Windows& w) {
  using C = Computed<T>;
  const int64_t rows = w.batch * w.channels * w.out[0] * w.out[1];
  const int64_t work = w.out[2] * w.most_taps();
  parallel_for(0, rows, std::max<int64_t>(1, 32768 / work), [&](int64_t begin, int64_t end) {
    RowReader<T> reader(w, in, lowest<C>());
    // Whole vectors are written: the buffers have room for one more.
    std::vector<C> values(static_cast<size_t>(w.out[2]) + hn::Lanes(hn::ScalableTag<C>()));
    std::vector<Place<C>> places(indices ? values.size() : 0);
    Position p = Position::of_row(begin, w.out);
    with_stride(w.stride[2], [&]<int kStride>(std::integral_constant<int, kStride>) {
      for (int64_t row = begin; row < end; ++row, p.next_row(w.out)) {
        const Taps d = w.taps(0, p.d), h = w.taps(1, p.h);
        const CoveredRows<C> covered = reader.covered(p, d, h);
        T* to = out + row * w.out[2];
        C* target = values.data();
        if constexpr (std::is_same_v<T, C>) {
          if (reader.in_place()) target = to;
        }
        if (indices) {
          max_row<kStride, true>(covered, w, reader.in_place(), target, places.data());
          write_row(places.data(), w, d.first * w.in[1] + h.first, indices, row * w.out[2]);
        } else {
          max_row<kStride, false>(covered, w, reader.in_place(), target, places.data());
        }
        if (static_cast<void*>(target) != static_cast<void*>(to)) store_run(values.data(), w.out[2], to);
      }
    });
  });
}

// Calls body(offset) for the taps of a window, in elements of one channel behind the first.
template <class F>
HWY_INLINE void for_each_tap(const Windows& w, const Taps& d, const Taps& h, const Taps& x, const F& body) {
  const int64_t row_step = w.dilation[1] * w.in[2], plane_step = w.dilation[0] * w.in[1] * w.in[2];
  for (int64_t i = 0; i < d.count; ++i)
    for (int64_t k = 0; k < h.count; ++k)
      for (int64_t m = 0; m < x.count; ++m) body(i * plane_step + k * row_step + m * w.dilation[2]);
}

// The maxima of a window over kTogether vectors of channels. Each comparison waits for the one before, so that one
// vector by itself would take several times as long.
template <int kTogether, class T>
HWY_INLINE void max_vectors(const T* from, const Windows& w, const Taps& d, const Taps& h, const Taps& x, T* out) {
  using C = Computed<T>;
  const hn::ScalableTag<C> tag;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  hn::Vec<decltype(tag)> maxima[kTogether];
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) maxima[i] = hn::Set(tag, lowest<C>());
  for_each_tap(w, d, h, x, [&](int64_t offset) HWY_ATTR {
    const T* at = from + offset * w.channels;
#pragma GCC unroll 4
    for (int i = 0; i < kTogether; ++i) {
      const auto v = load_lanes(tag, at + i * lanes);
      maxima[i] = hn::IfThenElse(exceeds(tag, v, maxima[i]), v, maxima[i]);
    }
  });
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) store_first_lanes(maxima[i], tag, out + i * lanes, static_cast<size_t>(lanes));
}

// One window over all channels, which lie side by side.
template <bool kPlaces, class T>
void max_pixel(const T* in, const Windows& w, const Taps& d, const Taps& h, const Taps& x, T* out,
               const Indices& indices, int64_t at) {
  using C = Computed<T>;
  const hn::ScalableTag<C> tag;
  const hn::RebindToSigned<decltype(tag)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag)), channels = w.channels;
  const int64_t first = std::min((d.first * w.in[1] + h.first) * w.in[2] + x.first, volume(w.in) - 1);
  HWY_ALIGN Place<C> buffer[hn::MaxLanes(hn::ScalableTag<C>())];
  constexpr int kTogether = 4;
  int64_t c = 0;
  for (; !kPlaces && c + kTogether * lanes <= channels; c += kTogether * lanes)
    max_vectors<kTogether>(in + first * channels + c, w, d, h, x, out + c);
  for (; c < channels; c += lanes) {
    const size_t count = static_cast<size_t>(std::min(lanes, channels - c));
    auto maximum = hn::Set(tag, lowest<C>());
    auto place = hn::Zero(di);
    for_each_tap(w, d, h, x, [&](int64_t offset) HWY_ATTR {
      const T* from = in + (first + offset) * channels + c;
      const auto v =
          HWY_LIKELY(count == static_cast<size_t>(lanes)) ? load_lanes(tag, from) : load_first_lanes(tag, from, count);
      const auto takes = exceeds(tag, v, maximum);
      maximum = hn::IfThenElse(takes, v, maximum);
      if constexpr (kPlaces)
        place = hn::IfThenElse(hn::RebindMask(di, takes), hn::Set(di, static_cast<Place<C>>(offset)), place);
    });
    store_first_lanes(maximum, tag, out + c, count);
    if constexpr (kPlaces) {
      hn::Store(place, di, buffer);
      for (size_t l = 0; l < count; ++l) {
        if (indices.wide) {
          static_cast<int64_t*>(indices.data)[at + c + l] = first + buffer[l];
        } else {
          static_cast<int32_t*>(indices.data)[at + c + l] = static_cast<int32_t>(first + buffer[l]);
        }
      }
    }
  }
}

template <class T>
void max_channels_last(const T* in, T* out, const Indices& indices, const Windows& w) {
  const int64_t pixels = w.batch * volume(w.out);
  const int64_t work = w.channels * w.most_taps();
  parallel_for(0, pixels, std::max<int64_t>(1, 32768 / work), [&](int64_t begin, int64_t end) {
    Position p = Position::of_element(begin, w.out);
    for (int64_t i = begin; i < end; ++i, p.next_element(w.out)) {
      const T* image = in + p.plane * volume(w.in) * w.channels;
      const Taps d = w.taps(0, p.d), h = w.taps(1, p.h), x = w.taps(2, p.w);
      if (indices) {
        max_pixel<true>(image, w, d, h, x, out + i * w.channels, indices, i * w.channels);
      } else {
        max_pixel<false>(image, w, d, h, x, out + i * w.channels, indices, 0);
      }
    }
  });
}

// Whether the padded rows under one row of outputs are far longer than the input's.
bool have_vast_borders(const Windows& w) {
  const double rows = static_cast<double>(w.kernel[0]) * static_cast<double>(w.kernel[1] * w.dilation[1]);
  return w.reach(2) * rows > 4194304 + 4.0 * static_cast<double>(volume(w.in));
}

void max_pool(const TensorView& out, const TensorView& indices, const TensorView& self, IntArrayRef kernel,
              IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool channels_last) {
  const Windows w = windows(self, out, kernel, stride, padding, dilation);
  const char* name = self.size(2) > 1 ? "max_pool3d" : "max_pool2d";
  const Indices places{indices.data, indices.dtype == DType::Int64};
  const int64_t span =
      (((w.kernel[0] - 1) * w.dilation[0] * w.in[1]) + (w.kernel[1] - 1) * w.dilation[1] + 1) * w.in[2];
  MICA_CHECK(!places || std::min(span, volume(w.in)) <= INT32_MAX, name, ": a window spans ", span,
             " elements, more than indices are counted in");
  visit_pooled(name, self.dtype, [&]<class T>(Tag<T>) {
    if (channels_last) {
      max_channels_last(self.ptr<const T>(), out.ptr<T>(), places, w);
    } else if (have_vast_borders(w)) {
      Windows planes = w;
      planes.batch = w.batch * w.channels;
      planes.channels = 1;
      max_channels_last(self.ptr<const T>(), out.ptr<T>(), places, planes);
    } else {
      max_rows(self.ptr<const T>(), out.ptr<T>(), places, w);
    }
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(max_pool);
MICA_REGISTER_SIMD(max_pool, max_pool);
}  // namespace mica::cpu
#endif
