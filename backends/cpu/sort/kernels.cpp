// Fills the kernel slots of sorting with the functions of sort.h.
#include "backends/cpu/register.h"
#include "backends/cpu/sort/sort.h"
#include "mica/backend/kernel_types.h"
#include "mica/core/array_ref.h"

namespace mica::cpu {

namespace {

// A tensor seen as rows along `dim`; a 0-dim tensor is one row of one element.
struct AsRows {
  DimVector batch, strides;
  int64_t n = 1, stride = 1;

  AsRows(const TensorView& v, int64_t dim) {
    for (int d = 0; d < v.ndim; ++d) {
      if (d == dim) {
        n = v.sizes[d];
        stride = v.strides[d];
      } else {
        batch.push_back(v.sizes[d]);
        strides.push_back(v.strides[d]);
      }
    }
  }
  RowShape shape() const { return {{batch.data(), batch.size()}, n}; }
  template <class T>
  Rows<T> rows(void* data) const {
    return {static_cast<T*>(data), {strides.data(), strides.size()}, stride};
  }
};

void sort_kernel(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim,
                 bool descending) {
  const AsRows in(self, dim), v(values, dim), i(indices, dim);
  sort(self.dtype, in.shape(), in.rows<const void>(self.data), v.rows<void>(values.data), i.rows<int64_t>(indices.data),
       descending);
}

void topk_kernel(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t k, int64_t dim,
                 bool largest, bool sorted) {
  const AsRows in(self, dim), v(values, dim), i(indices, dim);
  topk(self.dtype, in.shape(), k, in.rows<const void>(self.data), v.rows<void>(values.data),
       i.rows<int64_t>(indices.data), largest, sorted);
}

void kthvalue_kernel(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t k,
                     int64_t dim) {
  const AsRows in(self, dim), v(values, dim), i(indices, dim);
  kthvalue(self.dtype, in.shape(), k, in.rows<const void>(self.data), v.rows<void>(values.data),
           i.rows<int64_t>(indices.data));
}

void median_kernel(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim,
                   bool ignore_nan) {
  const AsRows in(self, dim), v(values, dim), i(indices, dim);
  median(self.dtype, in.shape(), ignore_nan ? NanPolicy::Ignore : NanPolicy::Propagate, in.rows<const void>(self.data),
         v.rows<void>(values.data), i.rows<int64_t>(indices.data));
}

void mode_kernel(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim) {
  const AsRows in(self, dim), v(values, dim), i(indices, dim);
  mode(self.dtype, in.shape(), in.rows<const void>(self.data), v.rows<void>(values.data),
       i.rows<int64_t>(indices.data));
}

// Boundaries have the queries' leading dimensions, or one row for all of them; everything is contiguous.
void searchsorted_kernel(const TensorView& positions, const TensorView& boundaries, const TensorView& queries,
                         const TensorView& sorter, bool right) {
  const int64_t n = boundaries.sizes[boundaries.ndim - 1];
  const bool shared = boundaries.ndim == 1;
  const int64_t rows = shared ? 1 : (n ? boundaries.numel / n : 0);
  int64_t queries_per_row = shared ? queries.numel : queries.sizes[queries.ndim - 1];
  int64_t batch[1] = {rows}, boundary_stride[1] = {shared ? 0 : n}, query_stride[1] = {queries_per_row};
  if (!shared && n == 0) batch[0] = queries_per_row ? queries.numel / queries_per_row : 0;
  const RowShape shape{{batch, 1}, n};
  const Rows<const void> edges{boundaries.data, {boundary_stride, 1}, 1};
  const Rows<const int64_t> order{sorter.defined() ? sorter.ptr<const int64_t>() : nullptr, {boundary_stride, 1}, 1};
  const Rows<const void> asked{queries.data, {query_stride, 1}, 1};
  const SearchSide side = right ? SearchSide::Right : SearchSide::Left;
  if (positions.dtype == DType::Int32) {
    searchsorted<int32_t>(boundaries.dtype, shape, edges, order, queries_per_row, asked,
                          {positions.ptr<int32_t>(), {query_stride, 1}, 1}, side);
  } else {
    searchsorted<int64_t>(boundaries.dtype, shape, edges, order, queries_per_row, asked,
                          {positions.ptr<int64_t>(), {query_stride, 1}, 1}, side);
  }
}

void unique_kernel(const TensorView& values, const TensorView& inverse, const TensorView& counts,
                   const TensorView& self, bool consecutive, int64_t* count) {
  auto* find = consecutive ? unique_consecutive : unique;
  *count = find(self.dtype, self.data, self.numel, values.data, inverse.defined() ? inverse.ptr<int64_t>() : nullptr,
                counts.defined() ? counts.ptr<int64_t>() : nullptr);
}

void order_rows_kernel(const TensorView& places, const TensorView& rows) {
  order_rows(rows.dtype, rows.data, rows.sizes[0], rows.sizes[1], places.ptr<int64_t>());
}

MICA_REGISTER_CPU(sort, sort_kernel);
MICA_REGISTER_CPU(topk, topk_kernel);
MICA_REGISTER_CPU(kthvalue, kthvalue_kernel);
MICA_REGISTER_CPU(median, median_kernel);
MICA_REGISTER_CPU(mode, mode_kernel);
MICA_REGISTER_CPU(searchsorted, searchsorted_kernel);
MICA_REGISTER_CPU(unique, unique_kernel);
MICA_REGISTER_CPU(order_rows, order_rows_kernel);

}  // namespace
}  // namespace mica::cpu
