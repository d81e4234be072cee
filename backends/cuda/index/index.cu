// Reading through indices: gather, index_select, index.
#include "backends/cuda/bounds.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int kMaxIndices = 16;

// A walk over elements of which one tensor is dense and the other, the table, is reached through indices: strides of
// the dense tensor, the table and the indices.
struct Lookup {
  Places<3> places;
  int count = 1;  // of indexed dimensions
  const int64_t* index[kMaxIndices];
  int64_t sizes[kMaxIndices], strides[kMaxIndices];
  int dims[kMaxIndices];
  bool from_end = false;
  Bounds bounds;

  // Where an element of the table lies, by its offsets and the first of its indices.
  __device__ int64_t of_table(const int64_t (&offsets)[3], int64_t given) const {
    int64_t table = offsets[1] + bounds.checked(given, sizes[0], dims[0], from_end) * strides[0];
    for (int k = 1; k < count; ++k)
      table += bounds.checked(index[k][offsets[2]], sizes[k], dims[k], from_end) * strides[k];
    return table;
  }
};

constexpr int kReadEach = 4;

// Several elements for each thread, a step for all of them at a time: all indices are on their way before the first is
// looked at, and all elements before the first is written.
template <class T>
__global__ void __launch_bounds__(kThreads) read_kernel(int64_t n, Lookup walk, T* dense, const T* table) {
  wait_for_predecessors();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kReadEach) + threadIdx.x;
  int64_t offsets[kReadEach][3], given[kReadEach];
#pragma unroll
  for (int j = 0; j < kReadEach; ++j) {
    const int64_t i = first + j * kThreads;
    if (i >= n) continue;
    walk.places.at(i, offsets[j]);
    given[j] = walk.index[0][offsets[j][2]];
  }
  T values[kReadEach];
#pragma unroll
  for (int j = 0; j < kReadEach; ++j)
    if (first + j * kThreads < n) values[j] = table[walk.of_table(offsets[j], given[j])];
#pragma unroll
  for (int j = 0; j < kReadEach; ++j)
    if (first + j * kThreads < n) dense[offsets[j][0]] = values[j];
}

// Runs whose elements lie side by side in both tensors are moved in units of up to 16 bytes.
int64_t widen(Lookup& walk, const void* dense, const void* table, int64_t element) {
  Places<3>& p = walk.places;
  if (p.ndim == 0 || p.strides[0][0] != 1 || p.strides[0][1] != 1 || p.strides[0][2] != 0) return element;
  auto divides = [&](int64_t f) {
    bool fits = p.sizes[0] % f == 0 && reinterpret_cast<uintptr_t>(dense) % static_cast<size_t>(f * element) == 0 &&
                reinterpret_cast<uintptr_t>(table) % static_cast<size_t>(f * element) == 0;
    for (int d = 1; d < p.ndim; ++d) fits = fits && p.strides[d][0] % f == 0 && p.strides[d][1] % f == 0;
    for (int k = 0; k < walk.count; ++k) fits = fits && walk.strides[k] % f == 0;
    return fits;
  };
  int64_t factor = 1;
  while (factor * 2 * element <= 16 && divides(factor * 2)) factor *= 2;
  if (factor == 1) return element;
  p.sizes[0] /= factor;
  p.numel /= factor;
  for (int d = 1; d < p.ndim; ++d) p.strides[d][0] /= factor, p.strides[d][1] /= factor;
  for (int k = 0; k < walk.count; ++k) walk.strides[k] /= factor;
  p.finish();
  return factor * element;
}

// Rows that one index names each. A row has `parts` parts, each of kReadEach times blockDim.x elements; threads along y
// have rows of their own.
template <class T>
struct RowCopy {
  T* to;
  const T* from;
  int64_t rows, width;
  int64_t to_pitch, to_step, from_step;
  unsigned parts;
};

template <class T>
__global__ void __launch_bounds__(kThreads) read_rows(RowCopy<T> c, Lookup walk) {
  wait_for_predecessors();
  const unsigned group = blockIdx.x / c.parts, part = blockIdx.x - group * c.parts;
  const int64_t row = static_cast<int64_t>(group) * blockDim.y + threadIdx.y;
  if (row >= c.rows) return;
  const int64_t from = walk.bounds.checked(walk.index[0][row], walk.sizes[0], walk.dims[0], walk.from_end);
  const auto step = static_cast<int>(blockDim.x);
  const int64_t first = static_cast<int64_t>(part) * (step * kReadEach) + threadIdx.x;
  const T* source = c.from + from * walk.strides[0] + first * c.from_step;
  T* target = c.to + row * c.to_pitch + first * c.to_step;
  T values[kReadEach];
#pragma unroll
  for (int j = 0; j < kReadEach; ++j)
    if (first + j * step < c.width) values[j] = source[j * step * c.from_step];
#pragma unroll
  for (int j = 0; j < kReadEach; ++j)
    if (first + j * step < c.width) target[j * step * c.to_step] = values[j];
}

// The same where elements of a row lie further apart in the table than rows do: neighbouring lanes read neighbouring
// rows, and tiles are turned in shared memory.
template <class T>
constexpr int kSide = sizeof(T) <= 2 ? 64 : 32;

template <class T>
__global__ void __launch_bounds__(kThreads) read_turned(RowCopy<T> c, Lookup walk) {
  constexpr int S = kSide<T>, kStep = kThreads / S;
  __shared__ T tile[S][S + 1];
  wait_for_predecessors();
  const unsigned stripe = blockIdx.x / c.parts;
  const int64_t row0 = static_cast<int64_t>(stripe) * S,
                first = static_cast<int64_t>(blockIdx.x - stripe * c.parts) * S;
  const int x = threadIdx.x % S, y = threadIdx.x / S;
  if (row0 + x < c.rows) {
    const int64_t from = walk.bounds.checked(walk.index[0][row0 + x], walk.sizes[0], walk.dims[0], walk.from_end);
    const T* source = c.from + from * walk.strides[0] + (first + y) * c.from_step;
#pragma unroll
    for (int k = 0; k < S; k += kStep)
      if (first + y + k < c.width) tile[y + k][x] = source[k * c.from_step];
  }
  __syncthreads();
  if (first + x >= c.width) return;
  T* target = c.to + (row0 + y) * c.to_pitch + (first + x) * c.to_step;
#pragma unroll
  for (int k = 0; k < S; k += kStep)
    if (row0 + y + k < c.rows) target[k * c.to_pitch] = tile[x][y + k];
}

// False where the rows are short, or where they are not all that the walk consists of.
template <class T>
bool read_by_rows(const Lookup& walk, T* to, const T* table, int device) {
  constexpr int64_t kShortest = 128;
  const Places<3>& p = walk.places;
  if (walk.count != 1 || p.ndim != 2 || p.sizes[0] < kShortest || p.strides[0][2] != 0 || p.strides[1][1] != 0 ||
      p.strides[1][2] != 1)
    return false;
  RowCopy<T> c{to, table, p.sizes[1], p.sizes[0], p.strides[1][0], p.strides[0][0], p.strides[0][1], 0};
  const bool turned = c.rows >= 32 && std::abs(c.from_step) > std::abs(walk.strides[0]);
  unsigned across = 32;
  while (across < kThreads && across * kReadEach < c.width) across *= 2;
  const int64_t down = turned ? kSide<T> : kThreads / across, part = turned ? kSide<T> : across * kReadEach;
  const int64_t parts = (c.width + part - 1) / part, blocks = (c.rows + down - 1) / down * parts;
  if (blocks >= int64_t{1} << 31) return false;
  c.parts = static_cast<unsigned>(parts);
  if (turned) {
    launch<read_turned<T>>(device, static_cast<unsigned>(blocks), kThreads, c, walk);
  } else {
    launch<read_rows<T>>(device, static_cast<unsigned>(blocks), dim3(across, kThreads / across), c, walk);
  }
  return true;
}

void read(Lookup& walk, const TensorView& out, const TensorView& table) {
  const int64_t unit = widen(walk, out.data, table.data, element_size(out.dtype));
  const int device = out.device.index();
  visit_size(unit, [&]<class T>(Tag<T>) {
    if (read_by_rows<T>(walk, out.ptr<T>(), table.ptr<const T>(), device)) return;
    launch<read_kernel<T>>(device, blocks_for(walk.places.numel, int64_t{kThreads} * kReadEach), kThreads,
                           walk.places.numel, walk, out.ptr<T>(), table.ptr<const T>());
  });
}

// gather along rows that are dense in all three tensors and fit shared memory: a block reads the whole row of the table
// and answers all indices of one row out of it.
constexpr int kGatherThreads = 512, kGatherEach = 4;
constexpr int64_t kGatherBytes = 48 * 1024;

struct GatherRows {
  Places<3> rows;        // output, table, indices
  int64_t width, count;  // elements of a row of the table, and indices of one row
  const int64_t* index;
  int dim;
  Bounds bounds;
};

template <class T>
__global__ void __launch_bounds__(kGatherThreads) gather_rows(GatherRows g, T* out, const T* table) {
  __shared__ alignas(16) T row[kGatherBytes / sizeof(T)];
  constexpr int V = 16 / sizeof(T);
  using Piece = Vector<T, V>;
  wait_for_predecessors();
  int64_t at[3];
  g.rows.at(blockIdx.x, at);
  const T* from = table + at[1];
  const auto width = static_cast<int>(g.width);
  const int pieces = reinterpret_cast<uintptr_t>(from) % 16 ? 0 : width / V;
#pragma unroll 4
  for (int i = threadIdx.x; i < pieces; i += kGatherThreads)
    reinterpret_cast<Piece*>(row)[i] = reinterpret_cast<const Piece*>(from)[i];
#pragma unroll 1
  for (int i = pieces * V + threadIdx.x; i < width; i += kGatherThreads) row[i] = from[i];
  // The next indices are on their way while these are looked up.
  const int64_t* index = g.index + at[2];
  int64_t next[kGatherEach];
  auto fetch = [&](int64_t first) {
#pragma unroll
    for (int j = 0; j < kGatherEach; ++j)
      if (first + j * kGatherThreads < g.count) next[j] = index[first + j * kGatherThreads];
  };
  fetch(threadIdx.x);
  __syncthreads();
#pragma unroll 1
  for (int64_t first = threadIdx.x; first < g.count; first += kGatherThreads * kGatherEach) {
    int64_t given[kGatherEach];
#pragma unroll
    for (int j = 0; j < kGatherEach; ++j) given[j] = next[j];
    fetch(first + kGatherThreads * kGatherEach);
#pragma unroll
    for (int j = 0; j < kGatherEach; ++j)
      if (first + j * kGatherThreads < g.count)
        out[at[0] + first + j * kGatherThreads] = row[g.bounds.checked(given[j], g.width, g.dim, false)];
  }
}

// Whether it pays to read whole rows of the table: most of their elements are asked for, and there is a row for every
// multiprocessor.
bool gathers_rows(const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index) {
  if (dim != out.ndim - 1 || out.strides[dim] != 1 || self.strides[dim] != 1 || index.strides[dim] != 1) return false;
  const int64_t width = self.sizes[dim], count = out.sizes[dim], rows = out.numel / count;
  return width >= 1024 && width * element_size(self.dtype) <= kGatherBytes && count * 2 >= width &&
         rows >= properties(out.device.index()).multiProcessorCount && rows < (int64_t{1} << 31);
}

// The table without the dimensions from `first` on that indices replace by those of `result`.
Places<3> replaced_dims(const TensorView& result, const TensorView& table, int64_t first, int64_t count,
                        int64_t replaced) {
  Places<3> places;
  int64_t step = 1;
  for (int d = result.ndim - 1; d >= 0; --d) {
    if (d >= first && d < first + replaced) {
      places.add(result.sizes[d], {result.strides[d], 0, step});
      step *= result.sizes[d];
    } else {
      const auto from = static_cast<int>(d < first ? d : d - replaced + count);
      places.add(result.sizes[d], {result.strides[d], table.strides[from], 0});
    }
  }
  places.finish();
  return places;
}

void check_not_empty(const char* op, const TensorView& out, int64_t size) {
  MICA_CHECK_KIND(out.numel == 0 || size > 0, Index, op, "(): index out of range: the indexed dimension has size 0");
}

}  // namespace

void gather(const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index) {
  if (out.numel == 0) return;
  check_not_empty("gather", out, self.sizes[dim]);
  DeviceGuard guard(out.device.index());
  const Bounds bounds = Bounds::of("gather", out.device.index());
  if (gathers_rows(out, self, dim, index)) {
    GatherRows g{{}, self.sizes[dim], out.sizes[dim], index.ptr<const int64_t>(), static_cast<int>(dim), bounds};
    for (int d = out.ndim - 2; d >= 0; --d)
      g.rows.add(out.sizes[d], {out.strides[d], self.strides[d], index.strides[d]});
    g.rows.finish();
    return visit_size(element_size(out.dtype), [&]<class T>(Tag<T>) {
      launch<gather_rows<T>>(out.device.index(), static_cast<unsigned>(g.rows.numel), kGatherThreads, g, out.ptr<T>(),
                             self.ptr<const T>());
    });
  }
  Lookup walk{};
  walk.bounds = bounds;
  for (int d = out.ndim - 1; d >= 0; --d)
    walk.places.add(out.sizes[d], {out.strides[d], d == dim ? 0 : self.strides[d], index.strides[d]});
  walk.places.finish();
  walk.index[0] = index.ptr<const int64_t>();
  walk.sizes[0] = self.sizes[dim];
  walk.strides[0] = self.strides[dim];
  walk.dims[0] = static_cast<int>(dim);
  read(walk, out, self);
}

void index_select(const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index) {
  if (out.numel == 0) return;
  check_not_empty("index_select", out, self.sizes[dim]);
  DeviceGuard guard(out.device.index());
  Lookup walk{};
  walk.bounds = Bounds::of("index_select", out.device.index());
  walk.places = replaced_dims(out, self, dim, 1, 1);
  walk.index[0] = index.ptr<const int64_t>();
  walk.sizes[0] = self.sizes[dim];
  walk.strides[0] = self.strides[dim];
  walk.dims[0] = static_cast<int>(dim);
  read(walk, out, self);
}

void index(const TensorView& out, const TensorView& self, int64_t first, TensorViewList indices) {
  if (out.numel == 0) return;
  MICA_CHECK(indices.size() <= kMaxIndices, "index(): at most ", kMaxIndices, " indices on ", out.device);
  DeviceGuard guard(out.device.index());
  Lookup walk{};
  walk.bounds = Bounds::of("index", out.device.index());
  walk.count = static_cast<int>(indices.size());
  walk.from_end = true;
  walk.places = replaced_dims(out, self, first, walk.count, indices[0]->ndim);
  for (int k = 0; k < walk.count; ++k) {
    walk.index[k] = indices[static_cast<size_t>(k)]->ptr<const int64_t>();
    walk.sizes[k] = self.sizes[first + k];
    walk.strides[k] = self.strides[first + k];
    walk.dims[k] = static_cast<int>(first) + k;
  }
  read(walk, out, self);
}

}  // namespace mica::cuda
