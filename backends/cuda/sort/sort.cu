// sort, kthvalue, median, mode, searchsorted.
#include "backends/cuda/kernels.h"
#include "backends/cuda/sort/sort_rows.h"
#include "backends/cuda/sort/sorted_index.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct Rearrange {
  SortRows rows;
  const T* in;
  T* values;
  int64_t* indices;
  const uint32_t* order;
  __device__ void operator()(int64_t i) const {
    const int64_t row = rows.row(i), j = i - row * rows.n;
    int64_t at[3];
    rows.places.at(row, at);
    const int64_t from = order[i];
    if (values) values[at[1] + j * rows.strides[1]] = in[at[0] + from * rows.strides[0]];
    if (indices) indices[at[2] + j * rows.strides[2]] = from;
  }
};

enum class Pick { Rank, Median, NanMedian, Mode };

// One element of each sorted row.
template <class T>
struct PickOne {
  SortRows rows;
  const T* in;
  T* values;
  int64_t* indices;
  const uint32_t* order;
  Pick what;
  int64_t rank;

  __device__ void operator()(int64_t row) const {
    int64_t at[3];
    rows.places.at(row, at);
    const uint32_t* sorted = order + row * rows.n;
    const T* elements = in + at[0];
    auto element = [&](int64_t j) { return elements[sorted[j] * rows.strides[0]]; };
    int64_t chosen = rank;
    if (what == Pick::Median || what == Pick::NanMedian) {
      // A NaN stands behind all numbers.
      int64_t low = 0, high = rows.n;
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (is_nan(element(middle))) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      const int64_t numbers = low;
      if (what == Pick::Median && numbers < rows.n) {
        chosen = numbers;
      } else {
        chosen = numbers == 0 ? 0 : (numbers - 1) / 2;
      }
    } else if (what == Pick::Mode) {
      int64_t longest = 0;
      for (int64_t begin = 0; begin < rows.n;) {
        const auto key = order_key(element(begin));
        int64_t end = begin + 1;
        while (end < rows.n && order_key(element(end)) == key) ++end;
        if (end - begin > longest) {
          longest = end - begin;
          chosen = end - 1;
        }
        begin = end;
      }
    }
    const int64_t from = sorted[chosen];
    if (values) values[at[1]] = elements[from * rows.strides[0]];
    if (indices) indices[at[2]] = from;
  }
};

template <class F>
void visit_ordered(const char* op, DType dtype, const F& f) {
  visit_real_bool(op, dtype, f);
}

void pick(const char* op, const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim,
          Pick what, int64_t rank) {
  if (self.numel == 0) return;
  DeviceGuard guard(self.device.index());
  const SortRows rows(self, values, indices, dim);
  visit_ordered(op, self.dtype, [&]<class T>(Tag<T>) {
    const Buffer order = sorted_index<T>(rows, self, false);
    for_each(rows.device, rows.rows,
             PickOne<T>{rows, self.ptr<const T>(), values.defined() ? values.ptr<T>() : nullptr,
                        indices.defined() ? indices.ptr<int64_t>() : nullptr,
                        static_cast<const uint32_t*>(order->data()), what, rank});
  });
}

template <class T, class P>
struct Search {
  const T* edges;
  const T* queries;
  const int64_t* sorter;
  P* out;
  int64_t n, per_row;
  bool shared, right;
  __device__ void operator()(int64_t i) const {
    using C = compute_t<T>;
    const int64_t base = shared ? 0 : i / per_row * n;
    const C query = convert<C>(queries[i]);
    int64_t low = 0, high = n;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const C edge = convert<C>(edges[base + (sorter ? sorter[base + middle] : middle)]);
      const bool before = right ? !(edge > query) : !(edge >= query);
      if (before) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    out[i] = static_cast<P>(low);
  }
};

}  // namespace

Buffer order_of(const char* op, const SortRows& rows, const TensorView& self, bool descending) {
  Buffer order;
  visit_ordered(op, self.dtype, [&]<class T>(Tag<T>) { order = sorted_index<T>(rows, self, descending); });
  return order;
}

void sort(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim, bool descending) {
  if (self.numel == 0) return;
  DeviceGuard guard(self.device.index());
  const SortRows rows(self, values, indices, dim);
  const bool known = is_integral(self.dtype) || self.dtype == DType::Bool || self.dtype == DType::Float16 ||
                     self.dtype == DType::BFloat16 || self.dtype == DType::Float32 || self.dtype == DType::Float64;
  if (known && sort_short_rows(rows, values, indices, self, descending)) return;
  visit_ordered("sort", self.dtype, [&]<class T>(Tag<T>) {
    const Buffer order = sorted_index<T>(rows, self, descending);
    for_each(rows.device, self.numel,
             Rearrange<T>{rows, self.ptr<const T>(), values.defined() ? values.ptr<T>() : nullptr,
                          indices.defined() ? indices.ptr<int64_t>() : nullptr,
                          static_cast<const uint32_t*>(order->data())});
  });
}

void kthvalue(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t k, int64_t dim) {
  pick("kthvalue", values, indices, self, dim, Pick::Rank, k - 1);
}
void median(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim, bool ignore_nan) {
  pick("median", values, indices, self, dim, ignore_nan ? Pick::NanMedian : Pick::Median, 0);
}
void mode(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim) {
  pick("mode", values, indices, self, dim, Pick::Mode, 0);
}

void searchsorted(const TensorView& positions, const TensorView& boundaries, const TensorView& queries,
                  const TensorView& sorter, bool right) {
  if (queries.numel == 0) return;
  DeviceGuard guard(queries.device.index());
  const bool shared = boundaries.ndim == 1;
  const int64_t n = boundaries.sizes[boundaries.ndim - 1];
  const int64_t per_row = shared ? 1 : queries.sizes[queries.ndim - 1];
  visit_real_bool("searchsorted", boundaries.dtype, [&]<class T>(Tag<T>) {
    auto run = [&]<class P>(P* out) {
      for_each(queries.device.index(), queries.numel,
               Search<T, P>{boundaries.ptr<const T>(), queries.ptr<const T>(),
                            sorter.defined() ? sorter.ptr<const int64_t>() : nullptr, out, n, per_row, shared, right});
    };
    if (positions.dtype == DType::Int32) return run(positions.ptr<int32_t>());
    run(positions.ptr<int64_t>());
  });
}

}  // namespace mica::cuda
