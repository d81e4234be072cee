// copy: within a dtype as bytes, between dtypes through a conversion; fill.
#include <algorithm>
#include <cstring>

#include "backends/cpu/pointwise/convert.h"
#include "backends/cpu/pointwise/nest.h"
#include "backends/cpu/pointwise/packing.h"
#include "backends/cpu/pointwise/run_loop.h"
#include "backends/cpu/pointwise/short_floats.h"
#include "backends/cpu/pointwise/transpose.h"
#include "backends/cpu/register.h"
#include "core/scalar_bytes.h"
#include "mica/core/scalar.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

// ---- between dtypes ------------------------------------------------------------------------------------------------

bool is_short_float(DType t) { return t == DType::Float16 || t == DType::BFloat16; }

// 16-bit floats are converted from and to float only: another type is reached in two steps, a buffer at a time.
struct Steps {
  InnerLoop to_float, from_float;
  int64_t from_size, to_size;
};

void two_steps_loop(char* const* data, const int64_t* strides, int64_t n, const void* context) {
  const Steps& steps = *static_cast<const Steps*>(context);
  constexpr int64_t kChunk = 1024;
  alignas(64) float buffer[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    char* first[] = {reinterpret_cast<char*>(buffer), data[1] + (strides[1] ? i * steps.from_size : 0)};
    const int64_t first_strides[] = {4, strides[1]};
    steps.to_float(first, first_strides, count, nullptr);
    char* second[] = {data[0] + i * steps.to_size, reinterpret_cast<char*>(buffer)};
    const int64_t second_strides[] = {steps.to_size, 4};
    steps.from_float(second, second_strides, count, nullptr);
  }
}

InnerLoop loop_to_float(DType from) {
  if (from == DType::Float16) return half_to_float_loop;
  if (from == DType::BFloat16) return bfloat16_to_float_loop;
  return conversion_loop(DType::Float32, from);
}

InnerLoop loop_from_float(DType to) {
  if (to == DType::Float16) return float_to_half_loop;
  if (to == DType::BFloat16) return float_to_bfloat16_loop;
  return conversion_loop(to, DType::Float32);
}

void convert(const PointwiseLoop& loop, DType to, DType from) {
  if (to == DType::Float32) return run_dense(loop, loop_to_float(from));
  if (from == DType::Float32) return run_dense(loop, loop_from_float(to));
  if (!is_short_float(to) && !is_short_float(from)) return run_dense(loop, conversion_loop(to, from));
  const Steps steps{loop_to_float(from), loop_from_float(to), element_size(from), element_size(to)};
  run_dense(loop, two_steps_loop, &steps);
}

// ---- within a dtype ------------------------------------------------------------------------------------------------

// From this size on, a copy by many threads bypasses the caches, which saves reading the lines that it overwrites. A
// few threads wait for single lines rather than for the memory's bandwidth: 64 MB take 13.7 ms in this way and 11.8 ms
// through the caches.
constexpr size_t kStreamedCopyBytes = size_t{16} << 20;

void copy_flat(char* to, const char* from, int64_t bytes) {
  const bool stream = static_cast<size_t>(bytes) >= kStreamedCopyBytes && get_num_threads() > kFewThreads;
  const Source source = bytes >= kFarBytes ? Source::Far : Source::Cached;
  parallel_for(0, bytes, kMemoryGrain * 4, [&](int64_t begin, int64_t end) {
    const size_t count = static_cast<size_t>(end - begin);
    if (!stream) return copy_bytes(to + begin, from + begin, count, source);
    stream_bytes(to + begin, from + begin, count, source);
    stream_fence();
  });
}

// Two dimensions of a copy: the output is contiguous along `out`, the input along `in`.
struct Crossing {
  int out = -1, in = -1;
};

Crossing find_crossing(const PointwiseLoop& loop, int64_t size) {
  Crossing c;
  for (int d = 0; d < loop.ndim; ++d) {
    if (loop.strides[d][0] == size && loop.shape[d] > 1) c.out = d;
    if (loop.strides[d][1] == size && loop.shape[d] > 1) c.in = d;
  }
  return c;
}

// The number of elements from `to` to the end of its cache line, where rows are whole lines apart: vectors that begin
// there stay within one line each. Otherwise `all`.
int64_t line_end(const char* to, int64_t row_stride, int64_t size, int64_t all) {
  constexpr int64_t kLine = 64;
  const int64_t over = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine);
  return over == 0 || over % size != 0 || row_stride % kLine != 0 ? all : (kLine - over) / size;
}

// Many small matrices without gaps: what a matrix costs beside its elements would show.
bool copy_small_matrices(const PointwiseLoop& loop, int64_t size, Crossing c) {
  constexpr int64_t kMostElements = 256;
  const int64_t rows = loop.shape[c.out], columns = loop.shape[c.in];
  if (loop.ndim != 3 || rows * columns > kMostElements || loop.strides[c.out][1] != columns * size ||
      loop.strides[c.in][0] != rows * size)
    return false;
  const int outer = 3 - c.out - c.in;
  const int64_t to_step = loop.strides[outer][0], from_step = loop.strides[outer][1];
  parallel_for(0, loop.shape[outer], std::max<int64_t>(1, kMemoryGrain / (rows * columns)),
               [&](int64_t begin, int64_t end) {
                 transpose_many(size, loop.data[1] + begin * from_step, from_step, loop.data[0] + begin * to_step,
                                to_step, end - begin, rows, columns);
               });
  return true;
}

void copy_transposed(const PointwiseLoop& loop, int64_t size, Crossing c) {
  if (copy_small_matrices(loop, size, c)) return;
  // Bands of the output's rows, wide enough that a row of a tile is some cache lines in both.
  constexpr int64_t kBand = 64, kTile = 256;
  const int64_t rows = loop.shape[c.in], columns = loop.shape[c.out];
  const int64_t bands = (rows + kBand - 1) / kBand;
  const int64_t outer = loop.numel / (rows * columns);
  parallel_for(0, bands * outer, std::max<int64_t>(1, kMemoryGrain / (std::min(rows, kBand) * columns)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t b = begin; b < end; ++b) {
                   char *to = loop.data[0], *from = loop.data[1];
                   int64_t rest = b / bands;
                   for (int d = 0; d < loop.ndim; ++d) {
                     if (d == c.in || d == c.out) continue;
                     const int64_t i = rest % loop.shape[d];
                     rest /= loop.shape[d];
                     to += i * loop.strides[d][0];
                     from += i * loop.strides[d][1];
                   }
                   const int64_t row = (b % bands) * kBand, count = std::min(kBand, rows - row);
                   to += row * loop.strides[c.in][0];
                   from += row * size;
                   int64_t width = line_end(to, loop.strides[c.in][0], size, kTile);
                   for (int64_t column = 0; column < columns; column += width, width = kTile) {
                     transpose(size, from + column * loop.strides[c.out][1], loop.strides[c.out][1], to + column * size,
                               loop.strides[c.in][0], std::min(width, columns - column), count);
                   }
                 }
               });
}

void copy_row_loop(char* const* data, const int64_t* strides, int64_t n, const void* context) {
  copy_row(*static_cast<const int64_t*>(context), data[0], strides[0], data[1], strides[1], n);
}

void copy_within(const PointwiseLoop& loop) {
  const int64_t size = element_size(loop.dtypes[0]);
  if (loop.ndim == 1 && loop.strides[0][0] == size && loop.strides[0][1] == size)
    return copy_flat(loop.data[0], loop.data[1], loop.numel * size);
  const Crossing c = find_crossing(loop, size);
  if (c.out >= 0 && c.in >= 0 && c.out != c.in) return copy_transposed(loop, size, c);
  run_loop(loop, copy_row_loop, &size);
}

// A bool becomes 0 or 1 wherever it is copied to, whatever byte a view of other numbers has left.
void copy_bools(PointwiseLoop loop) {
  const InnerLoop to_bool = conversion_loop(DType::Bool, DType::UInt8);
  loop.dtypes[1] = DType::UInt8;
  if (const Crossing c = find_crossing(loop, 1); c.out >= 0 && c.in >= 0 && c.out != c.in) {
    copy_transposed(loop, 1, c);
    loop.data[1] = loop.data[0];
    for (int d = 0; d < loop.ndim; ++d) loop.strides[d][1] = loop.strides[d][0];
  }
  run_dense(loop, to_bool);
}

void copy_kernel(const PointwiseLoop& loop) {
  if (loop.dtypes[0] == DType::Bool && loop.dtypes[1] == DType::Bool) return copy_bools(loop);
  if (loop.dtypes[0] == loop.dtypes[1]) return copy_within(loop);
  convert(loop, loop.dtypes[0], loop.dtypes[1]);
}

// ---- fill ----------------------------------------------------------------------------------------------------------

template <class T>
void fill_loop(char* const* data, const int64_t*, int64_t n, const void* context) {
  std::fill_n(reinterpret_cast<T*>(data[0]), n, *static_cast<const T*>(context));
}

template <class T>
void fill_with(const PointwiseLoop& loop, const void* element) {
  const bool flat = loop.ndim == 1 && loop.strides[0][0] == sizeof(T);
  if (flat && loop.numel <= kMemoryGrain) return fill_loop<T>(loop.data, nullptr, loop.numel, element);
  PointwiseLoop output = loop;  // without the input, which is the output itself
  output.noperands = output.noutputs = 1;
  if (!flat) return run_dense(output, fill_loop<T>, element);
  // Two threads of a Cascade Lake fill 4 M doubles in 1.0 ms so, and in 2.1 ms by the loop below.
  if (run_fetched(output, fill_loop<T>, element, kMemoryGrain)) return;
  // A fill of 64 MB takes 9.4 ms on a Cascade Lake core past the caches, and 6.8 ms in this way.
  parallel_for(0, loop.numel, kMemoryGrain, [&](int64_t begin, int64_t end) {
    char* at[] = {loop.data[0] + begin * static_cast<int64_t>(sizeof(T))};
    fill_loop<T>(at, nullptr, end - begin, element);
  });
}

void fill_kernel(const PointwiseLoop& loop, Scalar value) {
  alignas(16) unsigned char element[16];
  write_scalar(value, loop.dtype, element);
  switch (element_size(loop.dtype)) {
    case 1:
      return fill_with<uint8_t>(loop, element);
    case 2:
      return fill_with<uint16_t>(loop, element);
    case 4:
      return fill_with<uint32_t>(loop, element);
    case 8:
      return fill_with<uint64_t>(loop, element);
    default:
      return fill_with<complex128>(loop, element);
  }
}

MICA_REGISTER_CPU(copy, copy_kernel);
MICA_REGISTER_CPU(fill, fill_kernel);

}  // namespace
}  // namespace mica::cpu
