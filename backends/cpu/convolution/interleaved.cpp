#include "backends/cpu/convolution/interleaved.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "backends/cpu/convolution/columns.h"
#include "backends/cpu/convolution/correlation.h"
#include "backends/cpu/convolution/depthwise.h"
#include "backends/cpu/convolution/filter_panels.h"
#include "backends/cpu/convolution/parts.h"
#include "backends/cpu/convolution/winograd.h"
#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/share_runs.h"
#include "core/interleaved.h"

namespace mica::cpu::convolution {

namespace {

using gemm_impl::MicroKernel;
using gemm_impl::MicroTile;

constexpr int64_t kGroupPanels = 14;  // the panels of positions that are multiplied with one panel of filters, at most
constexpr int64_t kPanelsPerThread = 4;
constexpr int64_t kHeavyMatrix = 1 << 20;  // bytes of a matrix that leaves the second cache before it is read again
constexpr int64_t kHeavyGroup = 1 << 20;   // bytes of a group of panels that is then worth fewer reads of the matrix
constexpr int64_t kNearResult = 1 << 15;   // bytes of a result that stay in the first cache, mostly
constexpr int64_t kFewDepths = 64;         // a tile is made in less time than memory takes for its part of the result
constexpr int64_t kSetFloats = 512;        // rows so far apart fall into few sets of the first cache
constexpr int64_t kLineFloats = 16;

constexpr int64_t kFewPositions = 1024;  // images of fewer positions follow each other as columns of one product

// Rows of positions times panels of filters.
class InterleavedProduct {
 public:
  explicit InterleavedProduct(const Problem& p) : p_(p) {
    const int64_t row_bytes = depth_ * static_cast<int64_t>(sizeof(float)), panel_bytes = kernel_.rows * row_bytes;
    const bool heavy = p.filters * row_bytes > kHeavyMatrix;
    const int64_t most = std::max<int64_t>(1, (heavy ? kHeavyGroup : kernel_.block_bytes) / panel_bytes);
    group_ = equal_part(panels_, std::min(kGroupPanels, most));
    // While all of the matrix stays in the second cache, what follows is computed in the first one.
    if (p.filters * row_bytes <= kernel_.block_bytes / 2)
      group_ =
          std::clamp<int64_t>(kNearResult / static_cast<int64_t>(bytes_of_floats(p.filters * kernel_.rows)), 1, group_);
    // Rows are read where they lie if they are whole positions of the source, and not in few sets of the cache.
    in_place_ = p.is_pointwise() && p.input.channels_last() && !p.factors && depth_ % kSetFloats != 0;
    turned_ = !p.output.channels_last();
    row_ = in_place_ ? p.input.position_stride() : round_up(depth_, kLineFloats) + kLineFloats;
    // Threads share positions rather than filters where there are enough: what follows then runs on whole rows.
    const int64_t threads = get_num_threads();
    if (in_place_ && p.filters * row_bytes <= kernel_.block_bytes && threads > 1 &&
        panels_ >= kPanelsPerThread * threads)
      group_ = std::min(group_, divide_up(panels_, threads));
    if (!in_place_) group_ = std::min(group_, divide_up(panels_, parts_of_positions(row_bytes)));
  }

  void run() {
    share_runs_with(get_num_threads(), p_.batch * divide_up(panels_, group_) * columns_, 1, columns_, 1,
                    [&] { return Worker(*this); });
    if (p_.work) p_.work->set_done();
  }

 private:
  // What a thread does: runs of panels of filters, and the group of positions that each is multiplied with. The rows
  // that it has copied are kept for the next run.
  class Worker {
   public:
    explicit Worker(const InterleavedProduct& product)
        : product_(product),
          rows_(product.in_place_ ? 0 : bytes_of_floats(product.group_ * product.kernel_.rows * product.row_)) {}
    void operator()(int64_t begin, int64_t end) {
      const int64_t columns = product_.columns_, groups = divide_up(product_.panels_, product_.group_);
      while (begin < end) {
        const int64_t group = begin / columns, last = std::min(end, (group + 1) * columns);
        const int64_t image = group / groups, first = group % groups * product_.group_;
        if (!product_.in_place_ && group != copied_) product_.copy_group(image, first, rows_.as<float>());
        copied_ = group;
        product_.multiply(image, first, begin % columns, last - begin, rows_.as<float>());
        begin = last;
      }
    }

   private:
    const InterleavedProduct& product_;
    const Scratch rows_;
    int64_t copied_ = -1;
  };

  // Into how many parts threads cut the positions at least. Those that share filters copy the same rows, and those that
  // share positions read the same filters.
  int64_t parts_of_positions(int64_t row_bytes) const {
    const int64_t threads = get_num_threads(), rows = 2 * positions_ * row_bytes, filters = p_.filters * row_bytes;
    return p_.batch == 1 && rows / threads + filters < rows + filters / threads ? threads : 1;
  }

  const float* source(int64_t image) const { return reinterpret_cast<const float*>(p_.input_at(image, 0)); }

  // Copies what the positions [first, first + count) of an image read: a row for each.
  void copy_rows(int64_t image, int64_t first, int64_t count, float* to) const {
    const Images& in = p_.input;
    const int64_t width = p_.output.sizes[2], channels = p_.channels;
    const float* from = source(image);
    if (p_.is_pointwise() && !in.channels_last()) {
      gemm_impl::copy_to_sums(DType::Float32)(from + first * in.position_stride(), to,
                                              {count, channels, in.position_stride(), in.channel_stride, row_, 1});
      for (int64_t i = 0; i < count && p_.factors; ++i, to += row_) multiply_row(image, to, to);
      return;
    }
    int64_t y = first / width, x = first % width;
    for (int64_t i = 0; i < count; ++i, to += row_) {
      const float* at = from + y * p_.stride[1] * in.strides[1] + x * p_.stride[2] * in.strides[2];
      if (++x == width) x = 0, ++y;
      if (in.channel_stride == 1 && p_.factors) {
        multiply_row(image, at, to);
      } else if (in.channel_stride == 1) {
        std::memcpy(to, at, bytes_of_floats(channels));
      } else {
        for (int64_t c = 0; c < channels; ++c) to[c] = at[c * in.channel_stride];
      }
    }
  }

  // Multiplies the channels of a position by their factors.
  void multiply_row(int64_t image, const float* from, float* to) const {
    const recording::ChannelFactors& f = *p_.factors;
    const float* factors = f.data + image * f.image_step;
    if (f.channel_step == 1) {
      for (int64_t c = 0; c < p_.channels; ++c) to[c] = from[c] * factors[c];
    } else {
      for (int64_t c = 0; c < p_.channels; ++c) to[c] = from[c] * factors[c * f.channel_step];
    }
  }

  // The positions of a group of panels, from `first` on.
  int64_t positions_of(int64_t first) const {
    return std::min(positions_ - first * kernel_.rows, group_ * kernel_.rows);
  }
  void copy_group(int64_t image, int64_t first, float* rows) const {
    copy_rows(image, first * kernel_.rows, positions_of(first), rows);
  }

  // Multiplies a group of panels of positions, from `first` on, with some panels of filters.
  void multiply(int64_t image, int64_t first, int64_t column, int64_t columns, const float* rows) const {
    const int64_t last = std::min(panels_, first + group_), position = first * kernel_.rows;
    const int64_t count = positions_of(first);
    const float* factors = in_place_ ? source(image) + position * row_ : rows;
    float* target = reinterpret_cast<float*>(p_.output_at(image, 0)) + position * step_;
    const int64_t filter_step = p_.output.channel_stride;
    MicroTile tile;
    tile.a_row_stride = row_;
    tile.a_k_stride = 1;
    tile.b_k_stride = kernel_.cols;
    tile.b_padded = true;
    tile.c_row_stride = turned_ ? filter_step : step_;
    tile.turned = turned_;
    tile.k = depth_;
    tile.store = gemm_impl::Store::Overwrite;
    tile.epilogue = nullptr;
    LinesAhead results = result_ahead(target, first, last, columns);
    const bool lone_ends = last == panels_ && has_lone(image);  // a division, which takes as long as ten depths
    for (int64_t i = column; i < column + columns; ++i) {
      const int64_t filter = i * kernel_.cols;
      tile.b = tile.next_b = filters_.panel(i);
      tile.cols = static_cast<int>(std::min<int64_t>(kernel_.cols, p_.filters - filter));
      const bool ends = i + 1 == column + columns;
      NextPanel next(ends ? next_rows(image, last) : filters_.panel(i + 1),
                     ends ? positions_of(last) * p_.input.position_stride() : depth_ * kernel_.cols, last - first,
                     depth_);
      for (int64_t panel = first; panel < last; ++panel) {
        next.give_to(tile);
        const int64_t row = (panel - first) * kernel_.rows;
        tile.a = factors + row * row_;
        tile.c = target + row * step_ + filter * filter_step;
        tile.rows = static_cast<int>(std::min<int64_t>(kernel_.rows, count - row));
        if (panel + 1 == last && i + 1 < columns_) tile.next_b = filters_.panel(i + 1);
        const bool lone = lone_ends && panel + 1 == panels_;
        if (lone) --tile.rows;
        results.fetch();
        if (tile.rows > 0) kernel_.run(tile);
        if (lone) run_alone(tile);
      }
    }
    const int64_t filter = column * kernel_.cols;
    const int64_t filters = std::min(p_.filters, (column + columns) * kernel_.cols) - filter;
    if (p_.bias) add_bias(target + filter * filter_step, filter, filters, count);
    if (p_.work) p_.work->run({image, filter, filters, position, count});
  }

  // Where the rows lie that panels from `first` on read, so that the last panel of filters can fetch them; null where
  // they do not follow each other.
  const float* next_rows(int64_t image, int64_t first) const {
    const bool together = p_.is_pointwise() && p_.input.channels_last() && first < panels_;
    return together ? source(image) + first * kernel_.rows * p_.input.position_stride() : nullptr;
  }

  // Fetches what the next group of panels writes of the result, some lines with each tile: tiles of few depths would
  // wait for it. The lines follow each other, so that the processor fetches ahead of that, too.
  class LinesAhead {
   public:
    LinesAhead(const float* from, int64_t floats, int64_t tiles)
        : at_(from), end_(from + floats), step_(round_up(divide_up(floats, tiles), kLineFloats)) {}
    void fetch() {
      for (const float* last = std::min(end_, at_ + step_); at_ < last; at_ += kLineFloats)
        __builtin_prefetch(at_, 1, 2);
    }

   private:
    const float *at_, *end_;
    int64_t step_;
  };
  LinesAhead result_ahead(const float* target, int64_t first, int64_t last, int64_t columns) const {
    const bool fetches = depth_ <= kFewDepths && !turned_ && last < panels_;
    const int64_t floats = fetches ? positions_of(last) * step_ * columns / columns_ : 0;
    return {target + positions_of(first) * step_, floats, (last - first) * columns};
  }

  // With positions as columns, a last vector of one column is added in an order of its own. Small images follow each
  // other there; others end their columns one by one.
  bool has_lone(int64_t image) const {
    const int64_t lanes = kernel_.cols / 2;
    if (positions_ >= kFewPositions) return positions_ % lanes == 1;
    return p_.batch * positions_ % lanes == 1 && image == p_.batch - 1;
  }

  // The last position of all, behind the rows of the tile.
  void run_alone(MicroTile tile) const {
    tile.a = static_cast<const float*>(tile.a) + tile.rows * row_;
    tile.c = static_cast<float*>(tile.c) + tile.rows * step_;
    tile.rows = 1;
    tile.c_row_stride = p_.output.channel_stride;
    tile.turned = tile.as_column = true;
    kernel_.run(tile);
  }

  void add_bias(float* to, int64_t filter, int64_t filters, int64_t count) const {
    const float* bias = static_cast<const float*>(p_.bias) + filter;
    if (turned_) {
      for (int64_t j = 0; j < filters; ++j, to += p_.output.channel_stride)
        for (int64_t i = 0; i < count; ++i) to[i] += bias[j];
      return;
    }
    for (int64_t i = 0; i < count; ++i, to += step_)
      for (int64_t j = 0; j < filters; ++j) to[j] += bias[j];
  }

  const Problem& p_;
  const MicroKernel& kernel_ = gemm_impl::micro_kernel_f32();
  const int64_t depth_ = p_.depth(), positions_ = p_.output.positions(), step_ = p_.output.position_stride();
  const int64_t panels_ = divide_up(positions_, kernel_.rows), columns_ = divide_up(p_.filters, kernel_.cols);
  const FilterPanels filters_{
      reinterpret_cast<const float*>(p_.weight), p_.filters, depth_, p_.filter_stride, 1, kernel_.cols};
  int64_t group_, row_;
  bool in_place_, turned_;
};

}  // namespace

bool suits_interleaved(const Problem& p) {
  // Where large planes are turned as they are stored, each row of them is in a page of its own.
  if (!p.output.channels_last() && p.interleaved && p.output.positions() >= kFewPositions) return false;
  if (p.dtype != DType::Float32 || p.groups != 1 || !gemm_impl::micro_kernel_f32().turns) return false;
  if (p.kernel[0] != 1 || p.input.sizes[0] != 1 || p.padding[0] != 0) return false;
  if (p.weight_channel_stride != p.taps() || !filters_are_ordered(p, false)) return false;
  // Of less work, and of larger images with more depths, the sums are made in another order.
  constexpr int64_t kLeastWork = 1 << 18, kMostDepths = 1024;
  return p.taps() == 1 && p.padding[1] == 0 && p.padding[2] == 0 &&
         p.batch * p.output.positions() * p.filters * p.channels >= kLeastWork &&
         (p.output.positions() < kFewPositions || p.channels <= kMostDepths);
}

void convolve_interleaved(const Problem& p) { InterleavedProduct(p).run(); }

// Images of the same sizes in `data`, with their channels one after the other.
static Images dense_planes(const Images& images, int64_t channels, float* data) {
  Images dense = images;
  dense.data = reinterpret_cast<char*>(data);
  dense.strides[2] = 1;
  for (int d = 1; d >= 0; --d) dense.strides[d] = dense.strides[d + 1] * dense.sizes[d + 1];
  dense.channel_stride = dense.positions();
  dense.batch_stride = channels * dense.positions();
  return dense;
}

SeparatedImages::SeparatedImages(const Images& images, int64_t batch, int64_t channels) : images_(images) {
  if (!images.channels_last()) return;
  const int64_t positions = images.positions();
  float* to = memory_.emplace(bytes_of_floats(batch * channels * positions)).as<float>();
  images_ = dense_planes(images, channels, to);
  const float* from = reinterpret_cast<const float*>(images.data);
  for (int64_t i = 0; i < batch; ++i)
    transpose_floats(from + i * images.batch_stride, channels, to + i * images_.batch_stride, positions, positions,
                     channels);
}

SeparatedProblem::SeparatedProblem(const Problem& p) : original_(p), problem_(p) {
  problem_.interleaved = false;
  problem_.input = input_.images();
  if (!p.output.channels_last()) return;
  problem_.output = dense_planes(p.output, p.filters, output_.as<float>());
  problem_.work = nullptr;
}

void SeparatedProblem::finish() const {
  const Problem& p = original_;
  if (!p.output.channels_last()) return;
  const int64_t positions = p.output.positions(), image = p.filters * positions;
  for (int64_t i = 0; i < p.batch; ++i) {
    transpose_floats(output_.as<float>() + i * image, positions, reinterpret_cast<float*>(p.output_at(i, 0)), p.filters,
                     p.filters, positions);
    if (p.work) p.work->run({i, 0, p.filters, 0, positions});
  }
  if (p.work) p.work->set_done();
}

}  // namespace mica::cpu::convolution

namespace mica::recording {

using namespace cpu::convolution;

bool has_interleaved_convolutions() { return cpu::gemm_impl::micro_kernel_f32().turns; }

bool computes_interleaved(const TensorView& out, const TensorView& input, const TensorView& weight, IntArrayRef stride,
                          IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  if (out.ndim != 4 || !has_interleaved_convolutions()) return false;
  const Problem p = make_problem(input, out, weight, {}, stride, padding, dilation, groups);
  if (is_depthwise(p)) return suits_depthwise_interleaved(p);
  constexpr int64_t kLeastFilters = 16;
  if (groups != 1 || p.filters < kLeastFilters) return false;
  if (suits_interleaved(p)) return true;
  if (!is_planar(p) || p.taps() == 1) return false;
  const Correlation c = forward_correlation(p);
  return suits_winograd(c) || is_short(c) || suits_direct(c);
}

void separate_channels(const float* from, int64_t step, float* to, int64_t channels, int64_t positions) {
  transpose_floats(from, step, to, positions, positions, channels);
}

}  // namespace mica::recording
