// run_dense: makes operands dense for an inner loop, in one of several ways.
#include <cstring>
#include <limits>
#include <memory>

#include "backends/cpu/pointwise/nest.h"
#include "backends/cpu/pointwise/packing.h"
#include "backends/cpu/pointwise/run_loop.h"
#include "backends/cpu/pointwise/transpose.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kBufferBytes = 8192;  // per operand: a handful of them fit the first-level cache
constexpr int64_t kTileBytes = 16384;
constexpr int64_t kBlockBytes = 512, kNearBlockBytes = 2048;
// Gathered inputs of which a thread reads up to this size are expected in its second cache. A Neoverse-N1 prefetches
// along strides by itself: there a prefetch only took time, 200 us instead of 155 us for the sum of 100,000 doubles
// that lie 16 bytes apart.
#if defined(__aarch64__)
constexpr int64_t kNearBytes = std::numeric_limits<int64_t>::max();
#else
constexpr int64_t kNearBytes = 1 << 20;
#endif
constexpr int64_t kShortRow = 32;  // a shorter row is not worth a tile or a block
// Shorter rows are not worth a round of the loop over rows, or a call of an inner loop that takes one row.
constexpr int64_t kLeastRow = 4, kLeastCall = 16;
constexpr int64_t kSharedRow = 1 << 16;

struct Task {
  const PointwiseLoop& loop;
  RowsLoop rows;
  const void* context;
  int64_t grain;
  int64_t least_row;
  int64_t size[kOperands] = {};  // bytes of an element

  bool is_input(int k) const { return k >= loop.noutputs; }
  bool dense_stride(int k, int64_t stride) const { return stride == size[k] || (stride == 0 && is_input(k)); }
  int64_t largest() const { return *std::max_element(size, size + loop.noperands); }
  void run_row(char* const* data, const int64_t* strides, int64_t n) const {
    rows(data, strides, n, strides, 1, context);
  }
};

bool rows_are_dense(const Task& t) {
  for (int k = 0; k < t.loop.noperands; ++k)
    if (!t.dense_stride(k, t.loop.strides[0][k])) return false;
  return true;
}

// ---- one dense row -------------------------------------------------------------------------------------------------

void run_flat(const Task& t) {
  const int64_t* strides = t.loop.strides[0];
  parallel_for(0, t.loop.numel, t.grain, [&](int64_t begin, int64_t end) {
    char* at[kOperands];
    for (int k = 0; k < t.loop.noperands; ++k) at[k] = t.loop.data[k] + begin * strides[k];
    t.run_row(at, strides, end - begin);
  });
}

// ---- tiles ---------------------------------------------------------------------------------------------------------

// A dimension other than 0 along which some operand is contiguous while its rows are far apart; 0 if there is none.
int crosswise_dimension(const Task& t) {
  for (int k = 0; k < t.loop.noperands; ++k) {
    if (t.dense_stride(k, t.loop.strides[0][k])) continue;
    for (int d = 1; d < t.loop.ndim; ++d)
      if (t.loop.strides[d][k] == t.size[k] && t.loop.shape[d] > 1) return d;
  }
  return 0;
}

PointwiseLoop with_second_dimension(const PointwiseLoop& loop, int d) {
  PointwiseLoop swapped = loop;
  if (d > 1) {
    std::swap(swapped.shape[1], swapped.shape[d]);
    std::swap(swapped.strides[1], swapped.strides[d]);
  }
  return swapped;
}

struct TileShape {
  int64_t rows, columns;
};

TileShape tile_shape(const Task& t) {
  // As many rows as a crosswise operand has elements in a cache line.
  const int64_t elements = kTileBytes / t.largest();
  const int64_t rows = std::min(t.loop.shape[1], std::max<int64_t>(64 / t.largest(), 8));
  return {rows, std::min(t.loop.shape[0], std::max<int64_t>(elements / rows, 16))};
}

// Runs the rows of one rectangle. Operands that are not dense along dimension 0 go through a buffer that holds the
// tile's rows.
void run_tile(const Task& t, char* const* corner, TileShape tile, char* const* buffers) {
  const PointwiseLoop& loop = t.loop;
  char* base[kOperands];
  int64_t row_stride[kOperands], strides[kOperands];
  for (int k = 0; k < loop.noperands; ++k) {
    base[k] = corner[k];
    row_stride[k] = loop.strides[1][k];
    strides[k] = loop.strides[0][k];
    if (t.dense_stride(k, strides[k])) continue;
    base[k] = buffers[k];
    row_stride[k] = tile.columns * t.size[k];
    strides[k] = t.size[k];
    if (t.is_input(k))
      copy_rectangle(t.size[k], base[k], row_stride[k], t.size[k], corner[k], loop.strides[1][k], loop.strides[0][k],
                     tile.rows, tile.columns);
  }
  t.rows(base, strides, tile.columns, row_stride, tile.rows, t.context);
  for (int k = 0; k < loop.noutputs; ++k)
    if (base[k] != corner[k])
      copy_rectangle(t.size[k], corner[k], loop.strides[1][k], loop.strides[0][k], base[k], row_stride[k], t.size[k],
                     tile.rows, tile.columns);
}

void run_tiles(const Task& t) {
  const PointwiseLoop& loop = t.loop;
  const TileShape tile = tile_shape(t);
  const int64_t bands = (loop.shape[1] + tile.rows - 1) / tile.rows;
  const int64_t outer = loop.numel / (loop.shape[0] * loop.shape[1]);
  parallel_for(
      0, bands * outer, std::max<int64_t>(1, t.grain / (tile.rows * loop.shape[0])), [&](int64_t begin, int64_t end) {
        alignas(64) char storage[kOperands][kTileBytes];
        char* buffers[kOperands];
        for (int k = 0; k < kOperands; ++k) buffers[k] = storage[k];
        for (int64_t b = begin; b < end; ++b) {
          const int64_t row = (b % bands) * tile.rows;
          char* base[kOperands];
          for (int k = 0; k < loop.noperands; ++k) base[k] = loop.data[k] + row * loop.strides[1][k];
          int64_t rest = b / bands;
          for (int d = 2; d < loop.ndim; ++d) {
            const int64_t i = rest % loop.shape[d];
            rest /= loop.shape[d];
            for (int k = 0; k < loop.noperands; ++k) base[k] += i * loop.strides[d][k];
          }
          for (int64_t c = 0; c < loop.shape[0]; c += tile.columns) {
            char* corner[kOperands];
            for (int k = 0; k < loop.noperands; ++k) corner[k] = base[k] + c * loop.strides[0][k];
            run_tile(t, corner, {std::min(tile.rows, loop.shape[1] - row), std::min(tile.columns, loop.shape[0] - c)},
                     buffers);
          }
        }
      });
}

// ---- chunks --------------------------------------------------------------------------------------------------------

// Whether an operand is contiguous in the order of the whole nest.
bool is_linear(const Task& t, int k) {
  int64_t expected = t.size[k];
  for (int d = 0; d < t.loop.ndim; ++d) {
    if (t.loop.strides[d][k] != expected) return false;
    expected *= t.loop.shape[d];
  }
  return true;
}

void run_chunks(const Task& t) {
  const PointwiseLoop& loop = t.loop;
  enum class Access { Linear, Constant, Packed } access[kOperands];
  for (int k = 0; k < loop.noperands; ++k)
    access[k] = is_linear(t, k)                         ? Access::Linear
                : t.is_input(k) && is_constant(loop, k) ? Access::Constant
                                                        : Access::Packed;
  const int64_t chunk = kBufferBytes / t.largest();
  parallel_for(0, loop.numel, t.grain, [&](int64_t begin, int64_t end) {
    alignas(64) char storage[kOperands][kBufferBytes];
    int64_t strides[kOperands];
    for (int k = 0; k < loop.noperands; ++k) strides[k] = access[k] == Access::Constant ? 0 : t.size[k];
    for (int64_t from = begin; from < end; from += chunk) {
      const int64_t n = std::min(chunk, end - from);
      char* at[kOperands];
      for (int k = 0; k < loop.noperands; ++k) {
        at[k] = access[k] == Access::Packed ? storage[k] : loop.data[k] + from * strides[k];
        if (access[k] == Access::Packed && t.is_input(k)) gather(loop, k, from, n, at[k]);
      }
      t.run_row(at, strides, n);
      for (int k = 0; k < loop.noutputs; ++k)
        if (access[k] == Access::Packed) scatter(loop, k, from, n, at[k]);
    }
  });
}

// ---- blocks --------------------------------------------------------------------------------------------------------

// Whether rows are long and only inputs are not dense along them.
bool wants_blocks(const Task& t) {
  for (int k = 0; k < t.loop.noutputs; ++k)
    if (!t.dense_stride(k, t.loop.strides[0][k])) return false;
  return t.loop.shape[0] * t.largest() >= 4 * kBlockBytes;
}

// The first operand that has the same elements as operand k, or k itself.
int first_alike(const PointwiseLoop& loop, int k) {
  for (int other = loop.noutputs; other < k; ++other) {
    bool alike = loop.data[other] == loop.data[k] && loop.dtypes[other] == loop.dtypes[k];
    for (int d = 0; d < loop.ndim; ++d) alike = alike && loop.strides[d][other] == loop.strides[d][k];
    if (alike) return other;
  }
  return k;
}

// Gathers inputs a few cache lines at a time: few enough for the processor to load the next ones while it computes with
// these. Inputs that are not in the caches are prefetched one block ahead; inputs that are get larger blocks.
void run_blocks(const Task& t) {
  const PointwiseLoop& loop = t.loop;
  GatherFunction gathers[kOperands] = {};
  int64_t strides[kOperands], gathered = 0;
  int source[kOperands];
  for (int k = 0; k < loop.noperands; ++k) {
    strides[k] = loop.strides[0][k];
    source[k] = first_alike(loop, k);
    if (t.dense_stride(k, strides[k])) continue;
    gathered += loop.numel * std::min<int64_t>(std::abs(strides[k]), 64);
    gathers[k] = gather_function(t.size[k]);
    strides[k] = t.size[k];
  }
  const bool far = gathered / get_num_threads() >= kNearBytes;
  const int64_t block = (far ? kBlockBytes : kNearBlockBytes) / t.largest();
  parallel_for(0, loop.numel, t.grain, [&](int64_t begin, int64_t end) {
    // A cache line more than a block, so that every buffer begins with one.
    alignas(64) char storage[kOperands][kNearBlockBytes + 64];
    for_each_row(loop, begin, end, [&](char* const* row, int64_t width) {
      for (int64_t i = 0; i < width; i += block) {
        const int64_t n = std::min(block, width - i);
        char* at[kOperands];
        for (int k = 0; k < loop.noperands; ++k) {
          const int64_t stride = loop.strides[0][k];
          at[k] = row[k] + i * stride;
          if (!gathers[k]) continue;
          if (source[k] != k) {
            at[k] = at[source[k]];
            continue;
          }
          if (far)
            for (int64_t byte = n * stride; byte < 2 * n * stride; byte += 64) __builtin_prefetch(at[k] + byte);
          // Gathers one more than needed, where there is one, so that the last vector is whole.
          gathers[k](at[k], stride, n + (i + n < width), storage[k]);
          at[k] = storage[k];
        }
        t.run_row(at, strides, n);
      }
    });
  });
}

// Whether an input is one row, not dense in memory, that serves many rows.
bool is_shared_row(const Task& t, int k) {
  if (!t.is_input(k) || t.dense_stride(k, t.loop.strides[0][k])) return false;
  for (int d = 1; d < t.loop.ndim; ++d)
    if (t.loop.strides[d][k] != 0) return false;
  return t.loop.ndim > 1 && t.loop.shape[0] >= kShortRow && t.loop.shape[0] <= kSharedRow;
}

void run_nested(const Task& t) {
  const PointwiseLoop& loop = t.loop;
  for (int k = 0; k < loop.noperands; ++k) {
    if (!is_shared_row(t, k)) continue;
    const std::unique_ptr<char[]> row(new char[static_cast<size_t>(loop.shape[0] * t.size[k])]);
    copy_row(t.size[k], row.get(), t.size[k], loop.data[k], loop.strides[0][k], loop.shape[0]);
    PointwiseLoop dense = loop;
    dense.data[k] = row.get();
    dense.strides[0][k] = t.size[k];
    Task with_dense{dense, t.rows, t.context, t.grain, t.least_row};
    std::copy(t.size, t.size + kOperands, with_dense.size);
    return run_nested(with_dense);
  }
  if (loop.shape[0] >= t.least_row && rows_are_dense(t)) {
    if (run_far(loop, t.rows, t.context, t.grain)) return;
    parallel_for(0, loop.numel, t.grain, [&](int64_t begin, int64_t end) {
      for_each_band(loop, begin, end, [&](char* const* at, int64_t n, int64_t rows) {
        t.rows(at, loop.strides[0], n, loop.strides[1], rows, t.context);
      });
    });
    return;
  }
  if (loop.shape[0] >= kShortRow) {
    if (const int d = crosswise_dimension(t)) {
      const PointwiseLoop swapped = with_second_dimension(loop, d);
      Task tiled{swapped, t.rows, t.context, t.grain, t.least_row};
      std::copy(t.size, t.size + kOperands, tiled.size);
      return run_tiles(tiled);
    }
    if (wants_blocks(t)) return run_blocks(t);
  }
  run_chunks(t);
}

// A row of at least `least_row` elements is not copied together with others.
void run(const PointwiseLoop& loop, RowsLoop rows, const void* context, int64_t grain, int64_t least_row) {
  Task t{loop, rows, context, grain, least_row};
  bool dense = loop.ndim == 1;
  for (int k = 0; k < loop.noperands; ++k) {
    t.size[k] = element_size(loop.dtypes[k]);
    dense &= t.dense_stride(k, loop.strides[0][k]);
  }
  if (!dense) return run_nested(t);
  if (loop.numel > grain) return run_far(loop, rows, context, grain) ? void() : run_flat(t);
  t.run_row(loop.data, loop.strides[0], loop.numel);
}

}  // namespace

bool is_constant(const PointwiseLoop& loop, int operand) {
  for (int d = 0; d < loop.ndim; ++d)
    if (loop.strides[d][operand] != 0 && loop.shape[d] != 1) return false;
  return true;
}

void run_dense(const PointwiseLoop& loop, RowsLoop rows, const void* context, int64_t grain) {
  run(loop, rows, context, grain, kLeastRow);
}

void run_dense(const PointwiseLoop& loop, InnerLoop inner, const void* context, int64_t grain) {
  const OneRow one_row{loop.noperands, inner, context};
  run(loop, one_row_at_a_time, &one_row, grain, kLeastCall);
}

}  // namespace mica::cpu
