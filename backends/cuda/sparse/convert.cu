// Between sparse and dense memory, and between lists of rows and their compressed form.
#include "backends/cuda/index/atomic.cuh"
#include "backends/cuda/index/select.cuh"

namespace mica::cuda {

namespace {

// How many of the sorted rows are below r.
struct BeginOfRow {
  int64_t* begins;
  const int64_t* rows;
  int64_t n;
  __device__ void operator()(int64_t r) const {
    int64_t low = 0, high = n;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (rows[middle] < r) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begins[r] = low;
  }
};
// The row whose elements number i is among.
struct RowOfElement {
  int64_t* rows;
  const int64_t* begins;
  int64_t count;
  __device__ void operator()(int64_t i) const {
    int64_t low = 0, high = count;  // the last row that begins at i or before
    while (low + 1 < high) {
      const int64_t middle = (low + high) / 2;
      if (begins[middle] <= i) {
        low = middle;
      } else {
        high = middle;
      }
    }
    rows[i] = low;
  }
};

template <class T>
struct AddAtKeys {
  T* out;
  const int64_t* keys;
  const T* values;
  int64_t width;
  compute_t<T> factor;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / width, j = i - row * width;
    T* const place = out + keys[row] * width + j;
    if constexpr (std::is_same_v<T, bool>) {
      if (values[i] && factor) *place = true;
    } else {
      using C = compute_t<T>;
      atomic_add(place, convert<T>(static_cast<C>(factor * convert<C>(values[i]))));
    }
  }
};

// A warp for each row.
template <class T>
struct ScatterRow {
  T* out;
  const int64_t *begins, *columns;
  const T* values;
  int64_t width;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / 32;
    for (int64_t at = begins[row] + i % 32; at < begins[row + 1]; at += 32) out[row * width + columns[at]] = values[at];
  }
};

constexpr int kMaxDims = 64;
// The indices of an element of a dense tensor, one below the other in a matrix.
struct Unravel {
  int dims;
  bool narrow;  // positions fit 31 bits, whose division is cheap
  int64_t sizes[kMaxDims];
  Divider dividers[kMaxDims];
  int64_t* indices;
  int64_t row;
  explicit Unravel(const TensorView& dense, const TensorView& to)
      : dims(dense.ndim), narrow(dense.numel < (int64_t{1} << 31)), indices(to.ptr<int64_t>()), row(to.strides[0]) {
    MICA_CHECK(dims <= kMaxDims, "to_sparse on CUDA takes up to ", kMaxDims, " dimensions");
    for (int d = 0; d < dims; ++d) {
      sizes[d] = dense.sizes[d];
      if (narrow) dividers[d] = Divider(static_cast<uint32_t>(sizes[d]));
    }
  }
  __device__ void operator()(int64_t i, int64_t to) const {
    if (narrow) {
      auto rest = static_cast<uint32_t>(i);
      for (int d = dims - 1; d > 0; --d) {
        const uint32_t next = dividers[d].divide(rest);
        indices[d * row + to] = rest - next * dividers[d].divisor;
        rest = next;
      }
      indices[to] = rest;
      return;
    }
    for (int d = dims - 1; d > 0; --d) {
      const int64_t next = i / sizes[d];
      indices[d * row + to] = i - next * sizes[d];
      i = next;
    }
    indices[to] = i;
  }
};

// The elements of a chunk that differ from zero: their places are put side by side first, so that whole warps compute
// indices and write neighbours.
template <class T>
__global__ void __launch_bounds__(kThreads) pack_kernel(int64_t n, int64_t chunk, const T* from, Truth<T> truth,
                                                        const int64_t* offsets, Unravel unravel, T* packed) {
  __shared__ uint16_t taken[kTile];
  constexpr int kCount = sizeof(T) < 16 ? static_cast<int>(sizeof(T) == 1 ? 8 : 16 / sizeof(T)) : 1;
  using Piece = Vector<T, kCount>;
  const int64_t begin = blockIdx.x * chunk, end = begin + chunk < n ? begin + chunk : n;
  if (begin >= end) return;
  const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0;
  // A bit for each of a thread's elements of a tile.
  const auto look = [&](int64_t tile) {
    const int64_t first = tile + threadIdx.x * kPerThread;
    uint32_t bits = 0;
    if (aligned && first + kPerThread <= end) {
#pragma unroll
      for (int k = 0; k < kPerThread / kCount; ++k) {
        const Piece piece = *reinterpret_cast<const Piece*>(from + first + k * kCount);
#pragma unroll
        for (int j = 0; j < kCount; ++j) bits |= static_cast<uint32_t>(truth(piece.item[j])) << (k * kCount + j);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j)
        bits |= static_cast<uint32_t>(first + j < end && truth(from[first + j])) << j;
    }
    return bits;
  };
  int64_t to = offsets[blockIdx.x];
  uint32_t next = look(begin);
  for (int64_t tile = begin; tile < end; tile += kTile) {
    uint32_t bits = next;
    if (tile + kTile < end) next = look(tile + kTile);  // on its way while this one is packed
    int total;
    int place = sum_before<kThreads>(__popc(bits), total);
    for (; bits; bits &= bits - 1)
      taken[place++] = static_cast<uint16_t>(threadIdx.x * kPerThread + static_cast<unsigned>(__ffs(bits)) - 1);
    __syncthreads();
    for (int e = threadIdx.x; e < total; e += kThreads) {
      const int64_t i = tile + taken[e];
      packed[to + e] = from[i];
      unravel(i, to + e);
    }
    to += total;
  }
}

}  // namespace

void sparse_compress(const TensorView& compressed, const TensorView& rows) {
  DeviceGuard guard(compressed.device.index());
  for_each(compressed.device.index(), compressed.numel,
           BeginOfRow{compressed.ptr<int64_t>(), rows.ptr<const int64_t>(), rows.numel});
}

void sparse_expand_rows(const TensorView& rows, const TensorView& compressed) {
  DeviceGuard guard(rows.device.index());
  for_each(rows.device.index(), rows.numel,
           RowOfElement{rows.ptr<int64_t>(), compressed.ptr<const int64_t>(), compressed.numel - 1});
}

void sparse_add_at_keys(const TensorView& out, const TensorView& keys, const TensorView& values, const Scalar& alpha) {
  DeviceGuard guard(out.device.index());
  const int64_t width = out.sizes[1];
  if (width == 0) return;
  visit_number_bool("sparse_add", out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), keys.numel * width,
             AddAtKeys<T>{out.ptr<T>(), keys.ptr<const int64_t>(), values.ptr<const T>(), width,
                          number<compute_t<T>>(alpha)});
  });
}

void sparse_scatter_rows(const TensorView& out, const TensorView& compressed, const TensorView& plain,
                         const TensorView& values) {
  const int device = out.device.index();
  DeviceGuard guard(device);
  if (out.numel == 0) return;
  const int64_t size = element_size(out.dtype);
  MICA_CUDA(cudaMemsetAsync(out.data, 0, static_cast<size_t>(out.numel * size), current_stream(device)));
  visit_size(size, [&]<class T>(Tag<T>) {
    for_each(device, out.sizes[0] * 32,
             ScatterRow<T>{out.ptr<T>(), compressed.ptr<const int64_t>(), plain.ptr<const int64_t>(),
                           values.ptr<const T>(), out.sizes[1]});
  });
}

void sparse_pack(const TensorView& indices, const TensorView& values, const TensorView& dense,
                 const TensorView& offsets) {
  DeviceGuard guard(dense.device.index());
  if (dense.numel == 0) return;
  visit_truth(dense.dtype, [&]<class T>(Tag<T>, Truth<T> truth) {
    pack_kernel<<<static_cast<unsigned>(offsets.numel - 1), kThreads, 0, current_stream(dense.device.index())>>>(
        dense.numel, chunk_size(dense.numel, offsets), dense.ptr<const T>(), truth, offsets.ptr<const int64_t>(),
        Unravel(dense, indices), values.ptr<T>());
    MICA_CUDA(cudaGetLastError());
  });
}

}  // namespace mica::cuda
