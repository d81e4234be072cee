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

// x86 reads every line that an ordinary store is about to overwrite. Before Ice Lake it asks for such a line late, and
// few threads wait for it. There they ask for these lines ahead, with those of the inputs. On two threads of a Cascade
// Lake the negation of 2 and 4 M floats takes 0.51 and 1.26 ms in this way and 0.69 and 1.61 plainly. On an Emerald
// Rapids it gains nothing there and costs up to 7 % (2,000 x 2,000 outer products: 0.42 ms instead of 0.39).
// Where lines are not asked for, larger outputs are stored past the caches, which reads none of them: the sum of 16 M
// floats takes 3.3 to 5.3 ms instead of 7.3 on two threads of a Xeon, and 0.89 instead of 1.13 ms on sixteen. On the
// Cascade Lake that is slower than to ask: the magnitudes of 4 M doubles took 3.3 ms on two threads, with lines asked
// for 2.8, their clamp 3.8 and 3.1. Outputs that caches can hold may be wanted from there. Beside a function the lines
// are read in time: the powers of 4 M doubles took 3.3 ms, with lines asked for 3.7; 20 multiply-adds for each took
// 2.6 ms, past the caches 3.1. So they are beside the conversions of short floats: the squares of 4 M bfloat16 took
// 0.61 ms, with lines asked for 0.85.
#if defined(__x86_64__)
constexpr int64_t kStreamBytes = 16 << 20;
bool asks_late() {
  static const bool late = !__builtin_cpu_supports("avx512vbmi2");  // Ice Lake has them, and what came after it
  return late;
}
#else
constexpr int64_t kStreamBytes = std::numeric_limits<int64_t>::max();
bool asks_late() { return false; }
#endif
constexpr int64_t kFetchedBlock = 1024;
// Small enough for the processor to load the next block while this one is written. A sum of 2 M floats on a Cascade
// Lake core took 2.1 ms with 256 or 512 bytes, as without a buffer, 2.5 with 1 KB and 2.8 with 4 KB. A sum of 16 M
// floats there took 19.4 ms, and 16.6 ms with the next block of each input prefetched.
constexpr int64_t kStreamBuffer = 512;

// Asks for the lines of the next n elements behind the n at p, to read or to write them. (GCC takes a function of
// nothing but prefetches for one without effects, and leaves out its calls.)
template <bool kToWrite>
[[gnu::always_inline]] inline void fetch_next(const char* p, int64_t stride, int64_t n) {
  const int64_t step = std::max<int64_t>(64, stride);
  for (int64_t byte = n * stride; byte < 2 * n * stride; byte += step) __builtin_prefetch(p + byte, kToWrite);
}

// The same for each input of a block.
[[gnu::always_inline]] inline void fetch_next_inputs(const PointwiseLoop& loop, char* const* at, int64_t n) {
  for (int k = loop.noutputs; k < loop.noperands; ++k) fetch_next<false>(at[k], loop.strides[0][k], n);
}

void run_fetched(const PointwiseLoop& loop, RowsLoop rows, const void* context, int64_t grain) {
  const int64_t block = kFetchedBlock / element_size(loop.dtypes[0]);
  parallel_for(0, loop.numel, grain, [&](int64_t begin, int64_t end) {
    for_each_row(loop, begin, end, [&](char* const* row, int64_t width) {
      for (int64_t i = 0; i < width; i += block) {
        const int64_t n = std::min(block, width - i);
        char* at[kOperands] = {};
        for (int k = 0; k < loop.noperands; ++k) at[k] = row[k] + i * loop.strides[0][k];
        fetch_next<true>(at[0], loop.strides[0][0], n);
        fetch_next_inputs(loop, at, n);
        rows(at, loop.strides[0], n, loop.strides[0], 1, context);
      }
    });
  });
}

void run_past_caches(const PointwiseLoop& loop, RowsLoop rows, const void* context, int64_t grain) {
  const int64_t size = element_size(loop.dtypes[0]), block = kStreamBuffer / size;
  parallel_for(0, loop.numel, grain, [&](int64_t begin, int64_t end) {
    alignas(64) char buffer[kStreamBuffer];
    // The first block ends at a cache line, so that all others are whole lines.
    const int64_t off = static_cast<int64_t>(reinterpret_cast<uintptr_t>(loop.data[0] + begin * size) % 64) / size;
    int64_t n = std::min(block - off, end - begin);
    for (int64_t i = begin; i < end; i += n, n = std::min(block, end - i)) {
      char* at[kOperands] = {buffer};
      for (int k = 1; k < loop.noperands; ++k) at[k] = loop.data[k] + i * loop.strides[0][k];
      // The stores keep the processor from looking far ahead by itself.
      fetch_next_inputs(loop, at, n);
      rows(at, loop.strides[0], n, loop.strides[0], 1, context);
      stream_bytes(loop.data[0] + i * size, buffer, static_cast<size_t>(n * size));
    }
    stream_fence();
  });
}

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

// Whether a loop writes lines of a large output one after the other, which it has not read.
static bool writes_far(const PointwiseLoop& loop, int64_t grain) {
  const int64_t size = element_size(loop.dtypes[0]);
  if (loop.numel * size < kFarBytes || grain < kMemoryGrain || loop.noutputs != 1 || loop.strides[0][0] != size)
    return false;
  return std::none_of(loop.data + 1, loop.data + loop.noperands, [&](char* data) { return data == loop.data[0]; });
}

static bool fetches_lines(const PointwiseLoop& loop) {
  return asks_late() && get_num_threads() <= kFewThreads &&
         loop.shape[0] * element_size(loop.dtypes[0]) >= 4 * kFetchedBlock;
}

bool run_fetched(const PointwiseLoop& loop, InnerLoop inner, const void* context, int64_t grain) {
  if (!writes_far(loop, grain) || !fetches_lines(loop)) return false;
  const OneRow one_row{loop.noperands, inner, context};
  run_fetched(loop, one_row_at_a_time, &one_row, grain);
  return true;
}

bool run_far(const PointwiseLoop& loop, RowsLoop rows, const void* context, int64_t grain) {
  if (!writes_far(loop, grain)) return false;
  const bool converts = loop.dtypes[0] == DType::BFloat16 || loop.dtypes[0] == DType::Float16;
  if (!converts && fetches_lines(loop)) {
    run_fetched(loop, rows, context, grain);
  } else if (loop.numel * element_size(loop.dtypes[0]) >= kStreamBytes && loop.ndim == 1) {
    run_past_caches(loop, rows, context, grain);
  } else {
    return false;
  }
  return true;
}

void run_loop(const PointwiseLoop& loop, InnerLoop inner, const void* context, int64_t grain) {
  if (loop.ndim == 1 && loop.numel <= grain) return inner(loop.data, loop.strides[0], loop.numel, context);
  if (loop.numel > grain && wants_tiles(loop)) return run_tiles(loop, inner, context, grain);
  const OneRow one_row{loop.noperands, inner, context};
  if (run_far(loop, one_row_at_a_time, &one_row, grain)) return;
  parallel_for(0, loop.numel, grain, [&](int64_t begin, int64_t end) {
    for_each_row(loop, begin, end, [&](char* const* at, int64_t n) { inner(at, loop.strides[0], n, context); });
  });
}

}  // namespace mica::cpu
