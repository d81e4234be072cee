// How a packed product is cut: which operands are packed, by whom, and into which blocks.
#include <cstdlib>

#include "backends/cpu/gemm/packed_product.h"

namespace mica::cpu::gemm_impl {

namespace {

// Bounds on what is packed at once, so that the work buffers stay small however large the matrices are.
constexpr int64_t kMaxDepthBytes = 8192;
constexpr int64_t kMaxExtent = 4096;
constexpr int64_t kSumsBytes = 1 << 18;  // of sums that stay in the second cache
constexpr int64_t kUnitsPerThread = 16;  // enough units that no thread ends much later than the others
constexpr int64_t kUnitsPerPacker = 4;   // the same where threads pack A: wide blocks spare copies of it
constexpr int64_t kNarrowBlock = 2;      // the panels of B of the narrowest block
constexpr int64_t kWorkBytes = 1 << 18;  // of a finished block of C that somebody works on while it is in a cache
constexpr int64_t kShortRowBytes = 512;
constexpr int64_t kPage = 4096;
constexpr int64_t kShallow = 64;
constexpr int64_t kPassingPanels = 2;

// Whether A passes by all of B at once, if both are used in place.
bool passes_few_columns(const Scheme& s, int64_t n, int64_t k) {
  return n <= kPassingPanels * s.kernel.cols / s.parts && k * n * s.element_size <= s.kernel.block_bytes;
}

}  // namespace

PackedProduct::PackedProduct(const Scheme& s, const Product& p, int threads) : s_(s), p_(p), threads_(threads) {
  direct_c_ = s.sums_are_elements && p.c_col_stride == 1;
  blocks_of_c_ = direct_c_ ? p.blocks : nullptr;
  panel_cols_ = s.kernel.cols / s.parts;
  unit_ = s.format ? s.format->k_unit : 1;
  a_in_place_ = can_use_a();
  const int64_t tile_rows = a_in_place_ && p.a.col_stride == 1 ? s.kernel.in_place_rows : s.kernel.rows;
  panel_rows_ = s.format ? s.kernel.rows : equal_part(p.m, tile_rows / s.parts);
  b_in_place_ = can_use_b();
  // A panel of A that few panels of B use need not stay in the first cache, if B stays in the second. With all its
  // depths at once, the next one lies behind it and can be fetched.
  a_passes_ = a_in_place_ && b_in_place_ && p.a.col_stride == 1 && !s.kernel.packs_rows_adjacent &&
              passes_few_columns(s, p.n, p.k);
  // A stays in the second cache while one panel of B after the other is packed and used.
  const bool few_rows = divide_up(p.m, panel_rows_) <= kBlockRowPanels ||
                        (a_in_place_ && p.m * p.k * s.element_size <= s.kernel.block_bytes / 2);
  // Of few depths most of the time goes to C. Panel by panel, rows of C would be written in short runs, each in a page
  // of its own. Block by block, a panel of rows of C is written from end to end.
  const bool shallow = p.k <= kShallow && s.kernel.packs_blocks && direct_c_;
  b_local_ = !b_in_place_ && !shallow && few_rows && (threads == 1 || divide_up(p.n, panel_cols_) >= 4 * threads);
  const bool enough_columns = threads == 1 || divide_up(p.n, panel_cols_) >= 2 * kLeastBlock * threads;
  whole_columns_ = b_local_ || (!b_in_place_ && s.kernel.packs_blocks && direct_c_ && enough_columns);
  b_by_block_ = !b_in_place_ && !b_local_ && (whole_columns_ || threads > 1);
  const bool packs_own = threads > 1 && !whole_columns_;
  max_depth_ = a_in_place_ && b_in_place_ ? p.k : kMaxDepthBytes / s.packed_size;
  max_rows_ = packs_own && direct_c_ ? p.m : std::max<int64_t>(1, kMaxExtent / s.parts / panel_rows_) * panel_rows_;
  max_cols_ = b_by_block_ && direct_c_ ? p.n : std::max<int64_t>(1, kMaxExtent / s.parts / panel_cols_) * panel_cols_;
}

bool PackedProduct::can_use_a() const {
  if (!s_.sums_are_elements) return false;
  // Where rows are whole pages apart, all rows of a tile fall into one set of the cache.
  const int64_t row_bytes = std::abs(p_.a.row_stride) * s_.element_size;
  const bool suits = !s_.kernel.packs_rows_adjacent && p_.a.col_stride == 1;
  return p_.n <= 4 * panel_cols_ || (suits && row_bytes % kPage != 0 && p_.n <= 1024);
}

bool PackedProduct::can_use_b() const {
  if (!s_.sums_are_elements || p_.b.col_stride != 1 || p_.b_factors.data) return false;
  // Rows that are close together are as good as a panel while all of them stay in the second cache. Rows that are far
  // apart are used in place only where few tiles read them.
  const int64_t row_bytes = std::abs(p_.b.row_stride) * s_.element_size;
  const bool near = row_bytes <= s_.kernel.near_row_bytes && p_.m <= s_.kernel.near_rows &&
                    p_.k * row_bytes <= s_.kernel.near_bytes &&
                    (row_bytes <= kShortRowBytes || p_.k * row_bytes <= s_.kernel.block_bytes);
  return p_.m <= 2 * s_.kernel.rows || near;
}

PackedProduct::BlockShape PackedProduct::cut_blocks() const {
  const int64_t row_panels = divide_up(span_.rows, panel_rows_), col_panels = divide_up(span_.cols, panel_cols_);
  // The panels of B of a block stay in the second cache while those of A pass by.
  const int64_t panel_bytes = s_.kernel.cols * block_depth_ * s_.packed_size;
  BlockShape block;
  block.cols = equal_part(col_panels, std::max<int64_t>(1, s_.kernel.block_bytes / panel_bytes));
  if (a_passes_) block.cols = col_panels;
  block.rows = equal_part(row_panels, kBlockRowPanels);
  if (!direct_c_ && (blocks_ > 1 || b_local_)) {  // the sums of the block stay there too
    const int64_t tile_bytes = s_.kernel.cols * panel_rows_ * s_.parts * s_.sum_size;
    if (b_local_) block.cols = equal_part(col_panels, std::max<int64_t>(1, kSumsBytes / (row_panels * tile_bytes)));
    block.rows = equal_part(row_panels, std::max<int64_t>(1, kSumsBytes / (block.cols * tile_bytes)));
  }
  if (blocks_of_c_ && (whole_columns_ || threads_ == 1)) {
    const int64_t rows = std::min(whole_columns_ ? row_panels : block.rows, row_panels) * panel_rows_;
    const int64_t fitting = kWorkBytes / (rows * panel_cols_ * s_.element_size);
    block.cols = equal_part(col_panels, std::clamp<int64_t>(fitting, 1, block.cols));
  }
  if (whole_columns_) {
    block.rows = row_panels;
  } else if (threads_ > 1) {
    // Threads that stand side by side read different parts of B, and threads below one another different parts of A.
    const int64_t wide = threads_across(col_panels);
    if (wide > 1)
      block.cols = std::min(block.cols, divide_up(col_panels, round_up(divide_up(col_panels, block.cols), wide)));
    const int64_t units = (a_in_place_ ? kUnitsPerThread : kUnitsPerPacker) * threads_;
    while (block.cols > kNarrowBlock && row_panels * divide_up(col_panels, block.cols) < units)
      block.cols = divide_up(block.cols, 2);
  }
  return block;
}

// How many threads stand side by side: the number for which a thread reads the least of A and B together. Blocks that
// are narrower than kNarrowBlock would read A too often.
int64_t PackedProduct::threads_across(int64_t col_panels) const {
  int64_t best = 1, least = span_.rows + span_.cols * threads_;
  for (int64_t across = 1; across <= std::min<int64_t>(threads_, col_panels / kNarrowBlock); ++across) {
    if (threads_ % across != 0) continue;
    const int64_t read = divide_up(span_.rows * across, threads_) + divide_up(span_.cols, across);
    if (read <= least) best = across, least = read;
  }
  return best;
}

}  // namespace mica::cpu::gemm_impl

namespace mica::cpu {

int64_t gemm_depth_at_once(DType dtype, int64_t n, int64_t k) {
  using namespace gemm_impl;
  const Scheme& s = scheme_of(dtype);
  return passes_few_columns(s, n, k) ? k : equal_part(k, s.k_block);
}

}  // namespace mica::cpu
