#include "backends/cpu/reduce/run_reduction.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <memory>

#include "backends/cpu/fetch_ahead.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int kMaxDims = 64;
constexpr int kMaxOutputs = 2;
constexpr int64_t kPiece = 65536;       // elements that are worth a thread of their own
constexpr int64_t kLeastPiece = 32768;  // elements of a piece where there are several
constexpr int64_t kColumnBlocks = 4;    // blocks of one matrix, if each has at least kLeastColumns
constexpr int64_t kLeastColumns = 128;
constexpr int64_t kCachedBytes = 4 << 20;
constexpr int64_t kBufferBytes = 32768;       // converted elements on their way into the accumulators of columns
constexpr int64_t kRowBufferBytes = 8192;     // the same for a row: they stay in the first cache beside their source
constexpr int64_t kAccumulatorBytes = 16384;  // for one block of columns
constexpr int64_t kRowBatch = 64;             // rows whose accumulators are finished together
constexpr int64_t kBufferedRows = 8;

struct Dim {
  int64_t size;
  int64_t in;                // strides in bytes
  int64_t out[kMaxOutputs];  // strides of a kept dimension
};

// A list of dimensions, the fastest in memory first.
struct Dims {
  Dim dim[kMaxDims];
  int count = 0;
  int64_t numel = 1;

  void add(const Dim& d) {
    dim[count++] = d;
    numel *= d.size;
  }

  void sort_and_coalesce(int outputs) {
    // A dimension that repeats its elements comes last, where it does not shorten runs.
    const auto key = [](const Dim& d) { return d.in ? std::abs(d.in) : std::numeric_limits<int64_t>::max(); };
    for (int i = 1; i < count; ++i) {
      const Dim d = dim[i];
      int j = i;
      for (; j > 0 && key(dim[j - 1]) > key(d); --j) dim[j] = dim[j - 1];
      dim[j] = d;
    }
    int last = 0;
    for (int i = 1; i < count; ++i) {
      bool joins = dim[i].in == dim[last].in * dim[last].size;
      for (int k = 0; k < outputs; ++k) joins = joins && dim[i].out[k] == dim[last].out[k] * dim[last].size;
      if (joins) {
        dim[last].size *= dim[i].size;
      } else {
        dim[++last] = dim[i];
      }
    }
    if (count) count = last + 1;
  }
};

bool is_contiguous(const TensorView& t) {
  int64_t expected = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    if (t.sizes[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.sizes[d];
  }
  return true;
}

class Walk {
 public:
  Walk(const Reduction& reduction, const ElementLoad& load, const TensorView* const* outputs, const TensorView& self,
       uint64_t dims, const void* context)
      : op_(reduction), load_(load), context_(context) {
    in_ = static_cast<const char*>(self.data);
    const int64_t element = load.bytes;
    int64_t out_element[kMaxOutputs];
    for (int k = 0; k < op_.outputs; ++k) {
      out_[k] = static_cast<char*>(outputs[k]->data);
      out_element[k] = element_size(outputs[k]->dtype);
    }
    const bool keeps_dims = outputs[0]->ndim == self.ndim;
    int at = 0;  // a dimension of the output
    for (int d = 0; d < self.ndim; ++d) {
      const bool is_reduced = dims >> d & 1;
      Dim dim{self.sizes[d], self.strides[d] * element, {}};
      if (!is_reduced)
        for (int k = 0; k < op_.outputs; ++k) dim.out[k] = outputs[k]->strides[keeps_dims ? d : at] * out_element[k];
      if (keeps_dims || !is_reduced) ++at;
      if (dim.size == 1) continue;
      if (dim.in < 0 && !(is_reduced && op_.ordered)) {  // walks it from its other end
        in_ += (dim.size - 1) * dim.in;
        dim.in = -dim.in;
        for (int k = 0; k < op_.outputs; ++k) {
          out_[k] += (dim.size - 1) * dim.out[k];
          dim.out[k] = -dim.out[k];
        }
      }
      (is_reduced ? reduced_ : kept_).add(dim);
    }
    kept_.sort_and_coalesce(op_.outputs);
    reduced_.sort_and_coalesce(0);
    if (reduced_.count == 0) reduced_.add({1, 0, {}});
    if (kept_.count == 0) kept_.add({1, 0, {}});
    const int64_t kept = kept_.dim[0].in, reduced = std::abs(reduced_.dim[0].in);
    by_columns_ = kept != 0 && (reduced == 0 || kept < reduced);
    const int64_t stride = reduced_.dim[0].in;
    fetches_ = stride > load.bytes && gathers_from_far(reduced_.numel * kept_.numel, stride);
  }

  void run() {
    if (by_columns_) {
      run_columns();
    } else {
      run_rows();
    }
  }

 private:
  bool is_direct(int64_t stride) const { return load_.direct && stride == load_.bytes; }

  // Calls f(run, count, first) for the runs along the fastest reduced dimension that make up the elements [begin, end).
  template <class F>
  void for_each_run(const char* base, int64_t begin, int64_t end, const F& f) const {
    const Dim& inner = reduced_.dim[0];
    if (reduced_.count == 1) {
      f(base + begin * inner.in, end - begin, begin);
      return;
    }
    for (int64_t i = begin; i < end;) {
      const char* p = base;
      int64_t rest = i;
      for (int d = 0; d < reduced_.count; ++d) {
        p += rest % reduced_.dim[d].size * reduced_.dim[d].in;
        rest /= reduced_.dim[d].size;
      }
      const int64_t count = std::min(end - i, inner.size - i % inner.size);
      f(p, count, i);
      i += count;
    }
  }

  // Moves the input and output pointers to the kept element `index`, counted over the dimensions from `from` on.
  void seek(int64_t index, int from, const char*& in, char** out) const {
    in = in_;
    for (int k = 0; k < op_.outputs; ++k) out[k] = out_[k];
    for (int d = from; d < kept_.count; ++d) {
      const int64_t i = index % kept_.dim[d].size;
      index /= kept_.dim[d].size;
      in += i * kept_.dim[d].in;
      for (int k = 0; k < op_.outputs; ++k) out[k] += i * kept_.dim[d].out[k];
    }
  }

  void finish(const char* accumulators, int64_t n, char* const* out, const int64_t* strides) const {
    op_.finish(accumulators, n, out, strides, reduced_.numel, context_);
  }

  // ---- rows: the fastest dimension is reduced

  void load_run(const char* from, int64_t stride, int64_t n, char* to) const {
    if (!fetches_) return load_.load(from, stride, n, to);
    gather_fetched(
        n, load_.bytes,
        [&](int64_t first, int64_t count) {
          load_.load(from + first * stride, stride, count, to + first * load_.loaded_bytes);
        },
        GatherSource{from, stride});
  }

  void fold_row(char* accumulator, const char* base, int64_t begin, int64_t end) const {
    const int64_t stride = reduced_.dim[0].in;
    for_each_run(base, begin, end, [&](const char* p, int64_t count, int64_t first) {
      if (is_direct(stride)) return op_.rows(accumulator, p, 1, 0, count, first, context_);
      alignas(64) char buffer[kRowBufferBytes];
      const int64_t capacity = kRowBufferBytes / load_.loaded_bytes;
      for (int64_t i = 0; i < count; i += capacity) {
        const int64_t n = std::min(capacity, count - i);
        load_run(p + i * stride, stride, n, buffer);
        op_.rows(accumulator, buffer, 1, 0, n, first + i, context_);
      }
    });
  }

  void run_rows() const {
    const int64_t count = reduced_.numel, outputs = kept_.numel;
    // A power of two divides evenly among most numbers of threads.
    const auto wanted = static_cast<uint64_t>(std::clamp<int64_t>(count / kLeastPiece, 1, 256));
    // Elements that have to be converted or gathered are worth threads earlier.
    const int64_t least = is_direct(reduced_.dim[0].in) ? 2 * kPiece : kPiece;
    const int64_t pieces = outputs >= 64 || count < least ? 1 : static_cast<int64_t>(std::bit_floor(wanted));
    if (pieces > 1) return run_row_pieces(pieces);
    const int64_t grain = std::max<int64_t>(1, kPiece / 2 / std::max<int64_t>(count, 1));
    parallel_for(0, outputs, grain, [&](int64_t begin, int64_t end) { rows_of(begin, end); });
  }

  void rows_of(int64_t begin, int64_t end) const {
    const Dim& inner = kept_.dim[0];
    const int64_t count = reduced_.numel;
    const bool whole = reduced_.count == 1 && is_direct(reduced_.dim[0].in);
    alignas(64) char accumulators[kRowBatch * kMaxAccumulatorBytes];
    for (int64_t o = begin; o < end;) {
      const int64_t n = std::min({end - o, inner.size - o % inner.size, kRowBatch});
      const char* in;
      char* out[kMaxOutputs];
      seek(o, 0, in, out);
      op_.start(accumulators, n);
      if (whole) {
        op_.rows(accumulators, in, n, inner.in / load_.bytes, count, 0, context_);
      } else {
        for (int64_t i = 0; i < n; ++i) fold_row(accumulators + i * op_.accumulator_bytes, in + i * inner.in, 0, count);
      }
      finish(accumulators, n, out, inner.out);
      o += n;
    }
  }

  // Few outputs of many elements: pieces of each, merged in order.
  void run_row_pieces(int64_t pieces) const {
    const int64_t count = reduced_.numel, outputs = kept_.numel, bytes = op_.accumulator_bytes;
    const std::unique_ptr<char[]> partial(new char[outputs * pieces * bytes]);
    op_.start(partial.get(), outputs * pieces);
    parallel_for(0, outputs * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const char* in;
        char* out[kMaxOutputs];
        seek(i / pieces, 0, in, out);
        const int64_t piece = i % pieces;
        fold_row(partial.get() + i * bytes, in, count * piece / pieces, count * (piece + 1) / pieces);
      }
    });
    for (int64_t o = 0; o < outputs; ++o) {
      char* first = partial.get() + o * pieces * bytes;
      for (int64_t piece = 1; piece < pieces; ++piece) op_.merge(first, first + piece * bytes, 1);
      const char* in;
      char* out[kMaxOutputs];
      seek(o, 0, in, out);
      finish(first, 1, out, kept_.dim[0].out);
    }
  }

  // ---- columns: the fastest dimension is kept

  void fold_columns(char* accumulators, const char* base, int64_t columns, int64_t begin, int64_t end) const {
    const int64_t row = reduced_.dim[0].in, stride = kept_.dim[0].in;
    for_each_run(base, begin, end, [&](const char* p, int64_t count, int64_t first) {
      if (is_direct(stride)) {
        if (columns <= 32 && row == columns * stride && !op_.ordered && count > 256) {
          fold_narrow(accumulators, p, columns, count);
        } else {
          op_.columns(accumulators, p, columns, row / load_.bytes, count, first, context_);
        }
        return;
      }
      alignas(64) char buffer[kBufferBytes];
      for (int64_t i = 0; i < count; i += kBufferedRows) {
        const int64_t rows = std::min(kBufferedRows, count - i);
        for (int64_t r = 0; r < rows; ++r)
          load_.load(p + (i + r) * row, stride, columns, buffer + r * columns * load_.loaded_bytes);
        op_.columns(accumulators, buffer, columns, columns, rows, first + i, context_);
      }
    });
  }

  // A matrix of few columns without gaps is also one of k times as many columns, whose sums are then merged k to one.
  void fold_narrow(char* accumulators, const char* p, int64_t columns, int64_t count) const {
    const int64_t k = 128 / columns, bytes = op_.accumulator_bytes, row = columns * load_.bytes;
    alignas(64) char wide[128 * kMaxAccumulatorBytes];
    op_.start(wide, k * columns);
    op_.columns(wide, p, k * columns, k * columns, count / k, 0, context_);
    for (int64_t i = 0; i < k; ++i) op_.merge(accumulators, wide + i * columns * bytes, columns);
    const int64_t done = count / k * k;
    op_.columns(accumulators, p + done * row, columns, columns, count - done, 0, context_);
  }

  void run_columns() const {
    const Dim& inner = kept_.dim[0];
    const int64_t bytes = op_.accumulator_bytes, count = reduced_.numel;
    int64_t width = std::min(inner.size, kAccumulatorBytes / bytes);
    if (!is_direct(inner.in)) width = std::min(width, kBufferBytes / kBufferedRows / load_.loaded_bytes);
    // Uses blocks of columns as well as pieces of rows: with fewer pieces, fewer partial results travel between cores.
    // Input from memory is read by whole rows.
    if (kept_.numel == inner.size && inner.size >= kColumnBlocks * kLeastColumns &&
        count * inner.size * load_.bytes <= kCachedBytes)
      width = std::min(width, (inner.size / kColumnBlocks + 63) / 64 * 64);
    const int64_t blocks = (inner.size + width - 1) / width, tasks = blocks * (kept_.numel / inner.size);
    const auto wanted =
        static_cast<uint64_t>(std::clamp<int64_t>(std::min(count * width / kLeastPiece, count / 16), 1, 16));
    const int64_t pieces = tasks >= 16 ? 1 : static_cast<int64_t>(std::bit_floor(wanted));
    if (pieces > 1) return run_column_pieces(width, blocks, tasks, pieces);
    const int64_t grain = std::max<int64_t>(1, kPiece / 2 / std::max<int64_t>(count * width, 1));
    parallel_for(0, tasks, grain, [&](int64_t begin, int64_t end) {
      alignas(64) char accumulators[kAccumulatorBytes];
      for (int64_t t = begin; t < end; ++t) {
        const Block b = block(t, width, blocks);
        op_.start(accumulators, b.columns);
        fold_columns(accumulators, b.in, b.columns, 0, count);
        finish(accumulators, b.columns, b.out, inner.out);
      }
    });
  }

  struct Block {
    const char* in;
    char* out[kMaxOutputs];
    int64_t columns;
  };

  Block block(int64_t task, int64_t width, int64_t blocks) const {
    const Dim& inner = kept_.dim[0];
    Block b;
    seek(task / blocks, 1, b.in, b.out);
    const int64_t column = task % blocks * width;
    b.columns = std::min(width, inner.size - column);
    b.in += column * inner.in;
    for (int k = 0; k < op_.outputs; ++k) b.out[k] += column * inner.out[k];
    return b;
  }

  void run_column_pieces(int64_t width, int64_t blocks, int64_t tasks, int64_t pieces) const {
    const int64_t bytes = op_.accumulator_bytes, count = reduced_.numel;
    const std::unique_ptr<char[]> partial(new char[tasks * pieces * width * bytes]);
    parallel_for(0, tasks * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Block b = block(i / pieces, width, blocks);
        const int64_t piece = i % pieces;
        char* accumulators = partial.get() + i * width * bytes;
        op_.start(accumulators, b.columns);
        fold_columns(accumulators, b.in, b.columns, count * piece / pieces, count * (piece + 1) / pieces);
      }
    });
    parallel_for(0, tasks, std::max<int64_t>(1, kPiece / (pieces * width)), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const Block b = block(t, width, blocks);
        char* first = partial.get() + t * pieces * width * bytes;
        for (int64_t piece = 1; piece < pieces; ++piece) op_.merge(first, first + piece * width * bytes, b.columns);
        finish(first, b.columns, b.out, kept_.dim[0].out);
      }
    });
  }

  const Reduction& op_;
  const ElementLoad& load_;
  const void* context_;
  const char* in_;
  char* out_[kMaxOutputs];
  Dims kept_, reduced_;
  bool by_columns_ = false;
  bool fetches_ = false;  // whether runs that are reduced are gathered from memory
};

}  // namespace

void run_reduction(const Reduction& reduction, const ElementLoad& load, const TensorView* const* outputs,
                   const TensorView& self, uint64_t dims, const void* context) {
  if (outputs[0]->numel == 1 && self.numel <= kPiece && load.direct && is_contiguous(self)) {
    alignas(64) char accumulator[kMaxAccumulatorBytes];
    reduction.start(accumulator, 1);
    reduction.rows(accumulator, self.data, 1, 0, self.numel, 0, context);
    char* out[kMaxOutputs] = {static_cast<char*>(outputs[0]->data),
                              reduction.outputs > 1 ? static_cast<char*>(outputs[1]->data) : nullptr};
    const int64_t strides[kMaxOutputs] = {};
    reduction.finish(accumulator, 1, out, strides, self.numel, context);
    return;
  }
  Walk(reduction, load, outputs, self, dims, context).run();
}

}  // namespace mica::cpu
