// 1 x 1 convolutions of float32 planes: the product of one matrix with all images. Panels of positions run on from
// image to image, so that small images leave no partly filled ones.
#include <algorithm>
#include <cstring>

#include "backends/cpu/convolution/parts.h"
#include "backends/cpu/convolution/pointwise.h"
#include "backends/cpu/gemm/kernels.h"

namespace mica::cpu::convolution {

namespace {

using gemm_impl::MicroKernel;
using gemm_impl::MicroTile;

constexpr int64_t kNearMatrix = 1 << 20;  // bytes of a matrix that stays in the second cache
constexpr int64_t kFarPanels = 4;         // panels that share one reading of a matrix that does not
constexpr int64_t kLeastWork = 1 << 18;

struct Panels {
  const PlaneProduct& p;
  const MicroKernel& kernel = gemm_impl::micro_kernel_f32();
  int64_t width = kernel.cols, positions = p.source.positions(), total = p.batch * positions;

  // Calls body(image, its first position, first column, count) for what a panel has of each image.
  template <class Body>
  void for_each_piece(int64_t panel, const Body& body) const {
    const int64_t first = panel * width, last = std::min(total, first + width);
    for (int64_t at = first; at < last;) {
      const int64_t image = at / positions, position = at % positions, n = std::min(last - at, positions - position);
      body(image, position, at - first, n);
      at += n;
    }
  }

  const float* source(int64_t image) const {
    return reinterpret_cast<const float*>(p.source.data) + image * p.source.batch_stride;
  }
  float* target(int64_t image) const { return reinterpret_cast<float*>(p.target.data) + image * p.target.batch_stride; }

  void pack(int64_t panel, float* to) const {
    if ((panel + 1) * width > total) std::fill_n(to, p.depth * width, 0.0f);
    for_each_piece(panel, [&](int64_t image, int64_t position, int64_t column, int64_t n) {
      const float* from = source(image) + position;
      for (int64_t k = 0; k < p.depth; ++k)
        std::memcpy(to + k * width + column, from + k * p.source.channel_stride, bytes_of_floats(n));
    });
  }

  // Rows [row, row + rows) of a panel.
  void multiply(int64_t panel, const float* packed, int64_t row, int64_t rows, float* block) const {
    const int64_t image = panel * width / positions, position = panel * width % positions;
    const bool whole = !p.bias && position + width <= positions;
    MicroTile tile;
    tile.a = p.matrix + row * p.row_stride;
    tile.a_row_stride = p.row_stride;
    tile.a_k_stride = p.depth_stride;
    tile.b = packed;
    tile.b_k_stride = width;
    tile.c = whole ? target(image) + row * p.target.channel_stride + position : block;
    tile.c_row_stride = whole ? p.target.channel_stride : width;
    tile.k = p.depth;
    tile.rows = static_cast<int>(rows);
    tile.cols = static_cast<int>(width);
    tile.store = gemm_impl::Store::Overwrite;
    tile.epilogue = nullptr;
    kernel.run(tile);
    if (whole) return;
    for_each_piece(panel, [&](int64_t part, int64_t from, int64_t column, int64_t n) {
      for (int64_t i = 0; i < rows; ++i) {
        float* to = target(part) + (row + i) * p.target.channel_stride + from;
        const float* sums = block + i * width + column;
        const float bias = p.bias ? p.bias[row + i] : 0.0f;
        for (int64_t j = 0; j < n; ++j) to[j] = sums[j] + bias;
      }
    });
  }
};

}  // namespace

bool suits_planes(const PlaneProduct& p) {
  // Large images fill their panels; rows of a matrix a power of two apart meet in one set of the cache.
  const bool spread = p.depth_stride != 1 || p.row_stride % 512 != 0;
  return p.rows >= 8 && p.source.positions() < 1024 && spread &&
         p.batch * p.source.positions() * p.rows * p.depth >= kLeastWork;
}

void multiply_planes(const PlaneProduct& p) {
  const Panels panels{p};
  const int64_t count = divide_up(panels.total, panels.width);
  const int64_t together = p.rows * p.depth * static_cast<int64_t>(sizeof(float)) > kNearMatrix ? kFarPanels : 1;
  const int64_t step = equal_part(p.rows, panels.kernel.rows), size = p.depth * panels.width;
  share_tasks(divide_up(count, together), [&](const auto& tasks) {
    const Scratch packed(bytes_of_floats(together * size)), block(bytes_of_floats(step * panels.width));
    tasks([&](int64_t task) {
      const int64_t first = task * together, last = std::min(count, first + together);
      for (int64_t i = first; i < last; ++i) panels.pack(i, packed.as<float>() + (i - first) * size);
      for (int64_t row = 0; row < p.rows; row += step)
        for (int64_t i = first; i < last; ++i)
          panels.multiply(i, packed.as<float>() + (i - first) * size, row, std::min(step, p.rows - row),
                          block.as<float>());
    });
  });
}

}  // namespace mica::cpu::convolution
