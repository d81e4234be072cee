// Products with extreme shapes: a deep one is cut along its depth, one of depth 1 is written row by row.
#include <algorithm>
#include <cstring>

#include "backends/cpu/gemm/product.h"
#include "backends/cpu/gemm/workspace.h"
#include "mica/parallel.h"

namespace mica::cpu::gemm_impl {
namespace {

constexpr int64_t kSliceDepth = 256;   // the least depth of a slice
constexpr int64_t kDeepTiles = 8;      // the most tiles of sums for each thread
constexpr int64_t kOuterRows = 16384;  // elements of C that are worth a thread of their own

template <class T>
void add_slices_of(char* sums, int64_t count, int slices) {
  T* total = reinterpret_cast<T*>(sums);
  for (int slice = 1; slice < slices; ++slice) {
    const T* part = total + slice * count;
    for (int64_t i = 0; i < count; ++i) total[i] += part[i];
  }
}

}  // namespace

void add_slices(const Scheme& s, char* sums, int64_t count, int slices) {
  const bool wide = s.sum_size == 8;
  if (is_integral(s.dtype)) {
    return wide ? add_slices_of<uint64_t>(sums, count, slices) : add_slices_of<uint32_t>(sums, count, slices);
  }
  return wide ? add_slices_of<double>(sums, count, slices) : add_slices_of<float>(sums, count, slices);
}

bool run_deep(const Scheme& s, const Product& p, int threads) {
  const int64_t rows = s.strided_kernel.rows, cols = s.strided_kernel.cols;
  const int64_t tiles = (p.m + rows - 1) / rows * ((p.n + cols - 1) / cols);
  const int slices = static_cast<int>(std::min<int64_t>(threads, p.k / kSliceDepth));
  if (!s.sums_are_elements || slices < 2 || tiles > kDeepTiles) return false;
  const int64_t count = p.m * p.n;
  const WorkBuffer sums(Slot::Sums, static_cast<size_t>(slices * count * s.sum_size));
  parallel_for(0, slices, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slice = begin; slice < end; ++slice) {
      const int64_t first = p.k * slice / slices;
      Product part = p;
      part.k = p.k * (slice + 1) / slices - first;
      part.a.data = p.a_at(s, 0, first);
      part.b.data = p.b_at(s, first, 0);
      part.c = sums.data() + slice * count * s.sum_size;
      part.c_row_stride = p.n;
      part.c_col_stride = 1;
      part.epilogue.reads_c = false;
      part.epilogue.bias = nullptr;
      std::memcpy(part.epilogue.alpha, p.one, sizeof(p.one));
      part.unit_alpha = part.plain = true;
      part.blocks = nullptr;
      run_packed(s, part, 1);
    }
  });
  add_slices(s, sums.data(), count, slices);
  s.finish(sums.data(), p.c, {p.m, p.n, p.n, p.c_row_stride, p.c_col_stride}, p.epilogue);
  return true;
}

bool run_outer(const Scheme& s, const Product& p, int threads) {
  if (p.k != 1 || !s.sums_are_elements || !p.unit_alpha || p.c_col_stride != 1) return false;
  const bool dense = p.b.col_stride == 1;
  const WorkBuffer copied(Slot::Panels, dense ? 0 : static_cast<size_t>(p.n * s.sum_size));
  if (!dense) s.copy(p.b.data, copied.data(), {1, p.n, p.n, p.b.col_stride, p.n, 1});
  const void* row_of_b = dense ? p.b.data : copied.data();
  const int64_t grain = threads == 1 ? p.m : (kOuterRows + p.n - 1) / p.n;
  parallel_for(0, p.m, grain, [&](int64_t begin, int64_t end) {
    Epilogue row = p.epilogue;
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(row.alpha, p.a_at(s, i, 0), static_cast<size_t>(s.sum_size));
      s.finish(row_of_b, p.c_at(s, i, 0), {1, p.n, p.n, p.c_row_stride, 1}, row);
    }
  });
  return true;
}

}  // namespace mica::cpu::gemm_impl
