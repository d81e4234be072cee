#include "backends/cpu/scan/run_scan.h"

#include <algorithm>

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
  if (column < 0 || scanned.in == element) {
    parallel_for(0, rows, std::max<int64_t>(1, kGrain / scanned.size), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Position at = origin;
        int64_t rest = i;
        for (int d = count - 1; d >= 0; --d) {
          at.move(others[d], rest % others[d].size, nout);
          rest /= others[d].size;
        }
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
  const int64_t width = std::min({columns.size, kScanColumns, std::max<int64_t>(64, (per_thread + 63) / 64 * 64)});
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
