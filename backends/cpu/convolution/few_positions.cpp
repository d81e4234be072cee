// Convolutions of one image whose result has few positions and its channels side by side, such as 512 channels of
// 7 x 7. As products with filters as rows they would read every filter where it lies, and their result would have to be
// turned. Here blocks of columns (im2col) are the rows, and panels of filters, which compiled calls keep, are the
// columns. An element is summed in the order of those products, so that it has their bits.
#include <algorithm>

#include "backends/cpu/convolution/columns.h"
#include "backends/cpu/convolution/correlation.h"
#include "backends/cpu/convolution/filter_panels.h"
#include "backends/cpu/convolution/interleaved.h"
#include "backends/cpu/convolution/parts.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/share_runs.h"

namespace mica::cpu::convolution {

namespace {

using gemm_impl::MicroKernel;
using gemm_impl::MicroTile;

class FewPositions {
 public:
  explicit FewPositions(const Problem& p) : p_(p) {
    const SeparatedImages images(p.input, 1, p.channels);
    Problem source = p;
    source.input = images.images();
    const Columns columns{columns_.data(), 0, positions_, false};
    parallel_for(0, p.channels, divide_up(kCopyGrain, p.taps() * positions_), [&](int64_t begin, int64_t end) {
      gather_columns(source, source.input_at(0, 0), begin, end, columns);
    });
  }

  void run() const {
    const int64_t panels = divide_up(p_.filters, kernel_.cols);
    share_runs(get_num_threads(), panels, 1, panels, [&](int64_t begin, int64_t end) { multiply(begin, end); });
    if (p_.work) p_.work->set_done();
  }

 private:
  static constexpr int64_t kCopyGrain = 1 << 14;

  // Multiplies all positions with panels of filters. Some depths of all positions stay in the second cache while the
  // panels pass by, each from memory once; and so do the sums.
  void multiply(int64_t first, int64_t last) const {
    const int64_t filter = first * kernel_.cols, filters = std::min(last * kernel_.cols, p_.filters) - filter;
    float* target = reinterpret_cast<float*>(p_.output_at(0, 0)) + filter;
    if (p_.bias) {
      const float* bias = static_cast<const float*>(p_.bias) + filter;
      for (int64_t i = 0; i < positions_; ++i) std::copy_n(bias, filters, target + i * step_);
    }
    for (int64_t depth = 0; depth < p_.depth(); depth += at_once_)
      for (int64_t panel = first; panel < last; ++panel) multiply_depths(panel, depth, panel + 1 < last);
    if (p_.work) p_.work->run({0, filter, filters, 0, positions_});
  }

  // Adds the products of some depths, from `depth` on, with one panel. The next one may follow.
  void multiply_depths(int64_t panel, int64_t depth, bool another) const {
    const int64_t filter = panel * kernel_.cols;
    float* target = reinterpret_cast<float*>(p_.output_at(0, 0)) + filter;
    MicroTile tile;
    tile.a_row_stride = 1;
    tile.a_k_stride = positions_;
    tile.b_k_stride = kernel_.cols;
    tile.b_padded = true;
    tile.c_row_stride = step_;
    tile.cols = static_cast<int>(std::min<int64_t>(kernel_.cols, p_.filters - filter));
    tile.epilogue = nullptr;
    tile.k = std::min(at_once_, p_.depth() - depth);
    tile.b = tile.next_b = filters_.panel(panel) + depth * kernel_.cols;
    tile.store = depth == 0 && !p_.bias ? gemm_impl::Store::Overwrite : gemm_impl::Store::Accumulate;
    NextPanel next(another ? filters_.panel(panel + 1) + depth * kernel_.cols : nullptr, tile.k * kernel_.cols,
                   divide_up(positions_, kernel_.rows), tile.k);
    for (int64_t row = 0; row < positions_; row += kernel_.rows) {
      next.give_to(tile);
      tile.a = columns_.as<float>() + depth * positions_ + row;
      tile.c = target + row * step_;
      tile.rows = static_cast<int>(std::min<int64_t>(kernel_.rows, positions_ - row));
      const bool ends = row + tile.rows == positions_;
      if (ends) tile.next_b = another ? filters_.panel(panel + 1) + depth * kernel_.cols : nullptr;
      if (ends && lone_) --tile.rows;
      if (tile.rows > 0) kernel_.run(tile);
      if (ends && lone_) run_alone(tile);
    }
  }

  // With positions as columns, a last vector of one column is added in an order of its own. A turned tile overwrites.
  void run_alone(MicroTile tile) const {
    const int row = tile.rows;
    float* target = static_cast<float*>(tile.c) + row * step_;
    float sums[kMostColumns];
    tile.a = static_cast<const float*>(tile.a) + row;
    tile.c = sums;
    tile.rows = 1;
    tile.c_row_stride = 1;
    const bool adds = tile.store == gemm_impl::Store::Accumulate;
    tile.store = gemm_impl::Store::Overwrite;
    tile.turned = tile.as_column = true;
    kernel_.run(tile);
    for (int i = 0; i < tile.cols; ++i) target[i] = adds ? target[i] + sums[i] : sums[i];
  }

  static constexpr int kMostColumns = 64;  // of a tile
  const Problem& p_;
  const MicroKernel& kernel_ = gemm_impl::micro_kernel_f32();
  const int64_t positions_ = p_.output.positions(), step_ = p_.output.position_stride();
  const int64_t at_once_ = gemm_depth_at_once(DType::Float32, positions_, p_.depth());
  const bool lone_ = positions_ % (kernel_.cols / 2) == 1;
  const FilterPanels filters_{
      reinterpret_cast<const float*>(p_.weight), p_.filters, p_.depth(), p_.filter_stride, 1, kernel_.cols};
  const Scratch columns_{bytes_of_floats(p_.depth() * positions_)};
};

}  // namespace

bool suits_few_positions(const Problem& p) {
  // Products of less work, and of fewer columns, are summed in other orders (gemm.cpp).
  constexpr int64_t kLeastPositions = 17, kLeastFilters = 128;
  const MicroKernel& kernel = gemm_impl::micro_kernel_f32();
  if (!kernel.turns || p.batch != 1 || !is_planar(p) || p.is_pointwise() || !p.output.channels_last() || p.factors ||
      p.filters < kLeastFilters || p.output.positions() < kLeastPositions)
    return false;
  if (p.weight_channel_stride != p.taps() || !filters_are_ordered(p, false)) return false;
  // Where all columns stay in the second cache, filters that pass by once from where they lie are as fast.
  if (gemm_depth_at_once(DType::Float32, p.output.positions(), p.depth()) == p.depth()) return false;
  return FilterPanels::may_keep(reinterpret_cast<const float*>(p.weight), p.filters, p.depth(), p.filter_stride, 1,
                                kernel.cols);
}

void convolve_few_positions(const Problem& p) { FewPositions(p).run(); }

}  // namespace mica::cpu::convolution
