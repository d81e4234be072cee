#include "backends/cpu/scan/run_scan.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "backends/cpu/pointwise/packing.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int kMaxDims = 64;
constexpr int kMaxOutputs = 2;
constexpr int64_t kGrain = 16384;  // elements that are worth a thread

struct Dim {
  int64_t size, in, out[kMaxOutputs];  // strides in bytes
};

struct Position {
  const char* in;
  char* out[kMaxOutputs];

  void move(const Dim& d, int64_t steps, int outputs) {
    in += steps * d.in;
    for (int k = 0; k < outputs; ++k) out[k] += steps * d.out[k];
  }
};

// The number of columns, in whole cache lines, for which a buffer of scanned rows fits the second cache.
int64_t turned_columns(int64_t rows, int64_t element) {
  constexpr int64_t kBytes = 256 << 10;
  return std::min(kBytes / (rows * element) / (64 / element) * (64 / element), kScanColumns);
}

// The width of blocks of up to `most` columns, in multiples of `unit`, of which every thread gets as much as any other.
int64_t even_width(int64_t columns, int64_t most, int64_t unit) {
  const int64_t threads = get_num_threads();
  const int64_t blocks = ((columns + most - 1) / most + threads - 1) / threads * threads;
  return std::min(most, ((columns + blocks - 1) / blocks + unit - 1) / unit * unit);
}

// The dimension other than `not_this` along which a tensor's elements lie closest; -1 if there is none.
int fastest_dim(const TensorView& t, int not_this) {
  int best = -1;
  for (int d = 0; d < t.ndim; ++d)
    if (d != not_this && t.sizes[d] > 1 && (best < 0 || std::abs(t.strides[d]) < std::abs(t.strides[best]))) best = d;
  return best;
}

// to = from, rectangle by rectangle of the dimensions that are fastest in each.
void copy_view(const TensorView& to, const TensorView& from) {
  constexpr int64_t kBand = 64, kTile = 256;
  const int column = fastest_dim(to, -1), row = fastest_dim(from, column);
  const int64_t size = element_size(to.dtype);
  const auto extent = [&](int d) { return d < 0 ? 1 : to.sizes[d]; };
  const auto stride = [&](const TensorView& t, int d) { return d < 0 ? size : t.strides[d] * size; };
  const int64_t rows = extent(row), columns = extent(column), bands = (rows + kBand - 1) / kBand;
  parallel_for(0, to.numel / (rows * columns) * bands, std::max<int64_t>(1, kGrain / (kBand * columns)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   char* at = static_cast<char*>(to.data);
                   const char* source = static_cast<const char*>(from.data);
                   int64_t rest = i / bands;
                   for (int d = to.ndim - 1; d >= 0; --d) {
                     if (d == row || d == column) continue;
                     at += rest % to.sizes[d] * to.strides[d] * size;
                     source += rest % to.sizes[d] * from.strides[d] * size;
                     rest /= to.sizes[d];
                   }
                   const int64_t first = i % bands * kBand, count = std::min(kBand, rows - first);
                   for (int64_t c = 0; c < columns; c += kTile)
                     copy_rectangle(size, at + first * stride(to, row) + c * stride(to, column), stride(to, row),
                                    stride(to, column), source + first * stride(from, row) + c * stride(from, column),
                                    stride(from, row), stride(from, column), count, std::min(kTile, columns - c));
                 }
               });
}

// Calls f with the position and the width of every block of `width` columns, on as many threads as pay, and with a
// buffer that holds a block.
template <class F>
void for_each_block(const Position& origin, const Dim& scanned, const Dim* others, int count, int beside, int64_t width,
                    int64_t element, const F& f) {
  const Dim& columns = others[beside];
  const int64_t blocks = (columns.size + width - 1) / width;
  int64_t outer = 1;
  for (int d = 0; d < count; ++d) outer *= d == beside ? 1 : others[d].size;
  parallel_for(0, outer * blocks, std::max<int64_t>(1, kGrain / (scanned.size * width)),
               [&](int64_t begin, int64_t end) {
                 const std::unique_ptr<char[]> buffer(new char[static_cast<size_t>(scanned.size * width * element)]);
                 for (int64_t i = begin; i < end; ++i) {
                   Position at = origin;
                   int64_t rest = i / blocks;
                   for (int d = count - 1; d >= 0; --d) {
                     if (d == beside) continue;
                     at.move(others[d], rest % others[d].size, 1);
                     rest /= others[d].size;
                   }
                   const int64_t first = i % blocks * width;
                   at.move(columns, first, 1);
                   f(at, std::min(width, columns.size - first), buffer.get());
                 }
               });
}

// For an input that is contiguous along `beside` instead of along the scanned dimension, as the output is: blocks of
// columns are scanned into a buffer, and transposed on their way out.
void scan_turned(const Scan& scan, const Position& origin, const Dim& scanned, const Dim* others, int count, int beside,
                 int64_t element) {
  const int64_t width = even_width(others[beside].size, turned_columns(scanned.size, element), 64 / element);
  for_each_block(origin, scanned, others, count, beside, width, element,
                 [&](const Position& at, int64_t here, char* buffer) {
                   const int64_t row = here * element;
                   scan.columns(at.in, scanned.in, &buffer, &row, scanned.size, here);
                   copy_rectangle(element, at.out[0], others[beside].out[0], scanned.out[0], buffer, element, row, here,
                                  scanned.size);
                 });
}

// The reverse, for an output that is contiguous along `beside` and an input along the scanned dimension: columns of a
// few cache lines are transposed on their way in, and scanned from a buffer.
constexpr int64_t kTurnedBytes = 256, kTurnedRow = 512;

void scan_turned_in(const Scan& scan, const Position& origin, const Dim& scanned, const Dim* others, int count,
                    int beside, int64_t element) {
  for_each_block(origin, scanned, others, count, beside, kTurnedBytes / element, element,
                 [&](const Position& at, int64_t here, char* buffer) {
                   const int64_t row = here * element;
                   copy_rectangle(element, buffer, element, row, at.in, others[beside].in, scanned.in, here,
                                  scanned.size);
                   scan.columns(buffer, row, at.out, scanned.out, scanned.size, here);
                 });
}

// For an input whose elements lie a few apart along `beside`, where those of the output are contiguous: a thread copies
// columns into the output and scans them there while its second cache holds them.
constexpr int64_t kLeastSpread = 64;

void scan_spread(const Scan& scan, const Position& origin, const Dim& scanned, const Dim* others, int count, int beside,
                 int64_t element) {
  const int64_t width = even_width(others[beside].size, turned_columns(scanned.size, element), 64 / element);
  for_each_block(origin, scanned, others, count, beside, width, 0, [&](const Position& at, int64_t here, char*) {
    copy_rectangle(element, at.out[0], scanned.out[0], element, at.in, scanned.in, others[beside].in, scanned.size,
                   here);
    scan.columns(at.out[0], scanned.out[0], at.out, scanned.out, scanned.size, here);
  });
}

}  // namespace

void run_scan(const Scan& scan, const TensorView* const* outputs, const TensorView& self, int64_t dim) {
  const int nout = scan.outputs;
  const int64_t element = element_size(self.dtype);
  int64_t out_element[kMaxOutputs];
  Position origin{static_cast<const char*>(self.data), {}};
  for (int k = 0; k < nout; ++k) {
    origin.out[k] = static_cast<char*>(outputs[k]->data);
    out_element[k] = element_size(outputs[k]->dtype);
  }
  Dim others[kMaxDims];
  int count = 0, column = -1;
  int64_t rows = 1;
  const auto dim_at = [&](int64_t d) {
    Dim r{self.sizes[d], self.strides[d] * element, {}};
    for (int k = 0; k < nout; ++k) r.out[k] = outputs[k]->strides[d] * out_element[k];
    return r;
  };
  const Dim scanned = self.ndim ? dim_at(dim) : Dim{1, element, {}};
  for (int d = 0; d < self.ndim; ++d) {
    if (d == dim || self.sizes[d] == 1) continue;
    others[count] = dim_at(d);
    bool contiguous = others[count].in == element;
    for (int k = 0; k < nout; ++k) contiguous = contiguous && others[count].out[k] == out_element[k];
    if (contiguous) column = count;
    rows *= others[count++].size;
  }
  // Input and output that are contiguous along different dimensions, or hardly at all, would use a whole cache line for
  // each element. So the input is copied into the output first, and scanned in place.
  const bool near = std::abs(scanned.in) <= 4 * element && scanned.out[0] == out_element[0];
  if (nout == 1 && column < 0 && !near && rows > 1 && self.data != outputs[0]->data &&
      self.dtype == outputs[0]->dtype && self.numel >= kGrain / 8) {
    // Rows of integers have no vector code, columns have, and both give the same numbers.
    if (is_integral(self.dtype) && scanned.out[0] == element && turned_columns(scanned.size, element) > 0)
      for (int d = 0; d < count; ++d)
        if (others[d].in == element) return scan_turned(scan, origin, scanned, others, count, d, element);
    // A tensor that outgrows the second cache is transposed block by block, so that a block is still there when it is
    // scanned.
    if (scanned.in == element && scanned.size <= kTurnedRow && self.numel * element >= 512 << 10)
      for (int d = 0; d < count; ++d)
        if (others[d].out[0] == element) return scan_turned_in(scan, origin, scanned, others, count, d, element);
    for (int d = 0; d < count; ++d) {
      if (others[d].out[0] != element || std::abs(others[d].in) > 4 * element) continue;
      if (turned_columns(scanned.size, element) >= kLeastSpread)
        return scan_spread(scan, origin, scanned, others, count, d, element);
    }
    copy_view(*outputs[0], self);
    return run_scan(scan, outputs, *outputs[0], dim);
  }
  if (column < 0 || scanned.in == element) {
    parallel_for(0, rows, std::max<int64_t>(1, kGrain / scanned.size), [&](int64_t begin, int64_t end) {
      const auto row_at = [&](int64_t i) {
        Position at = origin;
        for (int d = count - 1; d >= 0; --d) {
          at.move(others[d], i % others[d].size, nout);
          i /= others[d].size;
        }
        return at;
      };
      int64_t i = begin;
      for (; scan.two_rows && i + 2 <= end; i += 2) {
        const Position first = row_at(i), second = row_at(i + 1);
        const char* const in[] = {first.in, second.in};
        char* const out[] = {first.out[0], second.out[0]};
        scan.two_rows(in, scanned.in, out, scanned.out[0], scanned.size);
      }
      for (; i < end; ++i) {
        const Position at = row_at(i);
        scan.row(at.in, scanned.in, at.out, scanned.out, scanned.size);
      }
    });
    return;
  }
  const Dim columns = others[column];
  std::copy(others + column + 1, others + count, others + column);
  --count;
  // Blocks as wide as the cache allows, for long runs of memory, but enough of them for all threads.
  const int64_t per_thread = (rows + get_num_threads() - 1) / get_num_threads();
  const int64_t most = std::min(kScanColumns, std::max<int64_t>(64, per_thread)), line = 64 / element;
  const int64_t width = std::min(columns.size, (most + line - 1) / line * line);
  const int64_t blocks = (columns.size + width - 1) / width, outer = rows / columns.size, cost = scanned.size * width;
  parallel_for(0, outer * blocks, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Position at = origin;
      int64_t rest = i / blocks;
      for (int d = count - 1; d >= 0; --d) {
        at.move(others[d], rest % others[d].size, nout);
        rest /= others[d].size;
      }
      const int64_t first = i % blocks * width;
      at.move(columns, first, nout);
      scan.columns(at.in, scanned.in, at.out, scanned.out, scanned.size, std::min(width, columns.size - first));
    }
  });
}

}  // namespace mica::cpu
