// The general product. A and B are copied into panels that suit the micro-kernel. A thread keeps a panel of A in its
// first cache while panels of B pass from the second. An operand whose strides suit the micro-kernel already is used in
// place.
//
// Threads share C in one of two ways. Where C has enough columns, each thread takes some of them, packs that part of B,
// and reads panels of A that all threads have packed before. Otherwise each takes some rows of a block of columns and
// packs for itself what it needs of A and B. Several threads then pack the same part. That is faster all the same: no
// thread waits for another's copies, and lines that several cores have read take long to write again.
#include <algorithm>
#include <cstring>

#include "backends/cpu/gemm/packed_product.h"
#include "backends/cpu/share_runs.h"

namespace mica::cpu::gemm_impl {

namespace {

constexpr int64_t kUnitsWorthABlock = 3;  // a thread takes another thread's block of B only with so many units left
constexpr int64_t kPartRowPanels = 8;     // the least panels of A of a part of a panel of B
constexpr int64_t kMostParts = 4;
constexpr int64_t kPackGroup = 8;  // the panels that are packed one after the other, at most
constexpr int64_t kGroupBytes = 1 << 17;
constexpr int64_t kLineBytes = 64;

// The length is a constant, so that there is no loop.
template <int64_t kLength>
void scale_run(float* at, float factor) {
  for (int64_t i = 0; i < kLength; ++i) at[i] *= factor;
}

}  // namespace

void PackedProduct::run() {
  const bool depth_split = p_.k > max_depth_;
  const int64_t depth = depth_split ? round_up(equal_part(p_.k, max_depth_), unit_) : p_.k;
  block_depth_ = a_passes_ ? depth : round_up(equal_part(std::min(depth, p_.k), s_.k_block), unit_);
  const int64_t rows = std::min(max_rows_, p_.m), cols = std::min(max_cols_, p_.n);
  const int64_t blocks = divide_up(depth, block_depth_);

  // One line of padding lets the rows of a panel fall into different sets of the cache.
  const bool k_last = s_.format || (!s_.kernel.packs_rows_adjacent && (p_.a.col_stride == 1 || p_.a.row_stride != 1));
  const int64_t padded_depth =
      s_.format ? block_depth_
                : round_up(block_depth_ * s_.packed_size, kLineBytes) / s_.packed_size + kLineBytes / s_.packed_size;
  a_panel_bytes_ = a_in_place_ ? 0 : round_up(s_.kernel.rows * padded_depth * s_.packed_size, kLineBytes);
  a_row_stride_ = k_last ? padded_depth : 1;
  a_k_stride_ = k_last ? 1 : int64_t{s_.kernel.rows};
  const int64_t b_panel = round_up(s_.kernel.cols * block_depth_ * s_.packed_size, kLineBytes);
  const int64_t row_panels = divide_up(rows, panel_rows_), col_panels = divide_up(cols, panel_cols_);
  b_panel_bytes_ = b_panel;
  keep_b(depth, blocks);
  const int64_t b_bytes = b_packed_first() ? col_panels * blocks * b_panel : 0;
  span_ = {0, rows, 0, cols, 0, depth};
  blocks_ = blocks;
  a_shared_ = !a_in_place_ && (b_local_ || (threads_ > 1 ? whole_columns_ : cut_blocks().cols < col_panels));
  a_group_ = p_.a.row_stride == 1 && a_row_stride_ == 1 && !a_in_place_
                 ? std::clamp<int64_t>(kGroupBytes / a_panel_bytes_, 1, kPackGroup)
                 : 1;
  a_block_step_ = row_panels * a_panel_bytes_;
  const int64_t a_bytes = a_shared_ ? blocks * a_block_step_ : 0;
  shared_stride_ = depth_split && !direct_c_ ? col_panels * s_.kernel.cols : 0;
  const int64_t sums_bytes = row_panels * panel_rows_ * s_.parts * shared_stride_ * s_.sum_size;
  const WorkBuffer buffer(Slot::Panels, static_cast<size_t>(b_bytes + a_bytes + sums_bytes));
  shared_a_ = buffer.data() + b_bytes;
  shared_sums_ = shared_a_ + a_bytes;

  for (int64_t col = 0; col < p_.n; col += cols) {
    for (int64_t row = 0; row < p_.m; row += rows) {
      for (int64_t k = 0; k < p_.k; k += depth) {
        span_ = {row, std::min(rows, p_.m - row), col, std::min(cols, p_.n - col), k, std::min(depth, p_.k - k)};
        blocks_ = divide_up(span_.depth, block_depth_);
        if (b_in_place_) {
          b_ = {const_cast<char*>(p_.b_at(s_, k, col)), panel_cols_ * s_.element_size,
                block_depth_ * p_.b.row_stride * s_.element_size, p_.b.row_stride};
        } else if (kept_b_) {
          const int64_t all = divide_up(p_.n, panel_cols_);
          b_ = {kept_b_->as<char>() + (k / depth * blocks * all + col / panel_cols_) * b_panel, b_panel, all * b_panel,
                s_.kernel.cols};
        } else {
          b_ = {buffer.data(), b_panel, col_panels * b_panel, s_.kernel.cols};
        }
        pack();
        multiply();
      }
    }
  }
  if (blocks_of_c_) blocks_of_c_->set_told();
}

// Packs what all threads share. Threads take groups of panels, so that a thread packs the part of B that it will use
// first.
void PackedProduct::pack() const {
  const int64_t a_panels = a_shared_ ? divide_up(span_.rows, panel_rows_) : 0;
  const int64_t b_panels = b_packed_first() ? divide_up(span_.cols, panel_cols_) : 0;
  if (a_panels + b_panels == 0) return;
  const int64_t groups = std::min(std::max(a_panels, b_panels),
                                  std::max(4 * int64_t{threads_}, divide_up(std::max(a_panels, b_panels), kPackGroup)));
  share_runs(threads_, groups, 1, groups, [&](int64_t begin, int64_t end) {
    for (int64_t block = 0; block < blocks_; ++block) {
      for (int64_t group = begin; group < end; ++group) {
        const int64_t i = a_panels * group / groups, j = b_panels * group / groups;
        pack_a(i, a_panels * (group + 1) / groups, block, shared_a_ + block * a_block_step_ + i * a_panel_bytes_);
        pack_b(j, b_panels * (group + 1) / groups, block, b_.at(j, block));
      }
    }
  });
}

// Packs all of B, with every depth, where B is a weight that compiled calls multiply with again and again. The panels
// are then kept for the next call.
void PackedProduct::keep_b(int64_t depth, int64_t blocks) {
  if (b_in_place_) return;
  const int64_t panels = divide_up(p_.n, panel_cols_), spans = divide_up(p_.k, depth);
  const kept::Key key{
      p_.b.data,
      kept::Key::Kind::ProductPanels,
      {static_cast<int64_t>(s_.dtype), p_.n, p_.k, p_.b.row_stride, p_.b.col_stride, depth, block_depth_}};
  const auto bytes = static_cast<size_t>(spans * blocks * panels * b_panel_bytes_);
  if (!kept::may_keep(key, bytes)) return;
  kept_b_.emplace(key, bytes);
  if (kept_b_->is_filled()) return;
  share_runs(threads_, panels, 1, panels, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < spans * blocks; ++i) {
      const int64_t first = i / blocks * depth, k = first + i % blocks * block_depth_;
      const int64_t count = std::min(block_depth_, std::min(first + depth, p_.k) - k);
      if (count <= 0) continue;
      packing().pack_b(begin * panel_cols_, std::min(end * panel_cols_, p_.n), k, count,
                       kept_b_->as<char>() + (i * panels + begin) * b_panel_bytes_, b_panel_bytes_);
    }
  });
  kept_b_->set_filled();
}

void PackedProduct::pack_a(int64_t i0, int64_t i1, int64_t block, char* to) const {
  packing().pack_a(span_.row + i0 * panel_rows_, span_.row + std::min(i1 * panel_rows_, span_.rows),
                   span_.k + block * block_depth_, depth_of(block), to, a_panel_bytes_);
}

void PackedProduct::pack_b(int64_t j0, int64_t j1, int64_t block, char* to) const {
  packing().pack_b(span_.col + j0 * panel_cols_, span_.col + std::min(j1 * panel_cols_, span_.cols),
                   span_.k + block * block_depth_, depth_of(block), to, b_panel_bytes_);
  if (!p_.b_factors.data) return;
  // The rows of a panel lie one after the other, each as wide as the kernel's tile.
  const float* factors = p_.b_factors.data + p_.index * p_.b_factors.matrix_step;
  const int64_t first = span_.k + block * block_depth_, width = s_.kernel.cols;
  for (int64_t j = j0; j < j1; ++j, to += b_panel_bytes_) {
    float* at = reinterpret_cast<float*>(to);
    for (int64_t k = first; k < first + depth_of(block); ++k, at += width) {
      const float factor = factors[k * p_.b_factors.depth_step];
      switch (width) {
        case 12:
          scale_run<12>(at, factor);  // NEON
          break;
        case 32:
          scale_run<32>(at, factor);  // AVX-512
          break;
        default:
          for (int64_t i = 0; i < width; ++i) at[i] *= factor;
      }
    }
  }
}

PackedProduct::OwnPanels PackedProduct::own_panels(int64_t cols) const {
  const int64_t b_panels = kept_b_ ? 0 : b_local_ ? 1 : !b_by_block_ ? 0 : whole_columns_ ? cols : cols * blocks_;
  return {.buffer = WorkBuffer(Slot::Panel, static_cast<size_t>(own_a_bytes() + b_panels * b_panel_bytes_))};
}

// Shares the work among the threads. A unit of work is one panel of A with a block's columns of B. Where threads share
// columns, it is one panel of B with all of A.
void PackedProduct::multiply() {
  const int64_t row_panels = divide_up(span_.rows, panel_rows_), col_panels = divide_up(span_.cols, panel_cols_);
  const BlockShape block = cut_blocks();
  if (whole_columns_) {
    // A panel of B with all of A takes long where threads have few panels each. So it is several units, and the threads
    // end together.
    const int64_t parts =
        b_local_ && threads_ > 1 && !blocks_of_c_ ? std::clamp<int64_t>(row_panels / kPartRowPanels, 1, kMostParts) : 1;
    const int64_t least = b_local_ ? 1 : std::min(kLeastBlock, block.cols);
    share_runs_with(threads_, col_panels * parts, least, block.cols * parts, 1, [&] {
      return [&, own = own_panels(block.cols)](int64_t begin, int64_t end) mutable {
        while (begin < end) {
          const int64_t j = begin / parts, part = begin % parts, panels = part == 0 ? (end - begin) / parts : 0;
          if (panels > 0) {
            multiply_block(own, 0, row_panels, j, j + panels);
            begin += panels * parts;
          } else {
            const int64_t last = std::min(parts, part + end - begin);
            multiply_block(own, row_panels * part / parts, row_panels * last / parts, j, j + 1);
            begin += last - part;
          }
        }
      };
    });
    return;
  }
  const int64_t wide = divide_up(col_panels, block.cols);
  const int64_t spare = b_by_block_ ? kUnitsWorthABlock : 1;
  share_runs_with(threads_, wide * row_panels, 1, block.rows, spare, [&] {
    return [&, own = own_panels(block.cols)](int64_t begin, int64_t end) mutable {
      while (begin < end) {
        const int64_t i = begin % row_panels, j = begin / row_panels * block.cols;
        const int64_t rows = std::min(end - begin, row_panels - i);
        multiply_block(own, i, i + rows, j, std::min(col_panels, j + block.cols));
        begin += rows;
      }
    };
  });
}

void PackedProduct::multiply_block(OwnPanels& own, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  const int64_t row = i0 * panel_rows_, col = j0 * panel_cols_;
  const int64_t rows = std::min(i1 * panel_rows_, span_.rows) - row,
                cols = std::min(j1 * panel_cols_, span_.cols) - col;
  if (s_.format && s_.format->enter) s_.format->enter();
  if (direct_c_) {
    multiply_tiles(own, i0, i1, j0, j1, p_.c_at(s_, span_.row + row, span_.col + col), p_.c_row_stride, span_.k == 0);
    if (blocks_of_c_ && span_.k + span_.depth == p_.k)
      blocks_of_c_->finished(p_.index, span_.row + row, rows, span_.col + col, cols);
  } else if (shared_stride_ > 0) {
    char* sums = shared_sums_ + (row * shared_stride_ + col) * s_.parts * s_.sum_size;
    multiply_tiles(own, i0, i1, j0, j1, sums, shared_stride_, span_.k == 0);
    if (span_.k + span_.depth == p_.k) finish(sums, shared_stride_, row, rows, col, cols);
  } else {
    // Sums that one depth block completes go to C panel by panel, while they are in the nearest cache.
    const int64_t step = blocks_ == 1 && !b_local_ ? 1 : i1 - i0;
    const int64_t stride = (j1 - j0) * s_.kernel.cols + kLineBytes / s_.sum_size;
    const WorkBuffer sums(Slot::Sums, static_cast<size_t>(step * panel_rows_ * s_.parts * stride * s_.sum_size));
    for (int64_t i = i0; i < i1; i += step) {
      const int64_t first = i * panel_rows_;
      multiply_tiles(own, i, i + step, j0, j1, sums.data(), stride, true);
      finish(sums.data(), stride, first, std::min(step * panel_rows_, span_.rows - first), col, cols);
    }
  }
  if (s_.format && s_.format->leave) s_.format->leave();
}

// Multiplies panels i0 to i1 of A with panels j0 to j1 of B. `c` is the block's first element: of C itself where tiles
// are summed there, otherwise of a block of plain sums.
void PackedProduct::multiply_tiles(OwnPanels& own, int64_t i0, int64_t i1, int64_t j0, int64_t j1, char* c,
                                   int64_t c_stride, bool first) const {
  char* const own_a = own.buffer.data();
  char* own_b = own_a + own_a_bytes();
  const int64_t block_bytes = (j1 - j0) * b_panel_bytes_;
  const bool keeps_b = b_by_block_ && !whole_columns_;  // whether a packed block serves several runs of this thread
  if (keeps_b && !kept_b_ && own.b_block != j0) {
    for (int64_t q = 0; q < blocks_; ++q) pack_b(j0, j1, q, own_b + q * block_bytes);
    own.b_block = j0;
  }
  Epilogue epilogue;
  MicroTile t;
  t.a_row_stride = a_in_place_ ? p_.a.row_stride : a_row_stride_;
  t.a_k_stride = a_in_place_ ? p_.a.col_stride : a_k_stride_;
  t.b_k_stride = b_.k_stride;
  t.c_row_stride = c_stride;
  t.a_padded = !a_in_place_;
  t.b_padded = !b_in_place_;
  t.epilogue = &epilogue;
  const bool plain = !direct_c_ || p_.plain;
  const bool scales = direct_c_ && !p_.unit_alpha;
  const bool a_follows = !b_local_ && (a_shared_ || (a_in_place_ && blocks_ == 1 && p_.a.row_stride == p_.k));
  for (int64_t q = 0; q < blocks_; ++q) {
    t.k = depth_of(q);
    if (b_by_block_ && !keeps_b && !kept_b_) pack_b(j0, j1, q, own_b);
    const bool opens = first && q == 0;
    t.store = opens ? (plain ? Store::Overwrite : Store::General) : scales ? Store::General : Store::Accumulate;
    const char *next_a = nullptr, *next_panel = nullptr;
    const auto take_a = [&](int64_t i) {
      const int64_t row = i * panel_rows_;
      t.rows = static_cast<int>(std::min(panel_rows_, span_.rows - row)) * s_.parts;
      if (a_in_place_) {
        t.a = p_.a_at(s_, span_.row + row, span_.k + q * block_depth_);
      } else if (a_shared_) {
        t.a = shared_a_ + q * a_block_step_ + i * a_panel_bytes_;
      } else {
        const int64_t place = (i - i0) % a_group_;
        if (place == 0) pack_a(i, std::min(i + a_group_, i1), q, own_a);
        t.a = own_a + place * a_panel_bytes_;
      }
      if (a_follows) {  // the next panel is fetched while this one is used
        const int64_t bytes = a_in_place_ ? panel_rows_ * p_.k * s_.element_size : a_panel_bytes_;
        next_a = static_cast<const char*>(t.a) + (i + 1 < i1 ? bytes : 0);
        t.soon_step = divide_up(bytes, (j1 - j0) * t.k);
      }
    };
    const auto take_b = [&](int64_t j) {
      const int64_t col = j * panel_cols_;
      t.cols = static_cast<int>(std::min(panel_cols_, span_.cols - col)) * s_.parts;
      const int64_t next = j + 1 < j1 ? j + 1 : j0;
      if (b_local_ && kept_b_) {  // the next panel is fetched while this one is used
        t.b = t.next_b = b_.at(j, q);
        next_panel = b_.at(next, q);
      } else if (b_local_) {
        if (blocks_ > 1 || own.b_block != j) pack_b(j, j + 1, q, own_b);
        own.b_block = j;
        t.b = t.next_b = own_b;
      } else if (kept_b_) {
        t.b = b_.at(j, q);
        t.next_b = b_.at(next, q);
      } else {
        t.b = b_by_block_ ? own_b + (j - j0) * b_panel_bytes_ : b_.at(j, q);
        t.next_b = b_by_block_ ? own_b + (next - j0) * b_panel_bytes_ : b_.at(next, q);
      }
      if (t.store == Store::General) {
        epilogue = p_.epilogue_at(s_, span_.col + col);
        if (!opens) continue_sums(epilogue);
      }
    };
    const auto run_tile = [&](int64_t i, int64_t j) {
      t.c = c + ((i - i0) * panel_rows_ * c_stride + (j - j0) * panel_cols_) * s_.parts * s_.sum_size;
      if (!b_local_) t.soon = next_a ? next_a + (j - j0) * t.k * t.soon_step : nullptr;
      s_.kernel.run(t);
    };
    if (b_local_) {
      // Meanwhile the rows that the next panel is packed from are fetched. They lie far apart, so that the processor
      // does not foresee them. Each of the first fetch_depths tiles fetches every fetch_depths-th row.
      const int64_t row_bytes = p_.b.row_stride * s_.element_size;
      for (int64_t j = j0; j < j1; ++j) {
        take_b(j);
        const char* next = p_.b.col_stride == 1 && j + 1 < j1 && !kept_b_
                               ? p_.b_at(s_, span_.k + q * block_depth_, span_.col + (j + 1) * panel_cols_)
                               : nullptr;
        for (int64_t i = i0; i < i1; ++i) {
          const bool fetches = next && i - i0 < s_.kernel.fetch_depths;
          t.soon = fetches ? next + (i - i0) * row_bytes : nullptr;
          t.soon_step = fetches ? row_bytes : 0;
          if (next_panel) {
            t.soon_step = divide_up(b_panel_bytes_, (i1 - i0) * t.k);
            t.soon = next_panel + (i - i0) * t.k * t.soon_step;
          }
          take_a(i), run_tile(i, j);
        }
      }
    } else {
      for (int64_t i = i0; i < i1; ++i) {
        take_a(i);
        for (int64_t j = j0; j < j1; ++j) take_b(j), run_tile(i, j);
      }
    }
    if (keeps_b && !kept_b_) own_b += block_bytes;
  }
}

// Later depth blocks add to what the first one has left in C.
void PackedProduct::continue_sums(Epilogue& e) const {
  std::memcpy(e.beta, p_.one, sizeof(e.beta));
  e.reads_c = true;
  e.bias = nullptr;
}

void PackedProduct::finish(const char* sums, int64_t stride, int64_t row, int64_t rows, int64_t col,
                           int64_t cols) const {
  s_.finish(sums, p_.c_at(s_, span_.row + row, span_.col + col), {rows, cols, stride, p_.c_row_stride, p_.c_col_stride},
            p_.epilogue_at(s_, span_.col + col));
}

void run_packed(const Scheme& s, const Product& p, int threads) { PackedProduct(s, p, threads).run(); }

}  // namespace mica::cpu::gemm_impl
