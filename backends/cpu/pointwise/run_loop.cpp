#include "backends/cpu/pointwise/run_loop.h"

#include <algorithm>
#include <limits>

#include "backends/cpu/pointwise/nest.h"
#include "backends/cpu/pointwise/transpose.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

// An operand that is contiguous along dimension 1 but not along dimension 0 (a transposed matrix) costs one cache line
// per element when it is read by rows. In tiles, every fetched line is used.
bool wants_tiles(const PointwiseLoop& loop) {
  if (loop.ndim < 2 || loop.shape[0] < 32 || loop.shape[1] < 8) return false;
  for (int k = 0; k < loop.noperands; ++k) {
    const int64_t s0 = std::abs(loop.strides[0][k]), s1 = std::abs(loop.strides[1][k]);
    if (s0 >= 64 && s1 != 0 && s1 < 64) return true;
  }
  return false;
}

void run_tiles(const PointwiseLoop& loop, InnerLoop inner, const void* context, int64_t grain) {
  constexpr int64_t kRows = 32, kColumns = 128;
  const int n = loop.noperands;
  const int64_t bands = (loop.shape[1] + kRows - 1) / kRows;
  int64_t outer = 1;
  for (int d = 2; d < loop.ndim; ++d) outer *= loop.shape[d];
  const int64_t band_cost = kRows * loop.shape[0];
  parallel_for(0, bands * outer, std::max<int64_t>(1, grain / band_cost), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      char* base[kOperands];
      for (int k = 0; k < n; ++k) base[k] = loop.data[k];
      int64_t rest = b / bands;
      for (int d = 2; d < loop.ndim; ++d) {
        const int64_t i = rest % loop.shape[d];
        rest /= loop.shape[d];
        for (int k = 0; k < n; ++k) base[k] += i * loop.strides[d][k];
      }
      const int64_t row0 = (b % bands) * kRows, row1 = std::min(row0 + kRows, loop.shape[1]);
      for (int64_t c = 0; c < loop.shape[0]; c += kColumns) {
        const int64_t count = std::min(kColumns, loop.shape[0] - c);
        for (int64_t r = row0; r < row1; ++r) {
          char* at[kOperands];
          for (int k = 0; k < n; ++k) at[k] = base[k] + c * loop.strides[0][k] + r * loop.strides[1][k];
          inner(at, loop.strides[0], count, context);
        }
      }
    }
  });
}

// x86 reads every line that an ordinary store is about to overwrite. Without that, a sum of 16 M floats takes 3.3 to
// 5.3 ms instead of 7.3 on two threads of a Xeon, and 0.89 instead of 1.13 ms on sixteen. Smaller outputs may be wanted
// from the caches. Beside a function the lines are read in time: 20 multiply-adds for each of 4 M doubles took 2.6 ms,
// streamed 3.1.
#if defined(__x86_64__)
constexpr int64_t kStreamBytes = 16 << 20;
#else
constexpr int64_t kStreamBytes = std::numeric_limits<int64_t>::max();
#endif
// Small enough for the processor to load the next block while this one is written. A sum of 2 M floats on a Cascade
// Lake core took 2.1 ms with 256 or 512 bytes, as without a buffer, 2.5 with 1 KB and 2.8 with 4 KB. A sum of 16 M
// floats there took 19.4 ms, and 16.6 ms with the next block of each input prefetched.
constexpr int64_t kStreamBuffer = 512;

}  // namespace

void one_row_at_a_time(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides, int64_t rows,
                       const void* one_row) {
  const auto [operands, inner, context] = *static_cast<const OneRow*>(one_row);
  inner(data, strides, n, context);
  for (int64_t r = 1; r < rows; ++r) {
    char* at[kOperands];
    for (int k = 0; k < operands; ++k) at[k] = data[k] + r * row_strides[k];
    inner(at, strides, n, context);
  }
}

bool run_streamed(const PointwiseLoop& loop, RowsLoop rows, const void* context, int64_t grain) {
  const int64_t size = element_size(loop.dtypes[0]), block = kStreamBuffer / size;
  if (loop.numel < kStreamBytes / size || grain < kMemoryGrain || loop.noutputs != 1 || loop.ndim != 1 ||
      loop.strides[0][0] != size)
    return false;
  // In place, the line has been read in any case.
  for (int k = 1; k < loop.noperands; ++k)
    if (loop.data[k] == loop.data[0]) return false;
  parallel_for(0, loop.numel, grain, [&](int64_t begin, int64_t end) {
    alignas(64) char buffer[kStreamBuffer];
    // The first block ends at a cache line, so that all others are whole lines.
    const int64_t off = static_cast<int64_t>(reinterpret_cast<uintptr_t>(loop.data[0] + begin * size) % 64) / size;
    int64_t n = std::min(block - off, end - begin);
    for (int64_t i = begin; i < end; i += n, n = std::min(block, end - i)) {
      char* at[kOperands] = {buffer};
      for (int k = 1; k < loop.noperands; ++k) {
        const int64_t stride = loop.strides[0][k];
        at[k] = loop.data[k] + i * stride;
        // Prefetches the next block: the stores keep the processor from looking far ahead by itself.
        for (int64_t byte = n * stride; byte < 2 * n * stride; byte += 64) __builtin_prefetch(at[k] + byte);
      }
      rows(at, loop.strides[0], n, loop.strides[0], 1, context);
      stream_bytes(loop.data[0] + i * size, buffer, static_cast<size_t>(n * size));
    }
    stream_fence();
  });
  return true;
}

void run_loop(const PointwiseLoop& loop, InnerLoop inner, const void* context, int64_t grain) {
  if (loop.ndim == 1 && loop.numel <= grain) return inner(loop.data, loop.strides[0], loop.numel, context);
  if (loop.numel > grain && wants_tiles(loop)) return run_tiles(loop, inner, context, grain);
  const OneRow one_row{loop.noperands, inner, context};
  if (run_streamed(loop, one_row_at_a_time, &one_row, grain)) return;
  parallel_for(0, loop.numel, grain, [&](int64_t begin, int64_t end) {
    for_each_row(loop, begin, end, [&](char* const* at, int64_t n) { inner(at, loop.strides[0], n, context); });
  });
}

}  // namespace mica::cpu
