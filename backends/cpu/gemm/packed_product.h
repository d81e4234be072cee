// The general product, through packed panels: how it is cut into blocks (packed_blocks.cpp), and how panels are packed
// and multiplied (packed.cpp).
#pragma once

#include <algorithm>
#include <optional>

#include "backends/cpu/gemm/packing.h"
#include "backends/cpu/gemm/workspace.h"
#include "core/kept.h"

namespace mica::cpu::gemm_impl {

// Where the micro-kernel finds B: panel j of depth block q starts at base + j * panel_step + q * block_step.
struct PanelsOfB {
  char* base;
  int64_t panel_step, block_step;  // bytes
  int64_t k_stride;                // elements

  char* at(int64_t panel, int64_t block) const { return base + panel * panel_step + block * block_step; }
};

class PackedProduct {
 public:
  PackedProduct(const Scheme& s, const Product& p, int threads);
  void run();

 private:
  static constexpr int64_t kBlockRowPanels =
      16;                                    // the panels of rows that are multiplied with a block at once, at most
  static constexpr int64_t kLeastBlock = 4;  // the panels of B that a thread packs for itself, at least

  // The part of the product that is packed at once.
  struct Span {
    int64_t row, rows, col, cols, k, depth;
  };
  // The shape of a block, in panels: its columns, and the most rows that are multiplied with them at once.
  struct BlockShape {
    int64_t rows, cols;
  };
  // The panels that a thread has packed for itself: a group of panels of A, and panels of B behind them.
  struct OwnPanels {
    WorkBuffer buffer;
    int64_t b_block = -1;  // the first panel of the block of B that is packed, with all its depths; -1 is none
  };

  bool can_use_a() const;  // where it lies
  bool can_use_b() const;
  BlockShape cut_blocks() const;
  int64_t threads_across(int64_t col_panels) const;

  void keep_b(int64_t depth, int64_t blocks);
  void pack() const;
  // Pack panels i0 to i1 of A, or j0 to j1 of B, of one depth block.
  void pack_a(int64_t i0, int64_t i1, int64_t block, char* to) const;
  void pack_b(int64_t j0, int64_t j1, int64_t block, char* to) const;
  OwnPanels own_panels(int64_t cols) const;

  void multiply();
  void multiply_block(OwnPanels& own, int64_t i0, int64_t i1, int64_t j0, int64_t j1);
  void multiply_tiles(OwnPanels& own, int64_t i0, int64_t i1, int64_t j0, int64_t j1, char* c, int64_t c_stride,
                      bool first) const;
  void continue_sums(Epilogue& e) const;
  void finish(const char* sums, int64_t stride, int64_t row, int64_t rows, int64_t col, int64_t cols) const;

  Packing packing() const { return {s_, p_, panel_rows_, panel_cols_, unit_, a_row_stride_, a_k_stride_}; }
  int64_t depth_of(int64_t block) const { return std::min(block_depth_, span_.depth - block * block_depth_); }
  bool b_packed_first() const { return !b_in_place_ && !b_local_ && !b_by_block_ && !kept_b_; }
  int64_t own_a_bytes() const { return a_shared_ ? 0 : a_group_ * a_panel_bytes_; }

  const Scheme& s_;
  const Product& p_;
  const int threads_;
  GemmBlocks* blocks_of_c_;       // whom to tell of finished blocks, or null
  bool direct_c_;                 // whether tiles are summed in C itself
  bool a_in_place_, b_in_place_;  // whether an operand is used where it lies
  bool a_passes_;                 // whether A is read from end to end, each panel with all its depths
  bool b_local_;                  // whether each panel of B is packed by the thread that uses it, just before
  bool b_by_block_;               // the same for each block of panels
  bool whole_columns_;            // whether threads share columns; else they share rows of blocks of columns
  bool a_shared_ = false;         // whether all threads pack A before the blocks are handed out
  int64_t panel_rows_, panel_cols_, unit_;
  int64_t max_depth_, max_rows_, max_cols_;  // the largest span
  int64_t block_depth_ = 0, blocks_ = 0;     // the depth of a depth block, and how many the span has
  int64_t shared_stride_ = 0;                // the row stride of sums that several spans add to; 0 without them
  char* shared_sums_ = nullptr;
  int64_t b_panel_bytes_ = 0, a_panel_bytes_ = 0, a_block_step_ = 0, a_row_stride_ = 0, a_k_stride_ = 0;
  int64_t a_group_ = 1;  // the panels of A that a thread packs at once, just before it uses them
  char* shared_a_ = nullptr;
  std::optional<kept::Memory> kept_b_;  // the panels of a weight that compiled calls keep
  PanelsOfB b_{};
  Span span_{};
};

}  // namespace mica::cpu::gemm_impl
