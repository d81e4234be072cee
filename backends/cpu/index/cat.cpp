// cat: the output is one run of bytes, which is cut evenly among the threads. Where a row of it has only short pieces
// of each input, it is written row by row.
#include <algorithm>
#include <cstring>

#include "backends/cpu/pointwise/packing.h"
#include "backends/cpu/pointwise/transpose.h"
#include "backends/cpu/register.h"
#include "mica/backend/kernel_types.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kBytesPerTask = 1 << 16;
constexpr int64_t kShortPiece = 64;  // bytes
constexpr int64_t kInterleavedBytes = 16384;

// Copies elements [begin, begin + n) of a tensor, counted in its order, side by side.
void gather_run(const TensorView& t, int64_t size, int64_t begin, int64_t n, char* to) {
  int last = t.ndim - 1;
  while (last > 0 && t.sizes[last] == 1) --last;
  const int64_t stride = t.strides[last];
  int outer = last;  // the dimensions from here on are one run
  int64_t run = t.sizes[last];
  while (outer > 0 && (t.sizes[outer - 1] == 1 || t.strides[outer - 1] == run * stride)) run *= t.sizes[--outer];
  for (int64_t i = begin; i < begin + n;) {
    int64_t rest = i / run, at = i % run * stride;
    for (int d = outer - 1; d >= 0; --d) {
      at += rest % t.sizes[d] * t.strides[d];
      rest /= t.sizes[d];
    }
    const int64_t count = std::min(begin + n - i, run - i % run);
    copy_row(size, to + (i - begin) * size, size, static_cast<const char*>(t.data) + at * size, stride * size, count);
    i += count;
  }
}

// Every input gives each row one element: stack(dim=-1). Some rows at a time are brought together from all inputs,
// wherever they lie, and transposed.
void interleave(char* to, TensorViewList inputs, int64_t size, int64_t begin, int64_t end) {
  alignas(64) char buffer[kInterleavedBytes];
  const int64_t count = static_cast<int64_t>(inputs.size()), row = count * size;
  const int64_t rows = std::max<int64_t>(1, kInterleavedBytes / row);
  for (int64_t r = begin; r < end; r += rows) {
    const int64_t n = std::min(rows, end - r);
    for (int64_t i = 0; i < count; ++i) {
      gather_run(*inputs[static_cast<size_t>(i)], size, r, n, buffer + i * n * size);
    }
    transpose(size, buffer, n * size, to + r * row, row, count, n);
  }
}

// The same for inputs that are far apart along their last dimension and adjacent along `beside`, as transposed matrices
// are. A few cache lines of all inputs are transposed at a time.
struct Crosswise {
  int beside = -1, last = -1;
  int64_t rows = 0, columns = 0;  // the size of the part that is transposed at a time
};

Crosswise find_crosswise(TensorViewList inputs, int64_t size) {
  const TensorView& first = *inputs[0];
  Crosswise c;
  c.last = first.ndim - 2;  // behind it is the dimension of one element that the inputs fill
  if (c.last < 1 || first.sizes[c.last] < 16) return {};
  for (int d = 0; d < c.last; ++d)
    if (first.sizes[d] >= 8 && first.strides[d] == 1) c.beside = d;
  if (c.beside < 0) return {};
  for (const TensorView* t : inputs)
    if (t->strides[c.beside] != 1 || t->strides[c.last] <= 1) return {};
  c.rows = std::min(first.sizes[c.beside], std::max<int64_t>(64 / size, 8));
  c.columns = std::min(first.sizes[c.last], kInterleavedBytes / (c.rows * size * static_cast<int64_t>(inputs.size())));
  return c.columns < 16 ? Crosswise{} : c;
}

void interleave_crosswise(char* to, TensorViewList inputs, int64_t size, const Crosswise& c) {
  const TensorView& first = *inputs[0];
  const int64_t count = static_cast<int64_t>(inputs.size()), row = count * size;
  const int64_t height = first.sizes[c.beside], width = first.sizes[c.last], bands = (height + c.rows - 1) / c.rows;
  int64_t below = row;  // bytes from an element of the output to the next along `beside`
  for (int d = c.beside + 1; d <= c.last; ++d) below *= first.sizes[d];
  parallel_for(0, first.numel / (height * width) * bands, std::max<int64_t>(1, kBytesPerTask / (c.rows * width * row)),
               [&](int64_t begin, int64_t end) {
                 alignas(64) char buffer[kInterleavedBytes];
                 for (int64_t band = begin; band < end; ++band) {
                   const int64_t top = band % bands * c.rows, rows = std::min(c.rows, height - top);
                   // The position in the other dimensions, from the last one on.
                   int64_t rest = band / bands, in_output = top * below, stride = row * width;
                   DimVector index(static_cast<size_t>(c.last), 0);
                   for (int d = c.last - 1; d >= 0; stride *= first.sizes[d--]) {
                     if (d == c.beside) continue;
                     index[static_cast<size_t>(d)] = rest % first.sizes[d];
                     in_output += rest % first.sizes[d] * stride;
                     rest /= first.sizes[d];
                   }
                   index[static_cast<size_t>(c.beside)] = top;
                   for (int64_t left = 0; left < width; left += c.columns) {
                     const int64_t columns = std::min(c.columns, width - left);
                     for (int64_t k = 0; k < count; ++k) {
                       const TensorView& t = *inputs[static_cast<size_t>(k)];
                       int64_t at = left * t.strides[c.last];
                       for (int d = 0; d < c.last; ++d) at += index[static_cast<size_t>(d)] * t.strides[d];
                       transpose(size, static_cast<const char*>(t.data) + at * size, t.strides[c.last] * size,
                                 buffer + k * columns * size, columns * row, columns, rows);
                     }
                     for (int64_t r = 0; r < rows; ++r)
                       transpose(size, buffer + r * columns * row, columns * size,
                                 to + in_output + r * below + left * row, row, count, columns);
                   }
                 }
               });
}

void cat_short_pieces(char* to, TensorViewList inputs, const DimVector& starts, int64_t rows) {
  const int64_t row = starts.back();
  const size_t count = inputs.size();
  bool elements = row <= 4096 && element_size(inputs[0]->dtype) == starts[1];
  for (size_t i = 0; i < count; ++i) elements = elements && starts[i + 1] - starts[i] == starts[1];
  if (elements)
    if (const Crosswise c = find_crosswise(inputs, starts[1]); c.beside >= 0)
      return interleave_crosswise(to, inputs, starts[1], c);
  parallel_for(0, rows, std::max<int64_t>(1, kBytesPerTask / row), [&](int64_t begin, int64_t end) {
    if (elements) return interleave(to, inputs, starts[1], begin, end);
    for (size_t i = 0; i < count; ++i) {
      const int64_t piece = starts[i + 1] - starts[i];
      const char* from = static_cast<const char*>(inputs[i]->data) + begin * piece;
      char* at = to + begin * row + starts[i];
      for (int64_t r = begin; r < end; ++r, from += piece, at += row) std::memcpy(at, from, static_cast<size_t>(piece));
    }
  });
}

// All tensors have one dtype and are contiguous, except inputs of one element in each row. A row is what the dimensions
// before `dim` repeat: one piece of every input after the other.
void cat_kernel(const TensorView& out, TensorViewList inputs, int64_t dim) {
  int64_t inner = element_size(out.dtype);
  for (int d = static_cast<int>(dim) + 1; d < out.ndim; ++d) inner *= out.sizes[d];
  DimVector starts{0};  // where each input's piece begins in a row, and where the row ends
  for (const TensorView* t : inputs) starts.push_back(starts.back() + t->sizes[dim] * inner);
  const int64_t row = starts.back(), total = out.numel * element_size(out.dtype);
  auto* to = static_cast<char*>(out.data);
  if (total == 0) return;
  if (row < kShortPiece * static_cast<int64_t>(inputs.size())) return cat_short_pieces(to, inputs, starts, total / row);
  const Source source = total >= kFarBytes ? Source::Far : Source::Cached;
  parallel_for(0, total, kBytesPerTask, [&](int64_t begin, int64_t end) {
    int64_t at = begin;
    while (at < end) {
      const int64_t r = at / row, in_row = at % row;
      const auto next = std::upper_bound(starts.begin(), starts.end(), in_row);
      const auto i = static_cast<size_t>(next - starts.begin()) - 1;
      const int64_t within = in_row - starts[i];
      const int64_t count = std::min(*next - in_row, end - at);
      const char* from = static_cast<const char*>(inputs[i]->data) + r * (*next - starts[i]) + within;
      copy_bytes(to + at, from, static_cast<size_t>(count), source);
      at += count;
    }
  });
}

MICA_REGISTER_CPU(cat, cat_kernel);

}  // namespace
}  // namespace mica::cpu
