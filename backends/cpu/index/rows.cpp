#include "backends/cpu/index/rows.h"

#include <algorithm>
#include <memory>

#include "mica/error.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kGrain = 32768;      // the number of elements that pays for a thread
constexpr int64_t kBlock = 1024;       // positions whose offsets are computed at a time
constexpr int64_t kColumnBytes = 256;  // the narrowest part of a row that a thread takes for itself

[[noreturn]] void outside(int64_t index, int64_t dim, int64_t size) {
  fail(ErrorKind::Index, cat("index ", index, " is out of bounds for dimension ", dim, " with size ", size));
}

}  // namespace

IndexedDims::IndexedDims(const TensorView& table, int64_t first_dim, TensorViewList indices)
    : first(first_dim), positions(indices[0]->numel) {
  const int64_t element = element_size(table.dtype);
  for (size_t k = 0; k < indices.size(); ++k)
    dims.push_back({indices[k]->ptr<const int64_t>(), table.sizes[first + k], table.strides[first + k] * element});
}

void IndexedDims::offsets(int64_t begin, int64_t end, int64_t* out) const {
  for (size_t k = 0; k < dims.size(); ++k) {
    const auto [index, size, stride] = dims[k];
    bool inside = true;
    for (int64_t p = begin; p < end; ++p) {
      const int64_t i = index[p], at = i < 0 ? i + size : i;
      inside &= static_cast<uint64_t>(at) < static_cast<uint64_t>(size);
      // An index far outside may wrap around here; it is refused below.
      const auto offset = static_cast<int64_t>(static_cast<uint64_t>(at) * static_cast<uint64_t>(stride));
      out[p - begin] =
          k ? static_cast<int64_t>(static_cast<uint64_t>(out[p - begin]) + static_cast<uint64_t>(offset)) : offset;
    }
    if (inside) continue;
    for (int64_t p = begin; p < end; ++p)
      if (index[p] < -size || index[p] >= size) outside(index[p], first + static_cast<int64_t>(k), size);
  }
}

void IndexedDims::check() const {
  for (size_t k = 0; k < dims.size(); ++k) {
    const auto [index, size, stride] = dims[k];
    bool inside = true;
    for (int64_t p = 0; p < positions; ++p) inside &= (index[p] >= -size) & (index[p] < size);
    if (inside) continue;
    for (int64_t p = 0; p < positions; ++p)
      if (index[p] < -size || index[p] >= size) outside(index[p], first + static_cast<int64_t>(k), size);
  }
}

// ---- the loops

RowMove::RowMove(const TensorView& table, const TensorView& rows, int64_t first, int64_t indexed, int64_t replaced)
    : table_(table.ptr<char>()), rows_(rows.ptr<char>()) {
  const int64_t element = element_size(table.dtype);
  // Behind the index, from the fastest dimension on: what continues in both tensors is one loop.
  std::vector<Loop> inner;
  auto add = [&](std::vector<Loop>& loops, int64_t table_dim, int64_t rows_dim) {
    const Loop loop{rows.sizes[rows_dim], table.strides[table_dim] * element, rows.strides[rows_dim] * element};
    if (loop.size == 1) return;
    if (!loops.empty() && loop.table == loops.back().table * loops.back().size &&
        loop.rows == loops.back().rows * loops.back().size) {
      loops.back().size *= loop.size;
    } else {
      loops.push_back(loop);
    }
  };
  const int64_t behind = table.ndim - first - indexed;
  for (int64_t k = behind - 1; k >= 0; --k) add(inner, first + indexed + k, first + replaced + k);
  run_ = inner.empty() ? Loop{1, element, element} : inner[0];
  if (!inner.empty()) outer_.assign(inner.begin() + 1, inner.end());
  std::vector<Loop> before;
  for (int64_t d = first - 1; d >= 0; --d) add(before, d, d);
  outer_.insert(outer_.end(), before.begin(), before.end());
  for (const Loop& l : outer_) outer_count_ *= l.size;

  std::vector<std::pair<int64_t, int64_t>> steps;  // size and stride of the positions among the rows, fastest first
  for (int64_t d = first + replaced - 1; d >= first; --d) {
    const int64_t size = rows.sizes[d], stride = rows.strides[d] * element;
    positions_ *= size;
    if (size == 1) continue;
    if (!steps.empty() && stride == steps.back().first * steps.back().second) {
      steps.back().first *= size;
    } else {
      steps.emplace_back(size, stride);
    }
  }
  if (steps.size() < 2) {
    row_stride_ = steps.empty() ? 0 : steps[0].second;
    return;
  }
  row_offsets_.resize(positions_);
  for (int64_t p = 0; p < positions_; ++p) {
    int64_t rest = p, offset = 0;
    for (auto [size, stride] : steps) {
      offset += rest % size * stride;
      rest /= size;
    }
    row_offsets_[p] = offset;
  }
}

RowBlock RowMove::block(int64_t outer) const {
  RowBlock b{table_,      rows_,      nullptr,   row_offsets_.empty() ? nullptr : row_offsets_.data(),
             row_stride_, positions_, run_.size, run_.table,
             run_.rows};
  for (const Loop& l : outer_) {
    const int64_t i = outer % l.size;
    outer /= l.size;
    b.table += i * l.table;
    b.rows += i * l.rows;
  }
  return b;
}

void RowMove::read_range(const IndexedDims& dims, const int64_t* offsets, RowLoop loop, int64_t begin,
                         int64_t end) const {
  int64_t buffer[kBlock];
  while (begin < end) {
    const int64_t p = begin % positions_;
    const int64_t count = std::min({positions_ - p, end - begin, offsets ? positions_ : kBlock});
    RowBlock b = block(begin / positions_);
    if (offsets) {
      b.offsets = offsets + p;
    } else {
      dims.offsets(p, p + count, buffer);
      b.offsets = buffer;
    }
    if (b.row_offsets) {
      b.row_offsets += p;
    } else {
      b.rows += p * row_stride_;
    }
    b.count = count;
    loop(b, nullptr);
    begin += count;
  }
}

void RowMove::read(const IndexedDims& dims, RowLoop loop) const {
  if (work() == 0) return;
  std::unique_ptr<int64_t[]> offsets;
  const int64_t items = outer_count_ * positions_;
  const bool by_columns = items < 4 * get_num_threads() && run_.size > 1 && work() > kGrain;
  if (outer_count_ > 1 || by_columns) {
    offsets.reset(new int64_t[positions_]);
    dims.offsets(0, positions_, offsets.get());
  }
  if (!by_columns) {
    parallel_for(0, items, std::max<int64_t>(1, kGrain / run_.size),
                 [&](int64_t begin, int64_t end) { read_range(dims, offsets.get(), loop, begin, end); });
    return;
  }
  parallel_for(0, run_.size, std::max<int64_t>(1, kGrain / items), [&](int64_t begin, int64_t end) {
    RowMove part(*this);
    part.run_.size = end - begin;
    part.table_ += begin * run_.table;
    part.rows_ += begin * run_.rows;
    part.read_range(dims, offsets.get(), loop, 0, items);
  });
}

// ---- writing

PositionsByRow::PositionsByRow(const int64_t* rows, int64_t count, int64_t num_rows)
    : begin(num_rows + 1, 0), order(count) {
  auto wrapped = [&](int64_t p) { return rows[p] < 0 ? rows[p] + num_rows : rows[p]; };
  for (int64_t p = 0; p < count; ++p) ++begin[wrapped(p) + 1];
  for (int64_t r = 0; r < num_rows; ++r) {
    largest = std::max(largest, begin[r + 1]);
    begin[r + 1] += begin[r];
  }
  std::vector<int64_t> next(begin.begin(), begin.end() - 1);
  for (int64_t p = 0; p < count; ++p) order[next[wrapped(p)]++] = p;
}

int64_t PositionsByRow::row_at(int64_t part, int64_t parts) const {
  const auto rows = static_cast<int64_t>(begin.size()) - 1;
  if (part == parts) return rows;
  const auto count = static_cast<int64_t>(order.size());
  return std::min<int64_t>(rows, std::lower_bound(begin.begin(), begin.end(), count * part / parts) - begin.begin());
}

void RowMove::write_slices(const int64_t* offsets, RowLoop loop, const void* context, int64_t begin,
                           int64_t end) const {
  for (int64_t o = begin; o < end; ++o) {
    RowBlock b = block(o);
    b.offsets = offsets;
    loop(b, context);
  }
}

void RowMove::write(const IndexedDims& dims, RowLoop loop, const void* context) const {
  const std::unique_ptr<int64_t[]> offsets(new int64_t[positions_]);
  dims.offsets(0, positions_, offsets.get());
  if (work() == 0) return;
  const int threads = work() < 2 * kGrain ? 1 : get_num_threads();
  if (threads == 1) return write_slices(offsets.get(), loop, context, 0, outer_count_);
  if (outer_count_ >= threads) {
    return parallel_for(0, outer_count_, 1,
                        [&](int64_t begin, int64_t end) { write_slices(offsets.get(), loop, context, begin, end); });
  }
  const bool wide = run_.size * std::min<int64_t>(std::abs(run_.table), 64) >= kColumnBytes * threads;
  if (wide && !write_grouped(dims, offsets.get(), loop, context)) write_columns(offsets.get(), loop, context);
  if (!wide) write_owned(offsets.get(), loop, context);
}

// Positions are grouped by row, so that a row that is named several times is written several times in succession, while
// it is in the cache. Every thread gets rows with about the same number of positions. Returns false if one row has too
// many for that.
bool RowMove::write_grouped(const IndexedDims& dims, const int64_t* offsets, RowLoop loop, const void* context) const {
  if (dims.dims.size() != 1 || dims.dims[0].size > 8 * positions_) return false;
  const PositionsByRow groups(dims.dims[0].index, positions_, dims.dims[0].size);
  const int threads = get_num_threads();
  if (groups.largest > positions_ / (2 * threads)) return false;
  std::vector<int64_t> places(positions_), sources(positions_);
  for (int64_t k = 0; k < positions_; ++k) {
    places[k] = offsets[groups.order[k]];
    sources[k] = row_offset(groups.order[k]);
  }
  parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = groups.begin[groups.row_at(begin, threads)], last = groups.begin[groups.row_at(end, threads)];
    for (int64_t o = 0; o < outer_count_; ++o) {
      RowBlock b = block(o);
      b.offsets = places.data() + first;
      b.row_offsets = sources.data() + first;
      b.count = last - first;
      loop(b, context);
    }
  });
  return true;
}

// Every thread writes a part of each row, beginning where a cache line would if the row did.
void RowMove::write_columns(const int64_t* offsets, RowLoop loop, const void* context) const {
  constexpr int64_t kLine = 64;
  parallel_for(0, (run_.size + kLine - 1) / kLine, 1, [&](int64_t begin, int64_t end) {
    RowMove part(*this);
    part.run_.size = std::min(end * kLine, run_.size) - begin * kLine;
    part.table_ += begin * kLine * run_.table;
    part.rows_ += begin * kLine * run_.rows;
    part.write_slices(offsets, loop, context, 0, outer_count_);
  });
}

// Every thread looks at all positions and takes those whose place lies in its part of the table.
void RowMove::write_owned(const int64_t* offsets, RowLoop loop, const void* context) const {
  const auto [lowest, highest] = std::minmax_element(offsets, offsets + positions_);
  const int64_t low = *lowest;
  const int threads = get_num_threads();
  const int64_t span = (*highest - low) / threads + 1;
  parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    const int64_t from = low + begin * span, to = low + end * span;
    int64_t places[kBlock], sources[kBlock];
    for (int64_t o = 0; o < outer_count_; ++o) {
      RowBlock b = block(o);
      b.offsets = places;
      b.row_offsets = sources;
      for (int64_t first = 0; first < positions_; first += kBlock) {
        b.count = 0;
        for (int64_t p = first; p < std::min(first + kBlock, positions_); ++p) {
          places[b.count] = offsets[p];
          sources[b.count] = row_offset(p);
          b.count += offsets[p] >= from && offsets[p] < to;
        }
        loop(b, context);
      }
    }
  });
}

}  // namespace mica::cpu
