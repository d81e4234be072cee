// grid_sample and its derivative. What the points of a grid read is worked out once for all channels, a block of points
// at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/upsampling/grid_sample.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "backends/cpu/simd_register.h"
#include "backends/cpu/upsampling/grid_points.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/error.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

constexpr int64_t kPoints = 256;  // of a block
constexpr int kMaxReads = 16;     // of a point: four by four, or two by two by two

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
  int64_t points = 0;
  alignas(64) int32_t offset[kMaxReads][kPoints];  // -1: outside
  alignas(64) C weight[kMaxReads][kPoints];
  alignas(64) C slope[3][kMaxReads][kPoints];  // the weights' derivatives by each coordinate
};

template <bool kSlopes, class C>
void find_reads(const Grid<C>& g, int64_t image, int64_t first, int64_t count, Reads<C>& reads) {
  reads.points = count;
  for (int64_t i = 0; i < count; ++i) {
    const C* coordinate = g.coordinates + (image * g.points + first + i) * g.dims;
    AxisReads<C> axis[3] = {};
    for (int d = 0; d < g.dims; ++d) axis[d] = g.axes[d].reads(coordinate[d]);
    if (g.dims == 2) axis[2] = {1, {0}, {C(1)}, {C(0)}, C(0)};
    int k = 0;
    for (int z = 0; z < axis[2].count; ++z) {
      for (int y = 0; y < axis[1].count; ++y) {
        for (int x = 0; x < axis[0].count; ++x, ++k) {
          const int64_t pz = axis[2].place[z], py = axis[1].place[y], px = axis[0].place[x];
          const bool inside = pz >= 0 && py >= 0 && px >= 0;
          const C wx = axis[0].weight[x], wy = axis[1].weight[y], wz = axis[2].weight[z];
          reads.offset[k][i] =
              inside ? static_cast<int32_t>((pz * g.axes[1].size + py) * g.axes[0].size + px) : int32_t(-1);
          reads.weight[k][i] = wx * wy * wz;
          if constexpr (kSlopes) {
            reads.slope[0][k][i] = axis[0].rate * axis[0].slope[x] * wy * wz;
            reads.slope[1][k][i] = axis[1].rate * wx * axis[1].slope[y] * wz;
            reads.slope[2][k][i] = axis[2].rate * wx * wy * axis[2].slope[z];
          }
        }
      }
    }
    reads.count = k;
  }
}

// sums[i] += weight[i] * image[offset[i]], nothing where the offset is outside.
template <class C>
void gather_weighted(const C* image, const int32_t* offset, const C* weight, int64_t n, C* sums) {
  for (int64_t i = 0; i < n; ++i) {
    const C value = image[offset[i] < 0 ? 0 : offset[i]];
    sums[i] += offset[i] < 0 ? C(0) : weight[i] * value;
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
                 const auto reads = std::make_unique<Reads<C>>();
                 for (int64_t b = begin; b < end; ++b) {
                   const int64_t image = b / blocks, first = b % blocks * kPoints;
                   const int64_t count = std::min(kPoints, g.points - first);
                   find_reads<false>(g, image, first, count, *reads);
                   for (int64_t c = 0; c < g.channels; ++c) {
                     const int64_t plane = image * g.channels + c;
                     C* to = out.ptr<C>() + plane * g.points + first;
                     std::fill_n(to, count, C(0));
                     for (int k = 0; k < reads->count; ++k)
                       gather_weighted(input.ptr<const C>() + plane * g.plane, reads->offset[k], reads->weight[k],
                                       count, to);
                   }
                 }
               });
}

// Planes of one image are shared out between threads, so that no two add to the same element.
template <class C>
void spread_to_input(const TensorView& grad_input, const TensorView& grad, const Grid<C>& g) {
  const int64_t shares = std::min<int64_t>(g.channels, g.batch < get_num_threads() ? get_num_threads() : 1);
  parallel_for(0, g.batch * shares, 1, [&](int64_t begin, int64_t end) {
    const auto reads = std::make_unique<Reads<C>>();
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
    const auto reads = std::make_unique<Reads<C>>();
    alignas(64) C sums[3][kPoints], slope[kPoints];
    for (int64_t b = begin; b < end; ++b) {
      const int64_t image = b / blocks, first = b % blocks * kPoints, count = std::min(kPoints, g.points - first);
      find_reads<true>(g, image, first, count, *reads);
      for (int d = 0; d < g.dims; ++d) std::fill_n(sums[d], count, C(0));
      for (int64_t c = 0; c < g.channels; ++c) {
        const int64_t plane = image * g.channels + c;
        const C* upstream = grad.ptr<const C>() + plane * g.points + first;
        for (int d = 0; d < g.dims; ++d) {
          std::fill_n(slope, count, C(0));
          for (int k = 0; k < reads->count; ++k)
            gather_weighted(input.ptr<const C>() + plane * g.plane, reads->offset[k], reads->slope[d][k], count, slope);
          for (int64_t i = 0; i < count; ++i) sums[d][i] += upstream[i] * slope[i];
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
