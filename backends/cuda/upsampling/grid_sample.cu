// grid_sample and its gradients: a thread for each point, over all channels.
#include "backends/cuda/index/atomic.cuh"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

enum class Mode : int64_t { Linear, Nearest, Cubic };
enum class Padding : int64_t { Zeros, Border, Reflection };

// What a point reads along one axis: up to four places, -1 outside, with weights and their derivatives.
template <class C>
struct Reads {
  int count;
  int64_t place[4];
  C weight[4], slope[4], rate;
};
template <class C>
struct Axis {
  int64_t size;
  Mode mode;
  Padding padding;
  bool align_corners;

  __device__ void pad(C& x, C& rate) const {
    const C n = static_cast<C>(size);
    if (padding == Padding::Zeros) return;
    if (padding == Padding::Reflection) {
      const C low = align_corners ? C(0) : C(-0.5), span = align_corners ? n - C(1) : n;
      if (span == C(0)) {
        x = rate = C(0);
        return;
      }
      const C offset = x - low, distance = ::fabs(offset), turns = ::floor(distance / span),
              rest = distance - turns * span;
      const bool odd = turns - C(2) * ::floor(turns / C(2)) != C(0);
      if ((offset < C(0)) != odd) rate = -rate;
      x = (odd ? span - rest : rest) + low;
    }
    // Into the elements, at the nearer end; a NaN becomes 0.
    const bool above = x > C(0), below = x < n - C(1);
    if (!(above && below)) rate = C(0);
    x = above ? (below ? x : n - C(1)) : C(0);
  }
  __device__ int64_t element(C x) const {
    return x >= C(0) && x < static_cast<C>(size) ? static_cast<int64_t>(x) : int64_t{-1};
  }
  __device__ static C cubic_weight(bool far, C x) {
    const C a = C(-0.75);
    return far ? ((a * x - C(5) * a) * x + C(8) * a) * x - C(4) * a : ((a + C(2)) * x - (a + C(3))) * x * x + C(1);
  }
  __device__ static C cubic_slope(bool far, C x) {
    const C a = C(-0.75);
    return far ? (C(3) * a * x - C(10) * a) * x + C(8) * a : (C(3) * (a + C(2)) * x - C(2) * (a + C(3))) * x;
  }
  __device__ void read(C coordinate, Reads<C>& r) const {
    const C n = static_cast<C>(size);
    C x = align_corners ? (coordinate + C(1)) / C(2) * (n - C(1)) : ((coordinate + C(1)) * n - C(1)) / C(2);
    r.rate = align_corners ? (n - C(1)) / C(2) : n / C(2);
    if (mode == Mode::Cubic) {
      const C first = ::floor(x), t = x - first;
      r.count = 4;
      for (int k = 0; k < 4; ++k) {
        C at = first + static_cast<C>(k - 1), unused = C(0);
        pad(at, unused);
        r.place[k] = element(at);
      }
      r.weight[0] = cubic_weight(true, t + C(1)), r.slope[0] = cubic_slope(true, t + C(1));
      r.weight[1] = cubic_weight(false, t), r.slope[1] = cubic_slope(false, t);
      r.weight[2] = cubic_weight(false, C(1) - t), r.slope[2] = -cubic_slope(false, C(1) - t);
      r.weight[3] = cubic_weight(true, C(2) - t), r.slope[3] = -cubic_slope(true, C(2) - t);
      return;
    }
    pad(x, r.rate);
    if (mode == Mode::Nearest) {
      r.count = 1;
      r.place[0] = element(::rint(x));
      r.weight[0] = C(1), r.slope[0] = C(0);
      return;
    }
    const C first = ::floor(x);
    r.count = 2;
    r.place[0] = element(first), r.place[1] = element(first + C(1));
    r.weight[0] = first + C(1) - x, r.weight[1] = x - first;
    r.slope[0] = C(-1), r.slope[1] = C(1);
  }
};

template <class C>
struct Grid {
  int dims;
  int64_t channels, points, plane;
  Axis<C> axes[3];  // the fastest first, as coordinates come
  const C* coordinates;

  __device__ void read(int64_t point, Reads<C> (&r)[3]) const {
    for (int d = 0; d < 3; ++d) {
      if (d < dims) {
        axes[d].read(coordinates[point * dims + d], r[d]);
      } else {
        r[d].count = 1;
        r[d].place[0] = 0, r[d].weight[0] = C(1), r[d].slope[0] = C(0), r[d].rate = C(0);
      }
    }
  }
  // visit(offset in a plane, index of the read along each axis)
  template <class Visit>
  __device__ void each(const Reads<C> (&r)[3], const Visit& visit) const {
    for (int z = 0; z < r[2].count; ++z)
      for (int y = 0; y < r[1].count; ++y)
        for (int x = 0; x < r[0].count; ++x) {
          if (r[2].place[z] < 0 || r[1].place[y] < 0 || r[0].place[x] < 0) continue;
          const int64_t offset =
              (r[2].place[z] * (dims > 1 ? axes[1].size : 1) + r[1].place[y]) * axes[0].size + r[0].place[x];
          visit(offset, x, y, z);
        }
  }
};

template <class C>
struct Sample {
  Grid<C> g;
  const C* in;
  C* out;
  __device__ void operator()(int64_t i) const {
    const int64_t image = i / g.points, point = i % g.points;
    Reads<C> r[3];
    g.read(i, r);
    for (int64_t c = 0; c < g.channels; ++c) {
      const int64_t plane = image * g.channels + c;
      C sum = 0;
      g.each(r, [&](int64_t at, int x, int y, int z) {
        sum += in[plane * g.plane + at] * (r[0].weight[x] * r[1].weight[y] * r[2].weight[z]);
      });
      out[plane * g.points + point] = sum;
    }
  }
};
template <class C>
struct SampleBackward {
  Grid<C> g;
  const C *in, *grad;
  C *grad_in, *grad_grid;
  __device__ void operator()(int64_t i) const {
    const int64_t image = i / g.points, point = i % g.points;
    Reads<C> r[3];
    g.read(i, r);
    C flow[3] = {C(0), C(0), C(0)};
    for (int64_t c = 0; c < g.channels; ++c) {
      const int64_t plane = image * g.channels + c;
      const C upstream = grad[plane * g.points + point];
      g.each(r, [&](int64_t at, int x, int y, int z) {
        const C wx = r[0].weight[x], wy = r[1].weight[y], wz = r[2].weight[z];
        if (grad_in) atomic_add(grad_in + plane * g.plane + at, upstream * (wx * wy * wz));
        if (!grad_grid) return;
        const C value = upstream * in[plane * g.plane + at];
        flow[0] += value * r[0].slope[x] * wy * wz;
        flow[1] += value * r[1].slope[y] * wx * wz;
        flow[2] += value * r[2].slope[z] * wx * wy;
      });
    }
    if (grad_grid)
      for (int d = 0; d < g.dims; ++d) grad_grid[i * g.dims + d] = flow[d] * r[d].rate;
  }
};

template <class C>
Grid<C> describe(const TensorView& input, const TensorView& grid, int64_t mode, int64_t padding, bool align_corners) {
  Grid<C> g{};
  g.dims = input.ndim - 2;
  g.channels = input.sizes[1];
  g.plane = 1;
  g.points = 1;
  for (int d = 0; d < g.dims; ++d) {
    g.axes[d] = {input.size(-1 - d), static_cast<Mode>(mode), static_cast<Padding>(padding), align_corners};
    g.plane *= input.size(-1 - d);
  }
  for (int d = 1; d <= g.dims; ++d) g.points *= grid.sizes[d];
  g.coordinates = grid.ptr<const C>();
  return g;
}

template <class F>
void visit_sampled(DType dtype, const F& f) {
  if (dtype == DType::Float32) return f(Tag<float>{});
  if (dtype == DType::Float64) return f(Tag<double>{});
  unsupported_dtype("grid_sampler", dtype);
}

}  // namespace

void grid_sample(const TensorView& out, const TensorView& input, const TensorView& grid, int64_t mode, int64_t padding,
                 bool align_corners) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_sampled(input.dtype, [&]<class C>(Tag<C>) {
    const Grid<C> g = describe<C>(input, grid, mode, padding, align_corners);
    for_each(out.device.index(), input.sizes[0] * g.points, Sample<C>{g, input.ptr<const C>(), out.ptr<C>()});
  });
}

void grid_sample_backward(const TensorView& grad_input, const TensorView& grad_grid, const TensorView& grad,
                          const TensorView& input, const TensorView& grid, int64_t mode, int64_t padding,
                          bool align_corners) {
  DeviceGuard guard(grad.device.index());
  visit_sampled(input.dtype, [&]<class C>(Tag<C>) {
    const Grid<C> g = describe<C>(input, grid, mode, padding, align_corners);
    for_each(grad.device.index(), input.sizes[0] * g.points,
             SampleBackward<C>{g, input.ptr<const C>(), grad.ptr<const C>(),
                               grad_input.defined() ? grad_input.ptr<C>() : nullptr,
                               grad_grid.defined() ? grad_grid.ptr<C>() : nullptr});
  });
}

}  // namespace mica::cuda
