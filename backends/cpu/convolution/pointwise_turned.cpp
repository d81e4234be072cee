// 1 x 1 convolutions of float32 planes, with positions as the rows of tiles and filters as their columns. Tiles read
// the planes where they lie, so that nothing but the matrix is packed, and compiled calls keep that. A tile then has
// its columns where the result has its rows: it is turned as it is stored. An element's products are added in the same
// order as by other ways, so that all of them give the same bits.
#include <algorithm>
#include <optional>

#include "backends/cpu/convolution/filter_panels.h"
#include "backends/cpu/convolution/parts.h"
#include "backends/cpu/convolution/pointwise.h"
#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/share_runs.h"

namespace mica::cpu::convolution {

namespace {

using gemm_impl::MicroKernel;
using gemm_impl::MicroTile;

constexpr int64_t kGroupPanels = 14;  // the panels of positions that are multiplied with one panel of filters, at most

class TurnedProduct {
 public:
  TurnedProduct(const PlaneProduct& p, const MicroKernel& kernel)
      : p_(p), kernel_(kernel), filters_(p.matrix, p.rows, p.depth, p.row_stride, p.depth_stride, kernel.cols) {
    const int64_t panel_bytes = kernel.rows * p.depth * static_cast<int64_t>(sizeof(float));
    group_ = equal_part(panels_, std::clamp<int64_t>(kernel.block_bytes / panel_bytes, 1, kGroupPanels));
  }

  void run() {
    const int64_t groups = divide_up(panels_, group_);
    share_runs(get_num_threads(), p_.batch * groups * columns_, 1, columns_, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit)
        multiply(unit / columns_ / groups, unit / columns_ % groups * group_, unit % columns_);
    });
    if (p_.work) p_.work->set_done();
  }

 private:
  // Multiplies a group of panels of positions with a panel of filters.
  void multiply(int64_t image, int64_t first, int64_t column) const {
    const int64_t last = std::min(panels_, first + group_), row = column * kernel_.cols;
    const int64_t rows = std::min<int64_t>(kernel_.cols, p_.rows - row);
    const float* source = reinterpret_cast<const float*>(p_.source.data) + image * p_.source.batch_stride;
    float* target =
        reinterpret_cast<float*>(p_.target.data) + image * p_.target.batch_stride + row * p_.target.channel_stride;
    MicroTile tile;
    tile.a_row_stride = 1;
    tile.a_k_stride = p_.source.channel_stride;
    tile.b = tile.next_b = filters_.panel(column);
    tile.b_k_stride = kernel_.cols;
    tile.c_row_stride = p_.target.channel_stride;
    tile.k = p_.depth;
    tile.cols = static_cast<int>(rows);
    tile.store = gemm_impl::Store::Overwrite;
    tile.epilogue = nullptr;
    tile.turned = true;
    // Each of the first panels of filters fetches some of the planes' rows that the next group reads.
    const bool fetches = last < panels_ && column < kernel_.fetch_depths;
    tile.soon_step = fetches ? tile.a_k_stride * static_cast<int64_t>(sizeof(float)) : 0;
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t position = panel * kernel_.rows;
      tile.a = source + position;
      tile.c = target + position;
      if (fetches) {
        const int64_t next = std::min(position + group_ * kernel_.rows, positions_ - 1);
        tile.soon = reinterpret_cast<const char*>(source + next + column * tile.a_k_stride);
      }
      tile.rows = static_cast<int>(std::min<int64_t>(kernel_.rows, positions_ - position));
      if (panel + 1 == last && column + 1 < columns_) tile.next_b = filters_.panel(column + 1);
      const bool lone = lone_ && image == p_.batch - 1 && panel + 1 == panels_;
      if (lone) --tile.rows;
      if (tile.rows > 0) kernel_.run(tile);
      if (lone) run_alone(tile);
    }
    const int64_t position = first * kernel_.rows, count = std::min(positions_, last * kernel_.rows) - position;
    if (p_.bias) add_bias(target + position, row, rows, count);
    if (p_.work) p_.work->run({image, row, rows, position, count});
  }

  // The last position of all, behind the rows of the tile.
  void run_alone(MicroTile tile) const {
    tile.a = static_cast<const float*>(tile.a) + tile.rows;
    tile.c = static_cast<float*>(tile.c) + tile.rows;
    tile.rows = 1;
    tile.as_column = true;
    kernel_.run(tile);
  }

  void add_bias(float* to, int64_t row, int64_t rows, int64_t count) const {
    for (int64_t i = 0; i < rows; ++i, to += p_.target.channel_stride) {
      const float bias = p_.bias[row + i];
      for (int64_t j = 0; j < count; ++j) to[j] += bias;
    }
  }

  const PlaneProduct& p_;
  const MicroKernel& kernel_;
  const FilterPanels filters_;
  const int64_t positions_ = p_.source.positions(), panels_ = divide_up(positions_, kernel_.rows),
                columns_ = divide_up(p_.rows, kernel_.cols);
  // Whether the other way, with positions as columns, has a last vector of one column, which is added in an order of
  // its own.
  const bool lone_ = p_.batch * positions_ % (kernel_.cols / 2) == 1;
  int64_t group_;
};

}  // namespace

bool suits_turned(const PlaneProduct& p) {
  // Turning a tile costs about as much as eight depths of it. Of large planes each row is in a page of its own, for
  // which stores wait, and of planes that are a multiple of four lines apart all rows fall into few sets of the first
  // cache.
  constexpr int64_t kLeastPositions = 42, kMostPositions = 1024, kFewPositions = 256;
  constexpr int64_t kLeastDepth = 64, kDepthOfMany = 256, kSetFloats = 64;
  const MicroKernel& kernel = gemm_impl::micro_kernel_f32();
  const int64_t positions = p.source.positions(), all = p.batch * positions;
  if (!kernel.turns || p.factors || positions < kLeastPositions || positions >= kMostPositions) return false;
  if (p.depth < (positions <= kFewPositions ? kLeastDepth : kDepthOfMany)) return false;
  if (p.rows < kernel.cols / 2 || p.source.channel_stride % kSetFloats == 0) return false;
  return p.rows <= 2 * all ||
         FilterPanels::may_keep(p.matrix, p.rows, p.depth, p.row_stride, p.depth_stride, kernel.cols);
}

void multiply_turned(const PlaneProduct& p) { TurnedProduct(p, gemm_impl::micro_kernel_f32()).run(); }

}  // namespace mica::cpu::convolution
