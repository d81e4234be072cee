// grid_sample and its derivative. The places that the points of a grid read are computed once for all channels, a block
// of points at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/upsampling/grid_sample.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <memory>

#include "backends/cpu/simd/memory-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/upsampling/grid_points-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/error.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

constexpr int64_t kMaxLanes = 16;  // the most lanes of any vector
constexpr int kMaxReads = 16;      // reads of a point: four by four, or two by two by two

template <class C>
struct Grid {
  int64_t batch, channels, plane, points;  // plane: elements of an image; points: of a grid
  int dims;
  GridAxis<C> axes[3];  // in the order of the grid's coordinates: width, height, depth
  const C* coordinates;
};

// The reads of a block of points: per read a list over the points.
template <class C>
struct Reads {
  int count = 0;
  bool all_inside = false;
  AxisReads<C> axes[3];
  alignas(64) int32_t offset[kMaxReads][kPoints];  // -1: outside
  alignas(64) C weight[kMaxReads][kPoints];
  alignas(64) C slope[3][kMaxReads][kPoints];  // the weights' derivatives by each coordinate
};

template <class C>
void read_axes(const Grid<C>& g, int64_t image, int64_t first, int64_t n, Reads<C>& reads) {
  alignas(64) C coordinate[kPoints];
  for (int d = 0; d < g.dims; ++d) {
    const C* from = g.coordinates + (image * g.points + first) * g.dims + d;
    for (int64_t i = 0; i < n; ++i) coordinate[i] = from[i * g.dims];
    read_axis(g.axes[d], coordinate, n, reads.axes[d]);
  }
  if (g.dims == 3) return;
  AxisReads<C>& missing = reads.axes[2];
  missing.count = 1;
  std::fill_n(missing.place[0], n, 0);
  std::fill_n(missing.weight[0], n, C(1));
  std::fill_n(missing.slope[0], n, C(0));
  std::fill_n(missing.rate, n, C(0));
}

template <bool kSlopes, class C>
void find_reads(const Grid<C>& g, int64_t image, int64_t first, int64_t n, Reads<C>& reads) {
  read_axes(g, image, first, n, reads);
  const AxisReads<C>&ax = reads.axes[0], &ay = reads.axes[1], &az = reads.axes[2];
  const auto width = static_cast<int32_t>(g.axes[0].size), height = static_cast<int32_t>(g.axes[1].size);
  int k = 0;
  for (int z = 0; z < az.count; ++z) {
    for (int y = 0; y < ay.count; ++y) {
      for (int x = 0; x < ax.count; ++x, ++k) {
        for (int64_t i = 0; i < n; ++i) {
          const int32_t px = ax.place[x][i], py = ay.place[y][i], pz = az.place[z][i];
          reads.offset[k][i] = (px | py | pz) < 0 ? -1 : (pz * height + py) * width + px;
          reads.weight[k][i] = ax.weight[x][i] * ay.weight[y][i] * az.weight[z][i];
        }
        if constexpr (kSlopes) {
          for (int64_t i = 0; i < n; ++i) {
            const C wx = ax.weight[x][i], wy = ay.weight[y][i], wz = az.weight[z][i];
            reads.slope[0][k][i] = ax.rate[i] * ax.slope[x][i] * wy * wz;
            reads.slope[1][k][i] = ay.rate[i] * wx * ay.slope[y][i] * wz;
            reads.slope[2][k][i] = az.rate[i] * wx * wy * az.slope[z][i];
          }
        }
      }
    }
  }
  reads.count = k;
  reads.all_inside = true;
  for (int j = 0; j < k; ++j) {
    int32_t lowest = 0;
    for (int64_t i = 0; i < n; ++i) lowest = std::min(lowest, reads.offset[j][i]);
    reads.all_inside = reads.all_inside && lowest == 0;
    // The vector that reaches over the end reads a place that exists.
    for (int64_t i = n; i < kPoints && i % kMaxLanes != 0; ++i) {
      reads.offset[j][i] = 0;
      reads.weight[j][i] = 0;
      if constexpr (kSlopes)
        for (int d = 0; d < 3; ++d) reads.slope[d][j][i] = 0;
    }
  }
}

template <class D>
HWY_INLINE hn::VFromD<hn::RebindToSigned<D>> load_offsets(D, const int32_t* from) {
  const hn::RebindToSigned<D> di;
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::Load(di, from);
  } else {
    return hn::PromoteTo(di, hn::Load(hn::Rebind<int32_t, D>(), from));
  }
}

// The weighted sums of what the lanes from point i on read. kInside: no read lies outside.
template <bool kInside, class D, class C>
HWY_INLINE hn::VFromD<D> weighted_reads(D d, const C* image, const Reads<C>& reads, const C (*weights)[kPoints],
                                        int64_t i) {
  const hn::RebindToSigned<D> di;
  auto sum = hn::Zero(d);
  for (int k = 0; k < reads.count; ++k) {
    const auto offsets = load_offsets(d, reads.offset[k] + i);
    if constexpr (kInside) {
      sum = hn::MulAdd(hn::Load(d, weights[k] + i), hn::GatherIndex(d, image, offsets), sum);
    } else {
      const auto values = hn::GatherIndex(d, image, hn::Max(offsets, hn::Zero(di)));
      const auto products = hn::Mul(hn::Load(d, weights[k] + i), values);
      sum = hn::Add(sum, hn::IfThenZeroElse(hn::RebindMask(d, hn::Lt(offsets, hn::Zero(di))), products));
    }
  }
  return sum;
}

// Calls use(first point, its lanes' sums) for all points of the block.
template <class C, class F>
HWY_INLINE void for_weighted_reads(const C* image, const Reads<C>& reads, const C (*weights)[kPoints], int64_t n,
                                   const F& use) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (reads.all_inside) {
    for (int64_t i = 0; i < n; i += lanes) use(i, weighted_reads<true>(d, image, reads, weights, i));
  } else {
    for (int64_t i = 0; i < n; i += lanes) use(i, weighted_reads<false>(d, image, reads, weights, i));
  }
}

template <class C>
Grid<C> describe(const TensorView& input, const TensorView& grid, int64_t mode, int64_t padding, bool align_corners) {
  Grid<C> g;
  g.dims = input.ndim - 2;
  g.batch = input.size(0);
  g.channels = input.size(1);
  g.plane = 1;
  for (int d = 0; d < 3; ++d) {
    const int64_t size = d < g.dims ? input.size(-1 - d) : 1;
    g.axes[d] = {size, static_cast<GridMode>(mode), static_cast<GridPadding>(padding), align_corners};
    g.plane *= size;
  }
  MICA_CHECK(g.plane <= INT32_MAX, "grid_sample: an image of ", g.plane, " elements is larger than offsets can say");
  g.points = 1;
  for (int d = 1; d <= g.dims; ++d) g.points *= grid.size(d);
  g.coordinates = grid.ptr<const C>();
  return g;
}

template <class C>
void sample(const TensorView& out, const TensorView& input, const Grid<C>& g) {
  const int64_t blocks = (g.points + kPoints - 1) / kPoints;
  parallel_for(0, g.batch * blocks, std::max<int64_t>(1, 64 / std::max<int64_t>(g.channels, 1)),
               [&](int64_t begin, int64_t end) {
                 const std::unique_ptr<Reads<C>> reads(new Reads<C>);
                 const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<C>()));
                 for (int64_t b = begin; b < end; ++b) {
                   const int64_t image = b / blocks, first = b % blocks * kPoints;
                   const int64_t count = std::min(kPoints, g.points - first);
                   find_reads<false>(g, image, first, count, *reads);
                   for (int64_t c = 0; c < g.channels; ++c) {
                     const int64_t plane = image * g.channels + c;
                     C* to = out.ptr<C>() + plane * g.points + first;
                     for_weighted_reads(input.ptr<const C>() + plane * g.plane, *reads, reads->weight, count,
                                        [&](int64_t i, hn::VFromD<hn::ScalableTag<C>> sums) {
                                          store_first(sums, hn::ScalableTag<C>(), to + i,
                                                      static_cast<size_t>(std::min(lanes, count - i)));
                                        });
                   }
                 }
               });
}

// Planes of one image are shared out between threads, so that no two add to the same element.
template <class C>
void spread_to_input(const TensorView& grad_input, const TensorView& grad, const Grid<C>& g) {
  const int64_t shares = std::min<int64_t>(g.channels, g.batch < get_num_threads() ? get_num_threads() : 1);
  parallel_for(0, g.batch * shares, 1, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<Reads<C>> reads(new Reads<C>);
    for (int64_t s = begin; s < end; ++s) {
      const int64_t image = s / shares, share = s % shares;
      const int64_t from = g.channels * share / shares, until = g.channels * (share + 1) / shares;
      for (int64_t first = 0; first < g.points; first += kPoints) {
        const int64_t count = std::min(kPoints, g.points - first);
        find_reads<false>(g, image, first, count, *reads);
        for (int64_t c = from; c < until; ++c) {
          C* to = grad_input.ptr<C>() + (image * g.channels + c) * g.plane;
          const C* upstream = grad.ptr<const C>() + (image * g.channels + c) * g.points + first;
          for (int k = 0; k < reads->count; ++k)
            for (int64_t i = 0; i < count; ++i)
              if (reads->offset[k][i] >= 0) to[reads->offset[k][i]] += reads->weight[k][i] * upstream[i];
        }
      }
    }
  });
}

template <class C>
void spread_to_grid(const TensorView& grad_grid, const TensorView& grad, const TensorView& input, const Grid<C>& g) {
  const int64_t blocks = (g.points + kPoints - 1) / kPoints;
  parallel_for(0, g.batch * blocks, 1, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<Reads<C>> reads(new Reads<C>);
    const hn::ScalableTag<C> tag;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
    alignas(64) C sums[3][kPoints];
    for (int64_t b = begin; b < end; ++b) {
      const int64_t image = b / blocks, first = b % blocks * kPoints, count = std::min(kPoints, g.points - first);
      find_reads<true>(g, image, first, count, *reads);
      for (int d = 0; d < g.dims; ++d) std::fill_n(sums[d], kPoints, C(0));
      for (int64_t c = 0; c < g.channels; ++c) {
        const int64_t plane = image * g.channels + c;
        const C* upstream = grad.ptr<const C>() + plane * g.points + first;
        for (int d = 0; d < g.dims; ++d) {
          for_weighted_reads(input.ptr<const C>() + plane * g.plane, *reads, reads->slope[d], count,
                             [&](int64_t i, hn::VFromD<hn::ScalableTag<C>> slopes) {
                               const size_t left = static_cast<size_t>(std::min(lanes, count - i));
                               const auto flow = hn::Mul(load_first(tag, upstream + i, left), slopes);
                               hn::Store(hn::Add(hn::Load(tag, sums[d] + i), flow), tag, sums[d] + i);
                             });
        }
      }
      C* to = grad_grid.ptr<C>() + (image * g.points + first) * g.dims;
      for (int64_t i = 0; i < count; ++i)
        for (int d = 0; d < g.dims; ++d) to[i * g.dims + d] = sums[d][i];
    }
  });
}

template <class F>
void visit_sampled(DType dtype, const F& f) {
  if (dtype == DType::Float32) return f(Tag<float>{});
  if (dtype == DType::Float64) return f(Tag<double>{});
  unsupported_dtype("grid_sampler_2d_cpu_kernel_impl", dtype);
}

void grid_sample(const TensorView& out, const TensorView& input, const TensorView& grid, int64_t mode, int64_t padding,
                 bool align_corners) {
  visit_sampled(input.dtype,
                [&]<class C>(Tag<C>) { sample(out, input, describe<C>(input, grid, mode, padding, align_corners)); });
}

void grid_sample_backward(const TensorView& grad_input, const TensorView& grad_grid, const TensorView& grad,
                          const TensorView& input, const TensorView& grid, int64_t mode, int64_t padding,
                          bool align_corners) {
  visit_sampled(input.dtype, [&]<class C>(Tag<C>) {
    const Grid<C> g = describe<C>(input, grid, mode, padding, align_corners);
    if (grad_input.defined()) spread_to_input(grad_input, grad, g);
    if (grad_grid.defined()) spread_to_grid(grad_grid, grad, input, g);
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(grid_sample);
HWY_EXPORT(grid_sample_backward);
MICA_REGISTER_SIMD(grid_sample, grid_sample);
MICA_REGISTER_SIMD(grid_sample_backward, grid_sample_backward);
}  // namespace mica::cpu
#endif
