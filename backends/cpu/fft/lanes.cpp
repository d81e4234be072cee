// Groups of transforms: read into lanes, transformed, written back.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fft/lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/fft/lane_io-inl.h"
#include "backends/cpu/fft/lanes.h"
#include "backends/cpu/fft/odd_real-inl.h"
#include "backends/cpu/fft/passes-inl.h"
#include "backends/cpu/fft/two_step-inl.h"
#include "backends/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The spectrum of an even number of reals from that of pairs of them as complex numbers, z: with h half the length,
// X[k] = (z[k] + conj z[h - k]) / 2 - i w^k (z[k] - conj z[h - k]) / 2.
template <class T>
void unfold_real(Sequence<T> z, Sequence<T> x, int64_t half, const T* roots) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V point_five = hn::Set(d, T(0.5));
  const auto put = [&](int64_t k, Parts<V> v) {
    hn::Store(v.re, d, x.re + k * lanes);
    hn::Store(v.im, d, x.im + k * lanes);
  };
  const V re0 = hn::Load(d, z.re), im0 = hn::Load(d, z.im);
  for (int64_t k = 1; k <= half / 2; ++k) {
    const int64_t mirror = half - k;
    const Parts<V> a{hn::Load(d, z.re + k * lanes), hn::Load(d, z.im + k * lanes)};
    const Parts<V> b{hn::Load(d, z.re + mirror * lanes), hn::Neg(hn::Load(d, z.im + mirror * lanes))};
    const Parts<V> even = scaled(a + b, point_five), odd = scaled(by_minus_i(a - b), point_five);
    const Parts<V> turned = times(odd, Parts<V>{hn::Set(d, roots[2 * k]), hn::Set(d, roots[2 * k + 1])});
    put(k, even + turned);
    const Parts<V> other = even - turned;
    put(mirror, {other.re, hn::Neg(other.im)});
  }
  put(0, {hn::Add(re0, im0), hn::Zero(d)});
  put(half, {hn::Sub(re0, im0), hn::Zero(d)});
}

// The other way: z[k] = (x[k] + conj x[h - k]) + i conj(w^k) (x[k] - conj x[h - k]), twice what unfold_real takes.
template <class T>
void fold_real(Sequence<T> x, Sequence<T> z, int64_t half, const T* roots) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto put = [&](int64_t k, Parts<V> v) {
    hn::Store(v.re, d, z.re + k * lanes);
    hn::Store(v.im, d, z.im + k * lanes);
  };
  const V first = hn::Load(d, x.re), last = hn::Load(d, x.re + half * lanes);  // imaginary parts have no meaning there
  for (int64_t k = 1; k <= half / 2; ++k) {
    const int64_t mirror = half - k;
    const Parts<V> a{hn::Load(d, x.re + k * lanes), hn::Load(d, x.im + k * lanes)};
    const Parts<V> b{hn::Load(d, x.re + mirror * lanes), hn::Neg(hn::Load(d, x.im + mirror * lanes))};
    const Parts<V> even = a + b;
    const Parts<V> turned = times(a - b, Parts<V>{hn::Set(d, roots[2 * k]), hn::Set(d, -roots[2 * k + 1])});
    const Parts<V> odd{hn::Neg(turned.im), turned.re};
    put(k, even + odd);
    const Parts<V> other = even - odd;
    put(mirror, {other.re, hn::Neg(other.im)});
  }
  put(0, {hn::Add(first, last), hn::Sub(first, last)});
}

// The work space of a cut, in bytes: a column with its second buffer, the rows, and their second buffer. Parts are
// apart as in TwoStepRoom, so that rows share no cache sets.
struct NestedRoom {
  static constexpr int64_t kPage = TwoStepRoom::kPage;
  int64_t column_part, between, first_row, row_part, row_step, other_row, last_row, total;

  NestedRoom(int64_t rows, int64_t columns, int64_t vector_bytes) {
    column_part = TwoStepRoom::part(rows * vector_bytes);
    between = std::max(kPage, 2 * column_part);
    first_row = 2 * between;
    row_part = TwoStepRoom::part(columns * vector_bytes);
    row_step = 2 * row_part;
    other_row = (first_row + rows * row_step + kPage - 1) / kPage * kPage;
    last_row = other_row + std::max(kPage, 2 * row_part);
    total = last_row + 2 * row_part;
  }
};
template <class T>
NestedRoom room_of(const fft::Nested<T>& plan) {
  return {plan.rows, plan.columns, static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()) * sizeof(T))};
}

// The columns of a cut: elements of all lanes lie side by side, far from the next ones.
template <class T>
struct FromFar {
  const T *in, *next;  // `next` is where the lanes after these begin, or null
  int64_t stride;
  Order<T> order;

  HWY_INLINE Parts<hn::Vec<hn::ScalableTag<T>>> operator()(int64_t r) const {
    const hn::ScalableTag<T> d;
    if (next) {
      hwy::Prefetch(next + r * stride);
      hwy::Prefetch(next + r * stride + hn::Lanes(d));
    }
    return order.parts(in + r * stride);
  }
};

// Writes element k, times its root, to row k of the cut.
template <class T>
struct ToRowsOfCut {
  T* re;
  int64_t part, step;  // counted in numbers
  const T* roots;

  HWY_INLINE void operator()(int64_t k, Parts<hn::Vec<hn::ScalableTag<T>>> x) const {
    const hn::ScalableTag<T> d;
    x = times(x, {hn::Set(d, roots[2 * k]), hn::Set(d, roots[2 * k + 1])});
    hn::Store(x.re, d, re + k * step);
    hn::Store(x.im, d, re + k * step + part);
  }
};

template <class T>
struct ToFar {
  T* out;
  int64_t stride;
  T scale;
  Order<T> order;

  HWY_INLINE void operator()(int64_t m, Parts<hn::Vec<hn::ScalableTag<T>>> x) const {
    const hn::ScalableTag<T> d;
    order.put(scaled(x, hn::Set(d, scale)), out + m * stride);
  }
};

// Lanes side by side in memory, through a cut; `next` is where the lanes after these begin, or null.
template <class T>
void run_nested(const fft::Nested<T>& plan, const T* in, const T* next, int64_t in_stride, T* out, int64_t out_stride,
                bool backward, T scale, T* room) {
  constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>()), kBytes = sizeof(T);
  const int64_t rows = plan.rows, columns = plan.columns;
  const NestedRoom shape = room_of(plan);
  T* const start = at_page(room);
  const auto parts = [&](int64_t at, int64_t part) {
    return Sequence<T>{start + at / kBytes, start + (at + part) / kBytes};
  };
  const Sequence<T> column = parts(0, shape.column_part);
  const Order<T> order(backward);
  for (int64_t c = 0; c < columns; ++c) {
    transform_by(*plan.down,
                 FromFar<T>{in + c * in_stride, next ? next + c * in_stride : nullptr, columns * in_stride, order},
                 ToRowsOfCut<T>{start + shape.first_row / kBytes + c * kLanes, shape.row_part / kBytes,
                                shape.row_step / kBytes, plan.roots.data() + 2 * c * rows},
                 column, parts(shape.between, shape.column_part));
  }
  for (int64_t k = 0; k < rows; ++k)
    transform_by(*plan.along, FromParts<T>{parts(shape.first_row + k * shape.row_step, shape.row_part)},
                 ToFar<T>{out + k * out_stride, rows * out_stride, scale, order},
                 parts(shape.other_row, shape.row_part), parts(shape.last_row, shape.row_part));
}

template <class T>
void run_group(const fft::Plan<T>& plan, const T* half_roots, const fft::Batch<T>& batch, int64_t first, int64_t used,
               const int64_t* next, Sequence<T> a, Sequence<T> b, T* whole) {
  using fft::Kind;
  const hn::ScalableTag<T> d;
  const int64_t n = batch.length, bins = n / 2 + 1;
  const auto swapped = [](Sequence<T> s) { return Sequence<T>{s.im, s.re}; };
  const LaneOffsets in(batch.in_offsets + first, used, hn::Lanes(d)),
      out(batch.out_offsets + first, used, hn::Lanes(d));
  Sequence<T> result;
  if (batch.nested && in.adjacent(2) && out.adjacent(2)) {
    return run_nested(*batch.nested, batch.in + in.at[0], next ? batch.in + next[0] : nullptr, batch.in_stride,
                      batch.out + out.at[0], batch.out_stride, batch.backward, batch.scale, whole);
  } else if (batch.kind == Kind::Complex) {
    load_complex(batch.in, in, batch.in_stride, n, batch.backward ? swapped(a) : a, next);
    result = run_plan(plan, a, b);
    if (batch.table) multiply_by_table(result, n, batch.table + first, batch.table_columns, used);
    store_complex(batch.out, out, batch.out_stride, n, batch.backward ? swapped(result) : result, batch.scale);
  } else if (batch.kind == Kind::FromReal) {
    if (batch.halved()) {
      load_pairs(batch.in, in, batch.in_stride, n / 2, a, next);
      result = run_plan(plan, a, b);
      const Sequence<T> spectrum = result.re == a.re ? b : a;
      unfold_real(result, spectrum, n / 2, half_roots);
      result = spectrum;
    } else {
      load_real(batch.in, in, batch.in_stride, n, a.re);
      if (batch.odd) {
        result = run_odd_real(*batch.odd, a, b);
      } else {
        for (int64_t i = 0; i < n * in.lanes; i += in.lanes) hn::Store(hn::Zero(d), d, a.im + i);
        result = run_plan(plan, a, b);
        hn::Store(hn::Zero(d), d, result.im);  // a convolution gives it only approximately
      }
    }
    if (batch.whole) {
      store_mirrored(batch.out, out, batch.out_stride, n, result, batch.scale);
    } else {
      store_complex(batch.out, out, batch.out_stride, bins, result, batch.scale);
    }
  } else if (batch.halved()) {
    load_complex(batch.in, in, batch.in_stride, bins, a, next);
    fold_real(a, b, n / 2, half_roots);
    result = swapped(run_plan(plan, swapped(b), swapped(a)));
    store_pairs(batch.out, out, batch.out_stride, n / 2, result, batch.scale);
  } else {
    load_complex(batch.in, in, batch.in_stride, bins, a, next);
    const T* elements;
    if (batch.odd) {
      elements = run_odd_real_back(*batch.odd, a, b);
    } else {
      mirror_spectrum(a, n);
      elements = swapped(run_plan(plan, swapped(a), swapped(b))).re;
    }
    store_real(batch.out, out, batch.out_stride, n, elements, batch.scale);
  }
}

template <class T>
void run_groups(const fft::Plan<T>& plan, const T* half_roots, const fft::Batch<T>& batch, int64_t first,
                int64_t last) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  // One element more than the plan's, for the last bin of a real spectrum; rows apart, so that they share no cache
  // sets.
  const int64_t room =
      (std::max(plan.working_length(), batch.length / 2) + 1) * lanes + 64 / static_cast<int64_t>(sizeof(T));
  const int64_t cut_room = batch.nested ? (room_of(*batch.nested).total + NestedRoom::kPage) / int64_t{sizeof(T)} : 0;
  Scratch<T> scratch(4 * room + cut_room);
  const Sequence<T> a{scratch.data(), scratch.data() + room};
  const Sequence<T> b{scratch.data() + 2 * room, scratch.data() + 3 * room};
  for (int64_t t = first; t < last; t += lanes)
    run_group(plan, half_roots, batch, t, std::min(lanes, last - t),
              last - t >= 2 * lanes ? batch.in_offsets + t + lanes : nullptr, a, b, scratch.data() + 4 * room);
}

void run_float32(const fft::Plan<float>& plan, const float* roots, const fft::Batch<float>& batch, int64_t first,
                 int64_t last) {
  run_groups(plan, roots, batch, first, last);
}
void run_float64(const fft::Plan<double>& plan, const double* roots, const fft::Batch<double>& batch, int64_t first,
                 int64_t last) {
  run_groups(plan, roots, batch, first, last);
}
int64_t lanes_of(bool is_double) {
  return static_cast<int64_t>(is_double ? hn::Lanes(hn::ScalableTag<double>()) : hn::Lanes(hn::ScalableTag<float>()));
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(run_float32);
HWY_EXPORT(run_float64);
HWY_EXPORT(lanes_of);

namespace fft {
void run_lanes(const Plan<float>& plan, const float* half_roots, const Batch<float>& batch, int64_t first,
               int64_t last) {
  HWY_DYNAMIC_DISPATCH(run_float32)(plan, half_roots, batch, first, last);
}
void run_lanes(const Plan<double>& plan, const double* half_roots, const Batch<double>& batch, int64_t first,
               int64_t last) {
  HWY_DYNAMIC_DISPATCH(run_float64)(plan, half_roots, batch, first, last);
}
int64_t lane_count(bool is_double) { return HWY_DYNAMIC_DISPATCH(lanes_of)(is_double); }
}  // namespace fft
}  // namespace mica::cpu
#endif
