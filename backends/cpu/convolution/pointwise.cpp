// 1 x 1 convolutions of float32 planes: the product of one matrix with all images. Panels of positions run on from
// image to image, so that small images leave no partly filled ones.
#include <algorithm>
#include <cstring>
#include <optional>

#include "backends/cpu/convolution/parts.h"
#include "backends/cpu/convolution/pointwise.h"
#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/share_runs.h"
#include "core/kept.h"

namespace mica::cpu::convolution {

namespace {

using gemm_impl::MicroKernel;
using gemm_impl::MicroTile;

constexpr int64_t kPackedBytes = 1 << 24;  // of panels that are held at a time
constexpr int64_t kGroupBytes = 1 << 19;
constexpr int64_t kLeastWork = 1 << 18;

// The matrix as the micro-kernel reads it best: rows in panels, or adjacent factors in rows that spread over the sets
// of the cache, as it is or copied.
class PackedMatrix {
 public:
  PackedMatrix(const PlaneProduct& p, const MicroKernel& kernel, int64_t panel_rows)
      : data_(p.matrix), row_stride_(p.row_stride), panel_step_(panel_rows * p.row_stride) {
    const bool panels = kernel.packs_rows_adjacent;
    if (!panels && p.depth_stride == 1 && p.row_stride % 512 != 0) return;
    row_stride_ = panels ? 1 : round_up(p.depth, kLineFloats) + kLineFloats;
    depth_stride_ = panels ? kernel.rows : 1;
    panel_step_ = panels ? kernel.rows * p.depth : panel_rows * row_stride_;
    padded_ = panels;
    const int64_t count = divide_up(p.rows, panel_rows);
    const kept::Key key{
        p.matrix, kept::Key::Kind::MatrixPanels, {p.rows, p.depth, p.row_stride, p.depth_stride, panel_rows}};
    copy_.emplace(key, bytes_of_floats(count * panel_step_));
    data_ = copy_->as<float>();
    if (copy_->is_filled()) return;
    const gemm_impl::CopyFn copy = gemm_impl::copy_to_sums(DType::Float32);
    parallel_for(0, count, divide_up(kCopyGrain, panel_rows * p.depth), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        copy(p.matrix + i * panel_rows * p.row_stride, copy_->as<float>() + i * panel_step_,
             {std::min(panel_rows, p.rows - i * panel_rows), p.depth, p.row_stride, p.depth_stride, row_stride_,
              depth_stride_});
      }
    });
    copy_->set_filled();
  }
  const float* panel(int64_t i) const { return data_ + i * panel_step_; }
  int64_t panel_floats() const { return panel_step_; }
  void describe(MicroTile& tile) const {
    tile.a_row_stride = row_stride_;
    tile.a_k_stride = depth_stride_;
    tile.a_padded = padded_;
  }

 private:
  static constexpr int64_t kLineFloats = 16, kCopyGrain = 1 << 14;
  std::optional<kept::Memory> copy_;
  const float* data_;
  int64_t row_stride_, depth_stride_ = 1, panel_step_;
  bool padded_ = false;
};

struct Panels {
  const PlaneProduct& p;
  const PackedMatrix& matrix;
  int64_t panel_rows;
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

  // A length that the compiler knows needs no call for each depth.
  static constexpr int64_t kNeonWidth = 12, kNeonLanes = 4;
  template <int64_t kLength>
  void copy_runs(const float* from, float* to) const {
    for (int64_t k = 0; k < p.depth; ++k, from += p.source.channel_stride, to += kLength)
      std::memcpy(to, from, kLength * sizeof(float));
  }

  void pack(int64_t panel, float* to) const {
    if ((panel + 1) * width > total) std::fill_n(to, p.depth * width, 0.0f);
    for_each_piece(panel, [&](int64_t image, int64_t position, int64_t column, int64_t n) {
      const float* from = source(image) + position;
      if (n == kNeonWidth && width == kNeonWidth) return copy_runs<kNeonWidth>(from, to);
      for (int64_t k = 0; k < p.depth; ++k)
        std::memcpy(to + k * width + column, from + k * p.source.channel_stride, bytes_of_floats(n));
    });
  }

  // A panel of rows with a panel of positions, while what `soon` says is fetched.
  void multiply(int64_t panel, const float* packed, int64_t row_panel, float* block, const float* soon,
                int64_t soon_step) const {
    const int64_t row = row_panel * panel_rows, rows = std::min(panel_rows, p.rows - row);
    const int64_t image = panel * width / positions, position = panel * width % positions;
    const bool whole = !p.bias && position + width <= positions;
    MicroTile tile;
    tile.a = matrix.panel(row_panel);
    matrix.describe(tile);
    tile.b = packed;
    tile.b_k_stride = width;
    tile.c = whole ? target(image) + row * p.target.channel_stride + position : block;
    tile.c_row_stride = whole ? p.target.channel_stride : width;
    tile.k = p.depth;
    tile.rows = static_cast<int>(rows);
    // Of the last panel no more vectors than have positions, where vectors are short.
    const int64_t here = std::min(width, total - panel * width);
    tile.cols = static_cast<int>(width == kNeonWidth ? round_up(here, kNeonLanes) : width);
    tile.store = gemm_impl::Store::Overwrite;
    tile.epilogue = nullptr;
    tile.soon = reinterpret_cast<const char*>(soon);
    tile.soon_step = soon_step;
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
  // Large images fill their panels.
  return p.rows >= 8 && p.source.positions() < 1024 && p.batch * p.source.positions() * p.rows * p.depth >= kLeastWork;
}

void multiply_planes(const PlaneProduct& p) {
  const MicroKernel& kernel = gemm_impl::micro_kernel_f32();
  const int64_t step = equal_part(p.rows, kernel.rows), row_panels = divide_up(p.rows, step);
  const PackedMatrix matrix(p, kernel, step);
  const Panels panels{p, matrix, step};
  const int threads = get_num_threads();
  const int64_t count = divide_up(panels.total, panels.width), size = p.depth * panels.width;
  const int64_t bytes = size * static_cast<int64_t>(sizeof(float));
  const int64_t held = equal_part(count, std::max<int64_t>(1, kPackedBytes / bytes));
  const Scratch packed(bytes_of_floats(held * size));
  for (int64_t base = 0; base < count; base += held) {
    const int64_t here = std::min(held, count - base);
    share_runs(threads, here, 1, here, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) panels.pack(base + i, packed.as<float>() + i * size);
    });
    // A unit is some rows of the matrix with a group of panels, which stays in the second cache meanwhile.
    const int64_t group = equal_part(here, std::max<int64_t>(1, kGroupBytes / bytes));
    share_runs(threads, divide_up(here, group) * row_panels, 1, row_panels, [&](int64_t begin, int64_t end) {
      const Scratch block(bytes_of_floats(step * panels.width));
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t row_panel = unit % row_panels, first = unit / row_panels * group;
        const int64_t last = std::min(here, first + group);
        // Floats of the next rows that are fetched with one panel, and bytes with one depth.
        const int64_t part = divide_up(matrix.panel_floats(), last - first);
        const int64_t fetched = divide_up(part * static_cast<int64_t>(sizeof(float)), p.depth);
        for (int64_t i = first; i < last; ++i)
          panels.multiply(base + i, packed.as<float>() + i * size, row_panel, block.as<float>(),
                          matrix.panel(row_panel + 1) + (i - first) * part, row_panel + 1 < row_panels ? fetched : 0);
      }
    });
  }
}

}  // namespace mica::cpu::convolution
