// Copies of A and B into panels that suit the micro-kernel.
#pragma once

#include <algorithm>
#include <cstring>

#include "backends/cpu/gemm/product.h"

namespace mica::cpu::gemm_impl {

constexpr int64_t kPanelsAtOnce = 8;  // rows are copied to so many panels at once: more share sets of the first cache
constexpr int64_t kPackDepth = 8;     // so many depths are taken at a time where they lie far apart
constexpr int64_t kRowsAhead = 4;     // so many rows are fetched while one is copied, since rows are far apart

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }
// The least equal part when `total` is cut in parts of at most `limit`.
inline int64_t equal_part(int64_t total, int64_t limit) { return divide_up(total, divide_up(total, limit)); }

// Rows of adjacent elements that go to panels side by side, `width` bytes of each row to a panel. A row is read from
// end to end. Steps are in bytes.
struct RowsToPanels {
  int64_t rows, panels;
  int64_t src_row_step, dst_row_step, panel_step;

  template <int64_t kWidth>
  void copy_of(const char* src, char* dst) const {
    for (int64_t i = 0; i < rows; ++i, src += src_row_step, dst += dst_row_step) {
      if (i + kRowsAhead < rows) {
        const char* ahead = src + kRowsAhead * src_row_step;
        for (int64_t at = 0; at < panels * kWidth; at += 64) __builtin_prefetch(ahead + at);
      }
      for (int64_t p = 0; p < panels; ++p) std::memcpy(dst + p * panel_step, src + p * kWidth, kWidth);
    }
  }

  static bool takes(int64_t width) {
    return width == 32 || width == 48 || width == 52 || width == 56 || width == 64 || width == 128;
  }
  void copy(const char* src, char* dst, int64_t width) const {
    if (width == 32) return copy_of<32>(src, dst);
    if (width == 48) return copy_of<48>(src, dst);
    if (width == 52) return copy_of<52>(src, dst);
    if (width == 56) return copy_of<56>(src, dst);
    if (width == 64) return copy_of<64>(src, dst);
    copy_of<128>(src, dst);
  }
};

// Copies into panels. Rows and columns are those of the product, `to` is where the first panel begins, and the next one
// begins `step` bytes further.
struct Packing {
  const Scheme& s;
  const Product& p;
  int64_t panel_rows, panel_cols, unit;
  int64_t a_row_stride, a_k_stride;  // within a panel

  // Whether elements are copied as they are, into panels of whole vectors.
  bool rows_to_panels(int64_t stride, int64_t width) const {
    return s.sums_are_elements && !s.format && stride == 1 && RowsToPanels::takes(width);
  }

  void pack_a(int64_t row, int64_t end, int64_t k, int64_t depth, char* to, int64_t step) const {
    const int64_t width = panel_rows * s.element_size;
    if (rows_to_panels(p.a.row_stride, width) && a_row_stride == 1) {
      const int64_t whole = (end - row) / panel_rows;
      RowsToPanels{depth, whole, p.a.col_stride * s.element_size, a_k_stride * s.packed_size, step}.copy(
          p.a_at(s, row, k), to, width);
      row += whole * panel_rows;
      to += whole * step;
    }
    for (; row < end; row += panel_rows, to += step) pack_a_panel(row, std::min(panel_rows, end - row), k, depth, to);
  }

  void pack_b(int64_t col, int64_t end, int64_t k, int64_t depth, char* to, int64_t step) const {
    const int64_t width = panel_cols * s.element_size;
    if (rows_to_panels(p.b.col_stride, width)) {
      while (end - col >= panel_cols) {
        const int64_t panels = std::min(kPanelsAtOnce, (end - col) / panel_cols);
        RowsToPanels{depth, panels, p.b.row_stride * s.element_size, width, step}.copy(p.b_at(s, k, col), to, width);
        col += panels * panel_cols;
        to += panels * step;
      }
    }
    // Where depths lie far apart, few of them are copied to all panels at a time, so that each page is visited once.
    const int64_t part = p.b.row_stride == 1 ? depth : round_up(kPackDepth, unit);
    for (int64_t done = 0; done < depth; done += part) {
      char* panel = to + done * s.kernel.cols * s.packed_size;
      for (int64_t j = col; j < end; j += panel_cols, panel += step)
        pack_b_panel(j, std::min(panel_cols, end - j), k + done, std::min(part, depth - done), panel);
    }
  }

 private:
  void pack_a_panel(int64_t row, int64_t rows, int64_t k, int64_t depth, char* panel) const {
    const char* src = p.a_at(s, row, k);
    if (s.format) return s.format->pack_a(src, p.a.row_stride, p.a.col_stride, rows, depth, panel);
    const int parts = s.parts;
    for (int part = 0; part < parts; ++part) {
      s.copy_part(src + part * (s.element_size / parts), panel + part * a_row_stride * s.packed_size,
                  {rows, depth, parts * p.a.row_stride, parts * p.a.col_stride, parts * a_row_stride, a_k_stride});
    }
  }

  void pack_b_panel(int64_t col, int64_t cols, int64_t k, int64_t depth, char* panel) const {
    const char* src = p.b_at(s, k, col);
    if (s.format) return s.format->pack_b(src, p.b.row_stride, p.b.col_stride, depth, cols, panel);
    if (cols < panel_cols) std::memset(panel, 0, static_cast<size_t>(s.kernel.cols * depth * s.packed_size));
    s.copy(src, panel, {depth, cols, p.b.row_stride, p.b.col_stride, panel_cols, 1});
  }
};

}  // namespace mica::cpu::gemm_impl
