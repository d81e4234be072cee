// Pooling over (batch, channels, depth, height, width): one thread for each output, or in the gradients of averages for
// each input.
#include "backends/cuda/bounds.h"
#include "backends/cuda/index/atomic.cuh"
#include "backends/cuda/pooling/image_windows.h"
#include "backends/cuda/pooling/blocks.cuh"
#include "backends/cuda/reduce/limits.cuh"

namespace mica::cuda {

namespace {

constexpr const char* kInvalidIndex = "Found an invalid max index (max_unpool and the gradients of max_pool)";

// The window of one output along one axis: positions begin, begin + step, ..., before end.
struct Span {
  int64_t begin, end;
};

enum class Kind { Regular, Adaptive };

struct Windows {
  Volume in, out;
  int64_t kernel[3], stride[3], padding[3], dilation[3];
  bool count_include_pad;
  int64_t divisor;

  // The first tap inside and the end of the window, cut to the input.
  __device__ Span taps(int axis, int64_t o) const {
    const int64_t start = o * stride[axis] - padding[axis], step = dilation[axis];
    const int64_t before = start < 0 ? (-start + step - 1) / step : 0;
    const int64_t last = start + kernel[axis] * step;
    return {start + before * step, last < in.size[axis] ? last : in.size[axis]};
  }
  __device__ int64_t count(int axis, int64_t o) const {
    const int64_t start = o * stride[axis] - padding[axis];
    int64_t end = start + kernel[axis];
    if (end > in.size[axis] + padding[axis]) end = in.size[axis] + padding[axis];
    if (count_include_pad) return end - start;
    return (end < in.size[axis] ? end : in.size[axis]) - (start > 0 ? start : 0);
  }
};
Windows windows(const TensorView& in, const TensorView& out, bool channels_last, IntArrayRef kernel, IntArrayRef stride,
                IntArrayRef padding, IntArrayRef dilation) {
  Windows w{};
  w.in = volume_of(in, channels_last);
  w.out = volume_of(out, channels_last);
  for (int a = 0; a < 3; ++a) {
    w.kernel[a] = kernel[static_cast<size_t>(a)];
    w.stride[a] = stride[static_cast<size_t>(a)];
    w.padding[a] = padding[static_cast<size_t>(a)];
    w.dilation[a] = dilation.empty() ? 1 : dilation[static_cast<size_t>(a)];
  }
  return w;
}

// Windows that cut the input into blocks: each is as large as its step, and none is cut off.
std::unique_ptr<Blocks> blocks_of(const Windows& w, int64_t planes) {
  for (int a = 0; a < 3; ++a)
    if (w.kernel[a] != w.stride[a] || w.padding[a] || w.out.size[a] * w.kernel[a] != w.in.size[a]) return nullptr;
  return blocks_of(w.out, w.in, planes);
}
double divisor_of(const Windows& w) { return static_cast<double>(w.divisor ? w.divisor : w.kernel[1] * w.kernel[2]); }

__device__ Span adaptive_span(int64_t o, int64_t in, int64_t out) {
  return {o / out * in + o % out * in / out, 1 + ((o + 1) * in - 1) / out};
}

// The largest element of a box, the first of equal ones, the last NaN.
template <class T>
__device__ compute_t<T> box_maximum(const T* data, const Volume& in, int64_t plane, const Span (&span)[3],
                                    const int64_t (&step)[3], int64_t& best) {
  using C = compute_t<T>;
  C highest = lowest<C>();
  const int64_t first = (span[0].begin * in.size[1] + span[1].begin) * in.size[2] + span[2].begin;
  best = first < in.places() ? first : in.places() - 1;
  data += in.at(plane, 0);
  const int64_t apart = in.channels_last ? in.channels : 1;
  auto see = [&](int64_t place) {
    const C v = convert<C>(data[place * apart]);
    if (v > highest || v != v) {
      highest = v;
      best = place;
    }
  };
  if (in.size[0] == 1) {
    // Images: one loop less, and numbers of 32 bits.
    const auto width = static_cast<int>(in.size[2]), bottom = static_cast<int>(span[1].end),
               right = static_cast<int>(span[2].end), down = static_cast<int>(step[1]),
               across = static_cast<int>(step[2]);
    for (int y = static_cast<int>(span[1].begin); y < bottom; y += down)
      for (int x = static_cast<int>(span[2].begin); x < right; x += across) see(static_cast<int64_t>(y) * width + x);
    return highest;
  }
  for (int64_t z = span[0].begin; z < span[0].end; z += step[0])
    for (int64_t y = span[1].begin; y < span[1].end; y += step[1])
      for (int64_t x = span[2].begin; x < span[2].end; x += step[2]) see((z * in.size[1] + y) * in.size[2] + x);
  return highest;
}

template <class T>
struct MaxPool {
  Windows w;
  const T* in;
  T* out;
  int64_t* wide;
  int32_t* narrow;
  Kind kind;
  __device__ void operator()(int64_t i) const {
    int64_t plane, o[3];
    w.out.locate(i, plane, o);
    Span span[3];
    for (int a = 0; a < 3; ++a)
      span[a] = kind == Kind::Regular ? w.taps(a, o[a]) : adaptive_span(o[a], w.in.size[a], w.out.size[a]);
    int64_t best;
    const auto highest = box_maximum(in, w.in, plane, span, w.dilation, best);
    out[i] = convert<T>(highest);
    if (wide) wide[i] = best;
    if (narrow) narrow[i] = static_cast<int32_t>(best);
  }
};

template <class T>
struct FractionalMaxPool {
  Volume in, out;
  const T *data, *samples;
  T* values;
  int64_t* indices;
  int64_t kernel[3];
  int dims, axes[3];
  __device__ void operator()(int64_t i) const {
    using C = compute_t<T>;
    int64_t plane, o[3];
    out.locate(i, plane, o);
    Span span[3] = {{0, 1}, {0, 1}, {0, 1}};
    const int64_t step[3] = {1, 1, 1};
    for (int d = 0; d < dims; ++d) {
      const int a = axes[d];
      const C sample = convert<C>(samples[plane * dims + d]);
      int64_t begin = in.size[a] - kernel[a];
      if (o[a] < out.size[a] - 1) {
        const C alpha = static_cast<C>(in.size[a] - kernel[a]) / static_cast<C>(out.size[a] - 1);
        begin = static_cast<int64_t>((static_cast<C>(o[a]) + sample) * alpha) - static_cast<int64_t>(sample * alpha);
      }
      begin = begin < 0 ? 0 : begin > in.size[a] ? in.size[a] : begin;
      const int64_t end = begin + kernel[a];
      span[a] = {begin, end > in.size[a] ? in.size[a] : end};
    }
    int64_t best;
    values[i] = convert<T>(box_maximum(data, in, plane, span, step, best));
    indices[i] = best;
  }
};

template <class T>
struct AvgPool {
  Windows w;
  const T* in;
  T* out;
  Kind kind;
  __device__ void operator()(int64_t i) const {
    using C = compute_t<T>;
    int64_t plane, o[3], count = 1;
    w.out.locate(i, plane, o);
    Span s[3];
    for (int a = 0; a < 3; ++a) {
      s[a] = kind == Kind::Regular ? w.taps(a, o[a]) : adaptive_span(o[a], w.in.size[a], w.out.size[a]);
      count *= kind == Kind::Regular ? w.count(a, o[a]) : s[a].end - s[a].begin;
    }
    C sum = 0;
    for (int64_t z = s[0].begin; z < s[0].end; ++z)
      for (int64_t y = s[1].begin; y < s[1].end; ++y)
        for (int64_t x = s[2].begin; x < s[2].end; ++x)
          sum += convert<C>(in[w.in.at(plane, (z * w.in.size[1] + y) * w.in.size[2] + x)]);
    out[i] = convert<T>(static_cast<C>(sum / static_cast<C>(w.divisor ? w.divisor : count)));
  }
};

// Every input gathers the gradients of the windows that hold it.
template <class T>
struct AvgPoolBackward {
  Windows w;
  const T* grad;
  T* out;
  Kind kind;
  __device__ Span holders(int axis, int64_t i) const {
    const int64_t n = w.out.size[axis];
    if (kind == Kind::Adaptive) {
      // Windows begin and end in order: the first that reaches beyond i, and the first that begins after it.
      int64_t first = i * n / w.in.size[axis];
      while (first > 0 && adaptive_span(first - 1, w.in.size[axis], n).end > i) --first;
      while (first < n && adaptive_span(first, w.in.size[axis], n).end <= i) ++first;
      int64_t last = first;
      while (last < n && adaptive_span(last, w.in.size[axis], n).begin <= i) ++last;
      return {first, last};
    }
    const int64_t padded = i + w.padding[axis];
    int64_t first = padded < w.kernel[axis] ? 0 : (padded - w.kernel[axis]) / w.stride[axis] + 1;
    int64_t last = padded / w.stride[axis] + 1;
    return {first, last < n ? last : n};
  }
  __device__ void operator()(int64_t i) const {
    using C = compute_t<T>;
    int64_t plane, p[3];
    w.in.locate(i, plane, p);
    Span h[3];
    for (int a = 0; a < 3; ++a) h[a] = holders(a, p[a]);
    auto count = [&](int a, int64_t o) {
      if (kind == Kind::Regular) return w.count(a, o);
      const Span s = adaptive_span(o, w.in.size[a], w.out.size[a]);
      return s.end - s.begin;
    };
    C sum = 0;
    for (int64_t z = h[0].begin; z < h[0].end; ++z)
      for (int64_t y = h[1].begin; y < h[1].end; ++y)
        for (int64_t x = h[2].begin; x < h[2].end; ++x) {
          const int64_t divisor = w.divisor ? w.divisor : count(0, z) * count(1, y) * count(2, x);
          sum +=
              convert<C>(grad[w.out.at(plane, (z * w.out.size[1] + y) * w.out.size[2] + x)]) / static_cast<C>(divisor);
        }
    out[i] = convert<T>(sum);
  }
};

// ---- moves between planes

enum class Move { Gather, Scatter, ScatterAdd };

template <class T, class A, class I, Move kMove>
struct PlaneMove {
  Volume large, small;
  const T* source;
  A* out;
  const I* indices;
  Bounds bounds;
  __device__ void operator()(int64_t i) const {
    int64_t plane, unused[3];
    small.locate(i, plane, unused);
    const auto index = static_cast<int64_t>(indices[i]);
    if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(large.places())) return bounds.complain();
    const int64_t place = large.at(plane, index);
    if constexpr (kMove == Move::Gather) {
      out[i] = convert<A>(source[place]);
    } else if constexpr (kMove == Move::Scatter) {
      out[place] = convert<A>(source[i]);
    } else {
      atomic_add(out + place, convert<A>(source[i]));
    }
  }
};

template <class F>
void visit_pooled(const char* op, DType dtype, const F& f) {
  visit_pooled_integers(dtype, f, [&] { visit_floating(op, dtype, f); });
}

template <Move kMove, class T, class A>
void move_planes(const TensorView& large, const TensorView& small, const T* source, A* out, const TensorView& indices,
                 bool channels_last) {
  const int device = large.device.index();
  const Volume l = volume_of(large, channels_last), s = volume_of(small, channels_last);
  const Bounds bounds = Bounds::of(kInvalidIndex, device);
  if (indices.dtype == DType::Int32) {
    for_each(device, small.numel,
             PlaneMove<T, A, int32_t, kMove>{l, s, source, out, indices.ptr<const int32_t>(), bounds});
  } else {
    for_each(device, small.numel,
             PlaneMove<T, A, int64_t, kMove>{l, s, source, out, indices.ptr<const int64_t>(), bounds});
  }
}

}  // namespace

void max_pool(const TensorView& out, const TensorView& indices, const TensorView& self, IntArrayRef kernel,
              IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool channels_last) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  if (max_pool_images(out, indices, self, kernel, stride, padding, dilation, channels_last)) return;
  const Windows w = windows(self, out, channels_last, kernel, stride, padding, dilation);
  visit_pooled("max_pool2d", self.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel,
             MaxPool<T>{w, self.ptr<const T>(), out.ptr<T>(),
                        indices.dtype == DType::Int64 ? indices.ptr<int64_t>() : nullptr,
                        indices.dtype == DType::Int32 ? indices.ptr<int32_t>() : nullptr, Kind::Regular});
  });
}

void adaptive_max_pool(const TensorView& out, const TensorView& indices, const TensorView& self, bool channels_last) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const int64_t ones[3] = {1, 1, 1};
  const Windows w = windows(self, out, channels_last, {ones, 3}, {ones, 3}, {ones, 3}, {ones, 3});
  visit_floating("adaptive_max_pool2d", self.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel,
             MaxPool<T>{w, self.ptr<const T>(), out.ptr<T>(), indices.ptr<int64_t>(), nullptr, Kind::Adaptive});
  });
}

void fractional_max_pool(const TensorView& out, const TensorView& indices, const TensorView& self,
                         const TensorView& samples, IntArrayRef kernel, IntArrayRef axes) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_floating("fractional_max_pool2d", self.dtype, [&]<class T>(Tag<T>) {
    FractionalMaxPool<T> pool{volume_of(self, false),
                              volume_of(out, false),
                              self.ptr<const T>(),
                              samples.ptr<const T>(),
                              out.ptr<T>(),
                              indices.ptr<int64_t>(),
                              {},
                              static_cast<int>(axes.size()),
                              {}};
    for (size_t a = 0; a < 3; ++a) pool.kernel[a] = kernel[a];
    for (size_t a = 0; a < axes.size(); ++a) pool.axes[a] = static_cast<int>(axes[a]);
    for_each(out.device.index(), out.numel, pool);
  });
}

void avg_pool(const TensorView& out, const TensorView& self, IntArrayRef kernel, IntArrayRef stride,
              IntArrayRef padding, bool count_include_pad, int64_t divisor, bool channels_last) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  Windows w = windows(self, out, channels_last, kernel, stride, padding, {});
  w.count_include_pad = count_include_pad;
  w.divisor = divisor;
  const auto blocks = blocks_of(w, self.sizes[0] * self.sizes[1]);
  auto run = [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, int64_t>)
      if (blocks) return sum_blocks(*blocks, self.ptr<const T>(), out.ptr<T>(), divisor_of(w), out.device.index());
    for_each(out.device.index(), out.numel, AvgPool<T>{w, self.ptr<const T>(), out.ptr<T>(), Kind::Regular});
  };
  if (self.dtype == DType::Int64) return run(Tag<int64_t>{});
  visit_floating("avg_pool2d", self.dtype, run);
}

void avg_pool_backward(const TensorView& grad_self, const TensorView& grad, IntArrayRef kernel, IntArrayRef stride,
                       IntArrayRef padding, bool count_include_pad, int64_t divisor, bool channels_last) {
  if (grad_self.numel == 0) return;
  DeviceGuard guard(grad.device.index());
  Windows w = windows(grad_self, grad, channels_last, kernel, stride, padding, {});
  w.count_include_pad = count_include_pad;
  w.divisor = divisor;
  const auto blocks = blocks_of(w, grad.sizes[0] * grad.sizes[1]);
  visit_floating("avg_pool2d_backward", grad.dtype, [&]<class T>(Tag<T>) {
    if (blocks)
      return spread_blocks(*blocks, grad.ptr<const T>(), grad_self.ptr<T>(), divisor_of(w), grad.device.index());
    for_each(grad.device.index(), grad_self.numel,
             AvgPoolBackward<T>{w, grad.ptr<const T>(), grad_self.ptr<T>(), Kind::Regular});
  });
}

void adaptive_avg_pool(const TensorView& out, const TensorView& self, bool channels_last) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const int64_t ones[3] = {1, 1, 1};
  const Windows w = windows(self, out, channels_last, {ones, 3}, {ones, 3}, {ones, 3}, {});
  visit_floating("adaptive_avg_pool2d", self.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel, AvgPool<T>{w, self.ptr<const T>(), out.ptr<T>(), Kind::Adaptive});
  });
}

void adaptive_avg_pool_backward(const TensorView& grad_self, const TensorView& grad, bool channels_last) {
  if (grad_self.numel == 0) return;
  DeviceGuard guard(grad.device.index());
  const int64_t ones[3] = {1, 1, 1};
  const Windows w = windows(grad_self, grad, channels_last, {ones, 3}, {ones, 3}, {ones, 3}, {});
  visit_floating("adaptive_avg_pool2d_backward", grad.dtype, [&]<class T>(Tag<T>) {
    for_each(grad.device.index(), grad_self.numel,
             AvgPoolBackward<T>{w, grad.ptr<const T>(), grad_self.ptr<T>(), Kind::Adaptive});
  });
}

void plane_gather(const TensorView& out, const TensorView& source, const TensorView& indices, bool channels_last) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_floating("max_unpool2d_backward", out.dtype, [&]<class T>(Tag<T>) {
    move_planes<Move::Gather>(source, out, source.ptr<const T>(), out.ptr<T>(), indices, channels_last);
  });
}

void plane_scatter(const TensorView& out, const TensorView& source, const TensorView& indices, bool channels_last) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  MICA_CUDA(cudaMemsetAsync(out.data, 0, static_cast<size_t>(out.numel * element_size(out.dtype)),
                            current_stream(out.device.index())));
  visit_floating("max_unpool2d", out.dtype, [&]<class T>(Tag<T>) {
    move_planes<Move::Scatter>(out, source, source.ptr<const T>(), out.ptr<T>(), indices, channels_last);
  });
}

void plane_scatter_add(const TensorView& out, const TensorView& source, const TensorView& indices, bool channels_last) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_floating("max_pool2d_backward", out.dtype, [&]<class T>(Tag<T>) {
    const Sums<T> sums(out);
    move_planes<Move::ScatterAdd>(out, source, source.ptr<const T>(), sums.data(), indices, channels_last);
    sums.finish();
  });
}

}  // namespace mica::cuda
