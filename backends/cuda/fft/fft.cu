// Fourier transforms through cuFFT, up to three dimensions in one plan (fft/plans.h). Where a plan can describe the
// distances of a tensor's elements, the tensor is transformed in place; otherwise it is copied, so that its sequences
// are dense. The factor of the normalisation is applied by such a copy where there is one.
#include <algorithm>
#include <optional>

#include "backends/cuda/context.h"
#include "backends/cuda/fft/plans.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

using fft::kMostDims;
using fft::Layout;

enum class Kind { Complex, FromReal, ToReal };

// The dimensions that one plan transforms, the slowest first, and the others in the order of the result's memory, the
// fastest first.
struct Group {
  int rank = 0;
  int64_t dims[kMostDims];
  DimVector others;
};

template <class T>
T factor_of(double factor) {
  if constexpr (is_complex_v<T>) {
    return T(static_cast<typename T::value_type>(factor));
  } else {
    return static_cast<T>(factor);
  }
}

// The elements of a tensor in an order in which the dimensions of a group are the fastest.
Places<1> dense_order(const TensorView& t, const Group& group) {
  Places<1> places;
  for (int k = group.rank - 1; k >= 0; --k) places.add(t.sizes[group.dims[k]], {t.strides[group.dims[k]]});
  for (const int64_t d : group.others) places.add(t.sizes[d], {t.strides[d]});
  places.finish();
  return places;
}

// A tensor to or from dense memory, times a factor.
template <class T, bool kToDense>
struct Move {
  Places<1> places;
  T* tensor;
  T* dense;
  T factor;
  bool scaled;
  __device__ void operator()(int64_t i) const {
    int64_t at[1];
    places.at(i, at);
    T& from = kToDense ? tensor[at[0]] : dense[i];
    T& to = kToDense ? dense[i] : tensor[at[0]];
    to = scaled ? from * factor : from;
  }
};
template <class T, bool kToDense>
void move(const TensorView& t, const Group& group, void* dense, double factor) {
  for_each(
      t.device.index(), t.numel,
      Move<T, kToDense>{dense_order(t, group), t.ptr<T>(), static_cast<T*>(dense), factor_of<T>(factor), factor != 1});
}

template <class T>
struct Multiply {
  Places<1> places;
  T* data;
  T factor;
  __device__ void operator()(int64_t i) const {
    int64_t at[1];
    places.at(i, at);
    data[at[0]] = data[at[0]] * factor;
  }
};

// Half a spectrum in dense memory, made such that its transform is real: a real result takes from the first and from
// the middle frequency of the last dimension only what is conjugate to the opposite frequencies of the others, and a
// plan relies on the rest being zero.
template <class C>
struct MoveHalf {
  Places<1> others;  // the dimensions that are not transformed
  int rank;
  int64_t sizes[kMostDims], strides[kMostDims];  // of the transformed ones, the fastest first
  int64_t middle;                                // the frequency that is its own opposite, or -1
  const C* tensor;
  C* dense;
  typename C::value_type factor;
  __device__ void operator()(int64_t i) const {
    int64_t rest = i, at = 0, opposite = 0;
    bool own = false;
    for (int k = 0; k < rank; ++k) {
      const int64_t next = rest / sizes[k], j = rest - next * sizes[k];
      at += j * strides[k];
      if (k == 0) {
        own = j == 0 || j == middle;
        opposite += j * strides[k];
      } else {
        opposite += (j == 0 ? 0 : sizes[k] - j) * strides[k];
      }
      rest = next;
    }
    int64_t begin[1];
    others.at(rest, begin);
    C value = tensor[begin[0] + at];
    if (own) {
      const C other = tensor[begin[0] + opposite];
      value = C((value.real() + other.real()) / 2, (value.imag() - other.imag()) / 2);
    }
    dense[i] = C(value.real() * factor, value.imag() * factor);
  }
};
template <class C>
void move_half(const TensorView& t, const Group& group, int64_t n, void* dense, double factor) {
  MoveHalf<C> body{};
  body.rank = group.rank;
  for (int k = 0; k < group.rank; ++k) {
    const int64_t d = group.dims[group.rank - 1 - k];
    body.sizes[k] = t.sizes[d];
    body.strides[k] = t.strides[d];
  }
  for (const int64_t d : group.others) body.others.add(t.sizes[d], {t.strides[d]});
  body.others.finish();
  body.middle = n % 2 == 0 ? n / 2 : -1;
  body.tensor = t.ptr<const C>();
  body.dense = static_cast<C*>(dense);
  body.factor = static_cast<typename C::value_type>(factor);
  for_each(t.device.index(), t.numel, body);
}

// How a plan finds the elements in their memory, if it can.
std::optional<Layout> layout_of(const TensorView& t, const Group& group) {
  if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(2 * element_size(to_real(t.dtype)))) return {};
  Layout layout;
  const int last = group.rank - 1;
  layout.stride = std::max<int64_t>(t.strides[group.dims[last]], 1);
  if (t.strides[group.dims[last]] != layout.stride && t.sizes[group.dims[last]] > 1) return {};
  layout.embed[0] = t.sizes[group.dims[0]];
  for (int64_t k = last, before = layout.stride; k > 0; --k) {
    const int64_t slower = t.strides[group.dims[k - 1]];
    if (slower % before || slower / before < t.sizes[group.dims[k]]) return {};
    layout.embed[k] = slower / before;
    before = slower;
  }
  int64_t joined = 1;
  for (const int64_t d : group.others) {
    if (t.sizes[d] == 1) continue;
    if (joined == 1) {
      layout.distance = t.strides[d];
      if (layout.distance <= 0) return {};
    } else if (t.strides[d] != layout.distance * joined) {
      return {};
    }
    joined *= t.sizes[d];
  }
  if (joined == 1) layout.distance = layout.stride;
  return layout;
}
Layout dense_layout(const TensorView& t, const Group& group) {
  Layout layout;
  layout.stride = layout.distance = 1;
  for (int k = 0; k < group.rank; ++k) {
    layout.embed[k] = t.sizes[group.dims[k]];
    layout.distance *= layout.embed[k];
  }
  return layout;
}

// One plan's work. `out` may be `in` where both are complex.
template <class R>
void transform(Kind kind, const TensorView& out, const TensorView& in, const Group& group, bool forward, double scale) {
  using C = Complex<R>;
  constexpr bool wide = sizeof(R) == 8;
  const int device = out.device.index();
  const TensorView& signal = kind == Kind::FromReal ? in : out;  // whole along every dimension
  std::optional<Workspace> from, to;
  void *source = in.data, *target = out.data;
  // cuFFT writes over the input of a transform to reals.
  std::optional<Layout> in_layout = kind == Kind::ToReal ? std::nullopt : layout_of(in, group);
  std::optional<Layout> out_layout = layout_of(out, group);
  double left = scale;  // the part of the factor that is not applied yet
  if (!in_layout) {
    in_layout = dense_layout(in, group);
    from.emplace(static_cast<size_t>(in.numel * element_size(in.dtype)), device);
    source = from->data();
    if (kind == Kind::FromReal) {
      move<R, true>(in, group, source, left);
    } else if (kind == Kind::Complex) {
      move<C, true>(in, group, source, left);
    } else {
      move_half<C>(in, group, signal.sizes[group.dims[group.rank - 1]], source, left);
    }
    left = 1;
  }
  if (!out_layout) {
    out_layout = dense_layout(out, group);
    to.emplace(static_cast<size_t>(out.numel * element_size(out.dtype)), device);
    target = to->data();
  }
  fft::Call call;
  call.type = kind == Kind::Complex    ? (wide ? cufft::kDoubleComplexToComplex : cufft::kComplexToComplex)
              : kind == Kind::FromReal ? (wide ? cufft::kDoubleRealToComplex : cufft::kRealToComplex)
                                       : (wide ? cufft::kDoubleComplexToReal : cufft::kComplexToReal);
  call.rank = group.rank;
  call.batch = signal.numel;
  for (int k = 0; k < group.rank; ++k) call.batch /= call.n[k] = signal.sizes[group.dims[k]];
  call.in = *in_layout;
  call.out = *out_layout;
  fft::run(call, source, target, forward, device);
  if (to) {
    kind == Kind::ToReal ? move<R, false>(out, group, target, left) : move<C, false>(out, group, target, left);
  } else if (left != 1) {
    const Places<1> places = places_of(out);
    kind == Kind::ToReal ? for_each(device, out.numel, Multiply<R>{places, out.ptr<R>(), factor_of<R>(left)})
                         : for_each(device, out.numel, Multiply<C>{places, out.ptr<C>(), factor_of<C>(left)});
  }
}

// Takes the dimensions of one plan away from `dims`: the fastest ones in the result's memory, but the one that is
// halved, which comes last in `dims`, stays last. Along a dimension of one element there is nothing to do.
Group take_group(const TensorView& out, const TensorView& whole, DimVector& dims, bool last_stays) {
  Group group;
  int64_t last = -1;
  if (last_stays) {
    last = dims.back();
    dims.pop_back();
  }
  DimVector kept;
  for (const int64_t d : dims)
    if (whole.sizes[d] > 1) kept.push_back(d);
  if (kept.empty() && !last_stays && !dims.empty()) kept.push_back(dims[0]);
  const auto slower = [&](int64_t one, int64_t other) { return out.strides[one] > out.strides[other]; };
  std::stable_sort(kept.begin(), kept.end(), slower);
  const size_t take = std::min<size_t>(kept.size(), static_cast<size_t>(last_stays ? kMostDims - 1 : kMostDims));
  for (size_t i = kept.size() - take; i < kept.size(); ++i) group.dims[group.rank++] = kept[i];
  if (last_stays) group.dims[group.rank++] = last;
  dims.clear();
  for (size_t i = 0; i < kept.size() - take; ++i) dims.push_back(kept[i]);
  for (int d = 0; d < out.ndim; ++d)
    if (std::find(group.dims, group.dims + group.rank, d) == group.dims + group.rank) group.others.push_back(d);
  std::stable_sort(group.others.begin(), group.others.end(), slower);
  std::reverse(group.others.begin(), group.others.end());
  return group;
}

template <class R>
void transform_all(Kind kind, const TensorView& out, const TensorView& in, IntArrayRef dims, bool forward,
                   double scale) {
  DimVector rest(dims);
  const Group group = take_group(out, kind == Kind::FromReal ? in : out, rest, kind != Kind::Complex);
  if (kind == Kind::ToReal && !rest.empty()) {  // the other dimensions come first, in memory of their own
    const Workspace memory(static_cast<size_t>(in.numel * element_size(in.dtype)), in.device.index());
    DimVector strides(static_cast<size_t>(in.ndim), 1);
    for (int d = in.ndim - 2; d >= 0; --d)
      strides[static_cast<size_t>(d)] = strides[static_cast<size_t>(d + 1)] * in.sizes[d + 1];
    TensorView between = in;
    between.data = memory.data();
    between.strides = strides.data();
    transform_all<R>(Kind::Complex, between, in, rest, forward, 1);
    return transform<R>(kind, out, between, group, forward, scale);
  }
  transform<R>(kind, out, in, group, forward, rest.empty() ? scale : 1);
  while (!rest.empty()) {
    const Group next = take_group(out, out, rest, false);
    transform<R>(Kind::Complex, out, out, next, forward, rest.empty() ? scale : 1);
  }
}

}  // namespace

void fft_many(const TensorView& out, const TensorView& in, IntArrayRef dims, bool forward, double scale) {
  if (out.numel == 0 || in.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const Kind kind = !is_complex(in.dtype) ? Kind::FromReal : is_complex(out.dtype) ? Kind::Complex : Kind::ToReal;
  const DType real = to_real(in.dtype);
  if (real == DType::Float32) return transform_all<float>(kind, out, in, dims, forward, scale);
  if (real == DType::Float64) return transform_all<double>(kind, out, in, dims, forward, scale);
  unsupported_dtype("fft", in.dtype);
}

void fft_c2c(const TensorView& out, const TensorView& in, int64_t dim, bool forward, double scale) {
  fft_many(out, in, IntArrayRef(dim), forward, scale);
}
void fft_r2c(const TensorView& out, const TensorView& in, int64_t dim, double scale) {
  fft_many(out, in, IntArrayRef(dim), true, scale);
}
void fft_c2r(const TensorView& out, const TensorView& in, int64_t dim, double scale) {
  fft_many(out, in, IntArrayRef(dim), false, scale);
}

}  // namespace mica::cuda
