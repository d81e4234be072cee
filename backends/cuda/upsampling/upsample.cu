// upsample and its gradient; borders made of the tensor itself. A thread works out the few inputs of its output; in
// gradients it adds to them.
#include "backends/cuda/index/atomic.cuh"
#include "backends/cuda/pooling/blocks.cuh"

namespace mica::cuda {

namespace {

enum class Filter { Nearest, NearestExact, Linear, Cubic, Lanczos };

Filter filter_of(std::string_view mode) {
  if (mode == "nearest") return Filter::Nearest;
  if (mode == "nearest-exact") return Filter::NearestExact;
  if (mode == "bicubic") return Filter::Cubic;
  if (mode == "lanczos") return Filter::Lanczos;
  return Filter::Linear;
}

template <class C>
__device__ C cubic_near(C x, C a) {
  return ((a + C(2)) * x - (a + C(3))) * x * x + C(1);
}
template <class C>
__device__ C cubic_far(C x, C a) {
  return ((a * x - C(5) * a) * x + C(8) * a) * x - C(4) * a;
}
// The filters of antialiased resampling, which are Pillow's.
template <class C>
__device__ C filter_value(Filter filter, C x) {
  x = ::fabs(x);
  if (filter == Filter::Linear) return x < C(1) ? C(1) - x : C(0);
  if (filter == Filter::Cubic) return x < C(1) ? cubic_near(x, C(-0.5)) : x < C(2) ? cubic_far(x, C(-0.5)) : C(0);
  if (x >= C(3)) return C(0);
  if (x == C(0)) return C(1);
  const C pi = C(3.14159265358979323846);
  return ::sin(pi * x) / (pi * x) * ::sin(pi * x / C(3)) / (pi * x / C(3));
}

// One axis: outputs that are weighted sums of neighbouring inputs.
template <class C>
struct Axis {
  Filter filter;
  int64_t in, out;
  C scale;  // input elements per output element
  bool align_corners, antialias, channels_last, copied;

  // Where the inputs of output o begin, how many there are, and what all weights are divided by.
  struct Reads {
    int64_t first;
    int count;
    C t, total;
  };
  __device__ Reads reads(int64_t o) const {
    if (copied) return {o, 1, C(0), C(1)};
    const C place = static_cast<C>(o);
    const C between = align_corners ? scale * place : scale * (place + C(0.5)) - C(0.5);
    auto clamped = [&](int64_t i) { return i < 0 ? 0 : i >= in ? in - 1 : i; };
    if (antialias) {
      const C radius = filter == Filter::Linear ? C(1) : filter == Filter::Cubic ? C(2) : C(3);
      const C support = scale >= C(1) ? radius * scale : radius;
      const C center = scale * (place + C(0.5));
      int64_t first = static_cast<int64_t>(center - support + C(0.5));
      int64_t last = static_cast<int64_t>(center + support + C(0.5));
      first = first < 0 ? 0 : first;
      last = last > in ? in : last;
      Reads r{first, static_cast<int>(last - first), center, C(0)};
      for (int k = 0; k < r.count; ++k) r.total += weight_of(r, k);
      if (r.total == C(0)) r.total = C(1);
      return r;
    }
    if (filter == Filter::Nearest || filter == Filter::NearestExact) {
      int64_t index;
      if (channels_last) {
        // In float, with equal sizes and doublings taken as such whatever factor was asked for, as torch does.
        const auto s = static_cast<float>(scale);
        if (filter == Filter::NearestExact) {
          index = static_cast<int64_t>(::floorf((static_cast<float>(o) + 0.5f) * s));
        } else if (in == out) {
          index = o;
        } else if (out == 2 * in) {
          index = o >> 1;
        } else {
          index = static_cast<int64_t>(::floorf(static_cast<float>(o) * s));
        }
      } else if (filter == Filter::Nearest) {
        index = static_cast<int64_t>(::floorf(static_cast<float>(scale * place)));
      } else {
        index = static_cast<int64_t>(::floorf(static_cast<float>((between > C(0) ? between : C(0)) + C(0.5))));
      }
      return {clamped(index), 1, C(0), C(1)};
    }
    if (filter == Filter::Linear) {
      const C real = in == out ? place : between > C(0) ? between : C(0);
      int64_t index = static_cast<int64_t>(real);
      index = index > in - 1 ? in - 1 : index;
      C t = real - static_cast<C>(index);
      t = t < C(0) ? C(0) : t > C(1) ? C(1) : t;
      return {index, 2, t, C(1)};
    }
    int64_t index = static_cast<int64_t>(::floor(between));
    index = index > in - 1 ? in - 1 : index;
    C t = between - static_cast<C>(index);
    t = t < C(0) ? C(0) : t > C(1) ? C(1) : t;
    return {index - 1, 4, t, C(1)};
  }
  __device__ C weight_of(const Reads& r, int k) const {
    if (antialias && !copied) {
      const C inverse = scale >= C(1) ? C(1) / scale : C(1);
      return filter_value(filter, (static_cast<C>(r.first + k) - r.t + C(0.5)) * inverse);
    }
    if (r.count == 1) return C(1);
    if (r.count == 2) return k == 0 ? C(1) - r.t : r.t;
    const C a = C(-0.75);
    if (k == 0) return cubic_far(r.t + C(1), a);
    if (k == 1) return cubic_near(r.t, a);
    if (k == 2) return cubic_near(C(1) - r.t, a);
    return cubic_far(C(2) - r.t, a);
  }
  __device__ int64_t index(const Reads& r, int k) const {
    const int64_t i = r.first + k;
    return i < 0 ? 0 : i >= in ? in - 1 : i;
  }
};

template <class C>
struct Plan {
  Volume in, out;
  Axis<C> axes[3];

  // visit(input element, weight) for the inputs of output element i.
  template <class Visit>
  __device__ void each(int64_t i, const Visit& visit) const {
    int64_t plane, o[3];
    out.locate(i, plane, o);
    typename Axis<C>::Reads r[3];
    for (int a = 0; a < 3; ++a) r[a] = axes[a].reads(o[a]);
    for (int z = 0; z < r[0].count; ++z) {
      const C wz = axes[0].weight_of(r[0], z) / r[0].total;
      const int64_t pz = axes[0].index(r[0], z) * in.size[1];
      for (int y = 0; y < r[1].count; ++y) {
        const C wy = wz * (axes[1].weight_of(r[1], y) / r[1].total);
        const int64_t py = (pz + axes[1].index(r[1], y)) * in.size[2];
        for (int x = 0; x < r[2].count; ++x)
          visit(in.at(plane, py + axes[2].index(r[2], x)), wy * (axes[2].weight_of(r[2], x) / r[2].total));
      }
    }
  }
};

template <class C>
Plan<C> plan(const TensorView& in, const TensorView& out, std::string_view mode, bool align_corners, bool antialias,
             ArrayRef<double> scales, bool channels_last) {
  Plan<C> p;
  p.in = volume_of(in, channels_last);
  p.out = volume_of(out, channels_last);
  const Filter filter = filter_of(mode);
  for (int a = 0; a < 3; ++a) {
    Axis<C>& axis = p.axes[a];
    axis.copied = scales.size() + static_cast<size_t>(a) < 3;  // missing dimensions
    axis.filter = filter;
    axis.in = p.in.size[a];
    axis.out = p.out.size[a];
    axis.align_corners = align_corners;
    axis.antialias = antialias;
    axis.channels_last = scales.size() > 1 && (channels_last || in.sizes[1] == 1);
    const double factor = axis.copied ? 0 : scales[scales.size() + static_cast<size_t>(a) - 3];
    const C from = static_cast<C>(axis.in), to = static_cast<C>(axis.out);
    if (align_corners) {
      axis.scale = axis.out > 1 ? (from - C(1)) / (to - C(1)) : C(0);
    } else {
      axis.scale = factor > 0 ? static_cast<C>(1.0 / factor) : from / to;
    }
  }
  return p;
}

// Magnification of images by powers of two without a filter, where each input is a block of outputs. Other factors are
// left out: their inverse is rounded, so that an output may belong to its block's neighbour.
template <class C>
std::unique_ptr<Blocks> blocks_of(const Plan<C>& p, int64_t planes) {
  for (const Axis<C>& a : p.axes) {
    const bool is_plain = a.filter == Filter::Nearest || a.filter == Filter::NearestExact;
    if (a.in == 0 || !(a.copied ? a.in == a.out : is_plain && !a.antialias)) return nullptr;
    const int64_t factor = a.out / a.in;
    if (!a.copied && ((factor & (factor - 1)) || a.in * factor != a.out || a.scale * static_cast<C>(factor) != C(1)))
      return nullptr;
  }
  return blocks_of(p.in, p.out, planes);
}

template <class T, class C>
struct Resample {
  Plan<C> plan;
  const T* in;
  T* out;
  __device__ void operator()(int64_t i) const {
    C sum = 0;
    plan.each(i, [&](int64_t from, C weight) { sum += weight * static_cast<C>(widen(in[from])); });
    if constexpr (std::is_same_v<T, uint8_t>) {
      const C rounded = ::rint(sum);
      out[i] = static_cast<uint8_t>(rounded < C(0) ? C(0) : rounded > C(255) ? C(255) : rounded);
    } else {
      out[i] = convert<T>(sum);
    }
  }
};
template <class T, class C, class A>
struct Spread {
  Plan<C> plan;
  const T* grad;
  A* sums;
  __device__ void operator()(int64_t i) const {
    const C g = convert<C>(grad[i]);
    plan.each(i, [&](int64_t to, C weight) { atomic_add(sums + to, convert<A>(g * weight)); });
  }
};

// ---- borders

enum class Border { Replicate, Reflect, Circular };

struct Borders {
  Volume in, out;
  int64_t before[3];
  Border mode;
  __device__ int64_t source(int axis, int64_t o) const {
    const int64_t n = in.size[axis], i = o - before[axis];
    if (mode == Border::Replicate) return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (mode == Border::Reflect) return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
    // What a negative growth takes away is no part of the circle.
    const int64_t first = before[axis] < 0 ? -before[axis] : 0, behind = out.size[axis] - n - before[axis];
    int64_t circle = n - first + (behind < 0 ? behind : 0);
    circle = circle < 1 ? 1 : circle;
    const int64_t at = first + ((i - first) % circle + circle) % circle;
    return at < n ? at : n - 1;
  }
  __device__ int64_t of(int64_t i) const {
    int64_t plane, o[3];
    out.locate(i, plane, o);
    return in.at(plane, (source(0, o[0]) * in.size[1] + source(1, o[1])) * in.size[2] + source(2, o[2]));
  }
};
Borders borders(const TensorView& in, const TensorView& out, std::string_view mode, IntArrayRef before,
                bool channels_last) {
  Borders b{volume_of(in, channels_last),
            volume_of(out, channels_last),
            {before[0], before[1], before[2]},
            mode == "replicate" ? Border::Replicate
            : mode == "reflect" ? Border::Reflect
                                : Border::Circular};
  return b;
}
template <class T>
struct Pad {
  Borders borders;
  const T* in;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = in[borders.of(i)]; }
};
template <class T, class A>
struct PadBackward {
  Borders borders;
  const T* grad;
  A* sums;
  __device__ void operator()(int64_t i) const { atomic_add(sums + borders.of(i), convert<A>(grad[i])); }
};

}  // namespace

void upsample(const TensorView& out, const TensorView& self, std::string_view mode, bool align_corners, bool antialias,
              ArrayRef<double> scales, bool channels_last) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  auto run = [&]<class T, class C>(Tag<T>, Tag<C>) {
    const Plan<C> p = plan<C>(self, out, mode, align_corners, antialias, scales, channels_last);
    if (const auto blocks = blocks_of(p, self.sizes[0] * self.sizes[1]))
      return spread_blocks(*blocks, self.ptr<const T>(), out.ptr<T>(), 1, out.device.index());
    for_each(out.device.index(), out.numel, Resample<T, C>{p, self.ptr<const T>(), out.ptr<T>()});
  };
  if (self.dtype == DType::UInt8) return run(Tag<uint8_t>{}, Tag<float>{});
  visit_floating("upsample", self.dtype, [&]<class T>(Tag<T>) { run(Tag<T>{}, Tag<compute_t<T>>{}); });
}

void upsample_backward(const TensorView& grad_self, const TensorView& grad, std::string_view mode, bool align_corners,
                       bool antialias, ArrayRef<double> scales, bool channels_last) {
  if (grad_self.numel == 0) return;
  DeviceGuard guard(grad.device.index());
  visit_floating("upsample_backward", grad.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const Plan<C> p = plan<C>(grad_self, grad, mode, align_corners, antialias, scales, channels_last);
    if (const auto blocks = blocks_of(p, grad.sizes[0] * grad.sizes[1]))
      return sum_blocks(*blocks, grad.ptr<const T>(), grad_self.ptr<T>(), 1, grad.device.index());
    const Sums<T> sums(grad_self);
    for_each(grad.device.index(), grad.numel, Spread<T, C, typename Sums<T>::A>{p, grad.ptr<const T>(), sums.data()});
    sums.finish();
  });
}

void pad_edges(const TensorView& out, const TensorView& self, std::string_view mode, IntArrayRef before,
               bool channels_last) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_size(element_size(out.dtype), [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel,
             Pad<T>{borders(self, out, mode, before, channels_last), self.ptr<const T>(), out.ptr<T>()});
  });
}

void pad_edges_backward(const TensorView& grad_self, const TensorView& grad, std::string_view mode, IntArrayRef before,
                        bool channels_last) {
  if (grad_self.numel == 0) return;
  DeviceGuard guard(grad.device.index());
  visit_floating_complex("pad_backward", grad.dtype, [&]<class T>(Tag<T>) {
    const Sums<T> sums(grad_self);
    for_each(grad.device.index(), grad.numel,
             PadBackward<T, typename Sums<T>::A>{borders(grad_self, grad, mode, before, channels_last),
                                                 grad.ptr<const T>(), sums.data()});
    sums.finish();
  });
}

}  // namespace mica::cuda
