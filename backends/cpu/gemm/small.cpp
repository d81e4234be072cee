// Products so small that packing, threads and work buffers would cost more than the arithmetic.
#include "backends/cpu/gemm/product.h"

#include <algorithm>

namespace mica::cpu::gemm_impl {
namespace {

constexpr int64_t kStackBytes = 16384;  // for each operand that is converted, and for sums that are not C itself
constexpr int64_t kInPlaceWork = 80 * 80 * 80;
constexpr int64_t kConvertedWork = 32 * 32 * 32;
constexpr int64_t kFormattedWork = 12 * 12 * 12;  // with more multiply-adds a kernel with a panel format is faster

bool b_in_place(const Scheme& s, const Product& p) { return s.sums_are_elements && p.b.col_stride == 1; }
bool c_in_place(const Scheme& s, const Product& p) { return s.sums_are_elements && p.c_col_stride == 1; }

}  // namespace

bool fits_small(const Scheme& s, const Product& p) {
  const int64_t limit = s.sums_are_elements ? kInPlaceWork : s.format ? kFormattedWork : kConvertedWork;
  // Each extent alone is bounded by the limit, so that the products below cannot overflow.
  if (p.m > limit || p.n > limit || p.k > limit || p.m * p.n > limit || p.m * p.n * p.k > limit) return false;
  const int64_t bytes = s.parts * s.sum_size;
  return (s.sums_are_elements || p.m * p.k * bytes <= kStackBytes) &&
         (b_in_place(s, p) || p.k * p.n * bytes <= kStackBytes) &&
         (c_in_place(s, p) || p.m * p.n * bytes * s.parts <= kStackBytes);
}

void run_small(const Scheme& s, const Product& p) {
  alignas(64) char a_copy[kStackBytes];
  alignas(64) char b_copy[kStackBytes];
  alignas(64) char sums[kStackBytes];
  const int parts = s.parts;
  const bool direct_c = c_in_place(s, p);
  MicroTile t;
  t.k = p.k;
  const char* a = static_cast<const char*>(p.a.data);
  t.a_row_stride = p.a.row_stride;
  t.a_k_stride = p.a.col_stride;
  if (!s.sums_are_elements) {
    for (int part = 0; part < parts; ++part) {
      s.copy_part(a + part * (s.element_size / parts), a_copy + part * p.k * s.sum_size,
                  {p.m, p.k, parts * p.a.row_stride, parts * p.a.col_stride, parts * p.k, 1});
    }
    a = a_copy;
    t.a_row_stride = p.k;
    t.a_k_stride = 1;
  }
  const char* b = static_cast<const char*>(p.b.data);
  t.b_k_stride = p.b.row_stride;
  if (!b_in_place(s, p)) {
    s.copy(b, b_copy, {p.k, p.n, p.b.row_stride, p.b.col_stride, p.n, 1});
    b = b_copy;
    t.b_k_stride = p.n * parts;
  }
  char* c = direct_c ? p.c : sums;
  t.c_row_stride = direct_c ? p.c_row_stride : p.n * parts;
  t.store = !direct_c || p.plain ? Store::Overwrite : Store::General;

  const int64_t m = p.m * parts, n = p.n * parts, size = s.sum_size;
  const int64_t most_rows = t.a_k_stride == 1 ? s.strided_kernel.in_place_rows : s.strided_kernel.rows;
  const int64_t panels = (m + most_rows - 1) / most_rows;
  const int64_t panel_rows = (m + panels - 1) / panels;
  Epilogue epilogue;
  if (t.store == Store::General) epilogue = p.epilogue;
  t.epilogue = &epilogue;
  for (int64_t j = 0; j < n; j += s.strided_kernel.cols) {
    t.cols = static_cast<int>(std::min<int64_t>(s.strided_kernel.cols, n - j));
    t.b = t.next_b = b + j * size;
    if (t.store == Store::General) epilogue = p.epilogue_at(s, j);
    for (int64_t i = 0; i < m; i += panel_rows) {
      t.rows = static_cast<int>(std::min(panel_rows, m - i));
      t.a = a + i * t.a_row_stride * size;
      t.c = c + (i * t.c_row_stride + j) * size;
      s.strided_kernel.run(t);
    }
  }
  if (!direct_c) s.finish(sums, p.c, {p.m, p.n, n, p.c_row_stride, p.c_col_stride}, p.epilogue);
}

}  // namespace mica::cpu::gemm_impl
