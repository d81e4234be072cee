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
template <class T>
struct PackElement {
  int dims;
  int64_t sizes[kMaxDims];
  int64_t* indices;
  int64_t row;
  T* packed;
  const T* from;
  __device__ void operator()(int64_t i, int64_t to) const {
    packed[to] = from[i];
    for (int d = dims - 1; d > 0; --d) {
      const int64_t next = i / sizes[d];
      indices[d * row + to] = i - next * sizes[d];
      i = next;
    }
    indices[to] = i;
  }
};

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
  MICA_CHECK(dense.ndim <= kMaxDims, "to_sparse on CUDA takes up to ", kMaxDims, " dimensions");
  visit_truth(dense.dtype, [&]<class T>(Tag<T>, Truth<T> truth) {
    PackElement<T> visit{dense.ndim,          {}, indices.ptr<int64_t>(), indices.strides[0], values.ptr<T>(),
                         dense.ptr<const T>()};
    for (int d = 0; d < dense.ndim; ++d) visit.sizes[d] = dense.sizes[d];
    select_where(dense, elements<T>(dense, truth), offsets, visit);
  });
}

}  // namespace mica::cuda
