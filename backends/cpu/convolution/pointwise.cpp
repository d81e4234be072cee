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

constexpr int64_t kPackedBytes = 1 << 24;  // the most bytes of panels at a time
constexpr int64_t kGroupBytes = 1 << 19;
constexpr int64_t kOwnBytes = 1 << 18;  // of the panels that a thread packs for itself, just before it uses them
constexpr int64_t kOwnGroups = 2;       // the groups of such panels that a thread has at least, if there are several
constexpr int64_t kLeastWork = 1 << 18;

// The matrix as the micro-kernel reads it best: rows in panels, or adjacent factors in rows that fall into different
// sets of the cache. A matrix that is so already is used in place. Otherwise panels of rows are copied. A panel that is
// used once is copied just before, so that it is read from the nearest caches. Otherwise all panels are copied first,
// and kept for the next call if that is allowed.
class MatrixPanels {
 public:
  MatrixPanels(const PlaneProduct& p, const MicroKernel& kernel, int64_t panel_rows, bool used_once)
      : p_(p), panel_rows_(panel_rows), row_stride_(p.row_stride), panel_step_(panel_rows * p.row_stride) {
    const bool panels = kernel.packs_rows_adjacent;
    if (!panels && p.depth_stride == 1 && p.row_stride % kSetFloats != 0) return;
    row_stride_ = panels ? 1 : round_up(p.depth, kLineFloats) + kLineFloats;
    depth_stride_ = panels ? kernel.rows : 1;
    panel_step_ = panels ? kernel.rows * p.depth : panel_rows * row_stride_;
    padded_ = panels;
    const int64_t count = divide_up(p.rows, panel_rows);
    const kept::Key key{
        p.matrix, kept::Key::Kind::MatrixPanels, {p.rows, p.depth, p.row_stride, p.depth_stride, panel_rows}};
    const size_t bytes = bytes_of_floats(count * panel_step_);
    way_ = used_once && !kept::may_keep(key, bytes) ? Way::CopyOne : Way::CopyAll;
    if (way_ == Way::CopyOne) return;
    copies_.emplace(key, bytes);
    if (copies_->is_filled()) return;
    parallel_for(0, count, divide_up(kCopyGrain, panel_rows * p.depth), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) copy(i, copies_->as<float>() + i * panel_step_);
    });
    copies_->set_filled();
  }
  // How many floats of memory `panel` needs from its caller.
  int64_t own_floats() const { return way_ == Way::CopyOne ? panel_step_ : 0; }
  const float* panel(int64_t i, float* own) const {
    if (way_ == Way::InPlace) return p_.matrix + i * panel_step_;
    if (way_ == Way::CopyAll) return copies_->as<float>() + i * panel_step_;
    copy(i, own);
    return own;
  }
  // Where the panel lies in memory, so that it can be fetched ahead.
  const float* fetched(int64_t i) const {
    if (way_ == Way::CopyAll) return copies_->as<float>() + i * panel_step_;
    const bool together = p_.depth_stride == 1 && p_.row_stride == p_.depth;
    return together ? p_.matrix + i * panel_rows_ * p_.row_stride : nullptr;
  }
  int64_t fetched_floats() const { return way_ == Way::CopyAll ? panel_step_ : panel_rows_ * p_.depth; }
  void describe(MicroTile& tile) const {
    tile.a_row_stride = row_stride_;
    tile.a_k_stride = depth_stride_;
    tile.a_padded = padded_;
  }

 private:
  void copy(int64_t i, float* to) const {
    gemm_impl::copy_to_sums(DType::Float32)(p_.matrix + i * panel_rows_ * p_.row_stride, to,
                                            {std::min(panel_rows_, p_.rows - i * panel_rows_), p_.depth, p_.row_stride,
                                             p_.depth_stride, row_stride_, depth_stride_});
  }

  enum class Way : uint8_t { InPlace, CopyOne, CopyAll };
  static constexpr int64_t kLineFloats = 16, kSetFloats = 512, kCopyGrain = 1 << 14;
  const PlaneProduct& p_;
  Way way_ = Way::InPlace;
  std::optional<kept::Memory> copies_;
  int64_t panel_rows_, row_stride_, depth_stride_ = 1, panel_step_;
  bool padded_ = false;
};

struct Panels {
  const PlaneProduct& p;
  const MatrixPanels& matrix;
  int64_t panel_rows;
  const MicroKernel& kernel = gemm_impl::micro_kernel_f32();
  int64_t width = kernel.cols, positions = p.source.positions(), total = p.batch * positions;

  static constexpr int64_t kNeonWidth = 12, kNeonLanes = 4;

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

  // Runs the block work on a panel of rows of these panels of positions.
  void finish(int64_t first_panel, int64_t last_panel, int64_t row_panel) const {
    const int64_t row = row_panel * panel_rows, rows = std::min(panel_rows, p.rows - row);
    const int64_t last = std::min(total, last_panel * width);
    for (int64_t at = first_panel * width; at < last;) {
      const int64_t position = at % positions, n = std::min(last - at, positions - position);
      p.work->run({at / positions, row, rows, position, n});
      at += n;
    }
  }

  const float* source(int64_t image) const {
    return reinterpret_cast<const float*>(p.source.data) + image * p.source.batch_stride;
  }
  float* target(int64_t image) const { return reinterpret_cast<float*>(p.target.data) + image * p.target.batch_stride; }

  // The length is a constant, so that the compiler makes no call and no loop for each depth.
  template <int64_t kLength>
  void copy_runs(int64_t image, const float* __restrict from, int64_t depths, float* __restrict to) const {
    const int64_t step = p.source.channel_stride;
    if (!p.factors) {
      for (int64_t k = 0; k < depths; ++k, from += step, to += kLength) std::memcpy(to, from, kLength * sizeof(float));
      return;
    }
    for (int64_t k = 0; k < depths; ++k, from += step, to += kLength) {
      const float factor = factor_of(*p.factors, image, k);
      for (int64_t i = 0; i < kLength; ++i) to[i] = from[i] * factor;
    }
  }

  // Whether there is code that copies runs of the panel's whole width.
  bool has_runs() const { return width == 12 || width == 16 || width == 32; }
  void copy_whole_runs(int64_t image, const float* from, int64_t depths, float* to) const {
    switch (width) {
      case 12:
        return copy_runs<12>(image, from, depths, to);  // NEON
      case 16:
        return copy_runs<16>(image, from, depths, to);  // AVX2
      default:
        return copy_runs<32>(image, from, depths, to);  // AVX-512
    }
  }

  void pack(int64_t panel, float* to) const {
    if (const int64_t over = (panel + 1) * width - total; over > 0) {
      const bool alone = panel * width / positions == p.batch - 1 && over <= p.source.channel_stride;
      const int64_t filled = alone && has_runs() ? p.depth - 1 : 0;  // by what is copied below
      std::fill_n(to + filled * width, (p.depth - filled) * width, 0.0f);
    }
    for_each_piece(panel, [&](int64_t image, int64_t position, int64_t column, int64_t n) {
      const float* from = source(image) + position;
      // Behind the end of a plane lies the next one, of which some elements are copied too. They are in columns that
      // the next image overwrites, or that are not stored.
      const int64_t readable = n == width ? p.depth : p.depth - 1;
      const bool whole = has_runs() && column == 0 && width - n <= p.source.channel_stride;
      if (whole) copy_whole_runs(image, from, readable, to);
      for (int64_t k = whole ? readable : 0; k < p.depth; ++k) {
        float* at = to + k * width + column;
        std::memcpy(at, from + k * p.source.channel_stride, bytes_of_floats(n));
        if (!p.factors) continue;
        const float factor = factor_of(*p.factors, image, k);
        for (int64_t i = 0; i < n; ++i) at[i] *= factor;
      }
    });
  }

  // Multiplies a panel of rows with a panel of positions, and fetches `soon` meanwhile.
  void multiply(int64_t panel, const float* packed, int64_t row_panel, const float* factors, float* block,
                const float* soon, int64_t soon_step) const {
    const int64_t row = row_panel * panel_rows, rows = std::min(panel_rows, p.rows - row);
    const int64_t image = panel * width / positions, position = panel * width % positions;
    const bool whole = !p.bias && position + width <= positions;
    MicroTile tile;
    tile.a = factors;
    matrix.describe(tile);
    tile.b = packed;
    tile.b_k_stride = width;
    tile.c = whole ? target(image) + row * p.target.channel_stride + position : block;
    tile.c_row_stride = whole ? p.target.channel_stride : width;
    tile.k = p.depth;
    tile.rows = static_cast<int>(rows);
    // In the last panel, only vectors that have positions are computed. NEON has no masks: it stores whole vectors.
    const int64_t here = std::min(width, total - panel * width);
    tile.cols = static_cast<int>(width == kNeonWidth ? round_up(here, kNeonLanes) : here);
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

namespace {

// Multiplies panels of rows [begin, end) with a group of panels of positions, which lie packed one after the other.
void multiply_group(const Panels& panels, const float* packed, int64_t first, int64_t last, int64_t begin, int64_t end,
                    float* block, float* own) {
  const PlaneProduct& p = panels.p;
  const MatrixPanels& matrix = panels.matrix;
  const int64_t row_panels = divide_up(p.rows, panels.panel_rows), size = p.depth * panels.width;
  for (int64_t row_panel = begin; row_panel < end; ++row_panel) {
    const float* factors = matrix.panel(row_panel, own);
    // How many floats of the next rows are fetched with one panel, and how many bytes with one depth.
    const float* soon = row_panel + 1 < row_panels ? matrix.fetched(row_panel + 1) : nullptr;
    const int64_t part = divide_up(matrix.fetched_floats(), last - first);
    const int64_t fetched = soon ? divide_up(part * static_cast<int64_t>(sizeof(float)), p.depth) : 0;
    for (int64_t i = first; i < last; ++i)
      panels.multiply(i, packed + (i - first) * size, row_panel, factors, block,
                      soon ? soon + (i - first) * part : nullptr, fetched);
    if (p.work) panels.finish(first, last, row_panel);
  }
}

}  // namespace

void multiply_planes(const PlaneProduct& p) {
  const MicroKernel& kernel = gemm_impl::micro_kernel_f32();
  const int64_t step = equal_part(p.rows, kernel.rows), row_panels = divide_up(p.rows, step);
  const int64_t width = kernel.cols, count = divide_up(p.batch * p.source.positions(), width);
  const int64_t size = p.depth * width, bytes = size * static_cast<int64_t>(sizeof(float));
  const int threads = get_num_threads();
  const auto own_floats = [&](const MatrixPanels& matrix) { return bytes_of_floats(matrix.own_floats()); };

  // Where the panels are more than a part of the second cache, a thread packs a group of them, multiplies it with the
  // whole matrix, and packs the next group in the same memory. So panels never leave that cache. That pays if reading
  // the matrix for each group costs less than writing all panels and reading them again, which costs more where they
  // are too many for the cache.
  const int64_t few = equal_part(count, std::max<int64_t>(1, kOwnBytes / bytes)), groups = divide_up(count, few);
  const int64_t dear = count * bytes > std::max(kGroupBytes, kernel.block_bytes) ? 1 : 2;
  const bool pays = groups > 1 && dear * (groups - 1) * p.rows * p.depth <= count * size;
  if (pays && (threads == 1 || groups >= kOwnGroups * threads)) {
    const MatrixPanels matrix(p, kernel, step, false);
    const Panels panels{p, matrix, step};
    share_runs(threads, groups, 1, groups, [&](int64_t begin, int64_t end) {
      const Scratch packed(bytes_of_floats(few * size)), block(bytes_of_floats(step * width)), own(own_floats(matrix));
      for (int64_t group = begin; group < end; ++group) {
        const int64_t first = group * few, last = std::min(count, first + few);
        for (int64_t i = first; i < last; ++i) panels.pack(i, packed.as<float>() + (i - first) * size);
        multiply_group(panels, packed.as<float>(), first, last, 0, row_panels, block.as<float>(), own.as<float>());
      }
    });
    if (p.work) p.work->set_done();
    return;
  }

  const int64_t held = equal_part(count, std::max<int64_t>(1, kPackedBytes / bytes));
  // A unit of work is some rows of the matrix with a group of panels, which stays in the second cache meanwhile.
  const int64_t most = std::max<int64_t>(1, std::max(kGroupBytes, kernel.block_bytes) / bytes);
  const MatrixPanels matrix(p, kernel, step, count <= most);
  const Panels panels{p, matrix, step};
  const Scratch packed(bytes_of_floats(held * size));
  for (int64_t base = 0; base < count; base += held) {
    const int64_t here = std::min(held, count - base);
    share_runs(threads, here, 1, here, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) panels.pack(base + i, packed.as<float>() + i * size);
    });
    const int64_t group = equal_part(here, most);
    share_runs(threads, divide_up(here, group) * row_panels, 1, row_panels, [&](int64_t begin, int64_t end) {
      const Scratch block(bytes_of_floats(step * width)), own(own_floats(matrix));
      for (int64_t unit = begin; unit < end;) {
        const int64_t row_panel = unit % row_panels, first = unit / row_panels * group;
        const int64_t rows = std::min(end - unit, row_panels - row_panel);
        multiply_group(panels, packed.as<float>() + first * size, base + first, base + std::min(here, first + group),
                       row_panel, row_panel + rows, block.as<float>(), own.as<float>());
        unit += rows;
      }
    });
  }
  if (p.work) p.work->set_done();
}

}  // namespace mica::cpu::convolution
