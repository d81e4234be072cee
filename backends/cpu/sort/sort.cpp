#include "backends/cpu/sort/sort.h"

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/rows.h"
#include "backends/cpu/sort/sort_row.h"

namespace mica::cpu {

void sort(DType dtype, const RowShape& shape, Rows<const void> in, Rows<void> values, Rows<int64_t> indices,
          bool descending) {
  check_batch_rank("sort", shape);
  const int64_t rows = shape.rows(), n = shape.n;
  if (n == 0 || (values.data == nullptr && indices.data == nullptr)) return;
  const int parts = parts_per_row(rows, n);
  visit_ordered("sort", dtype, [&]<class T>() {
    for_each_row_range(rows, n, parts, [&](int64_t first, int64_t last) {
      SortScratch scratch;
      RowCursor<3> at(shape.batch, {in.batch_strides, values.batch_strides, indices.batch_strides}, first);
      for (int64_t row = first; row < last; ++row, at.next()) {
        const Row<const T> in_row{static_cast<const T*>(in.data) + at.offset(0), in.stride};
        const Row<T> values_row{values.data ? static_cast<T*>(values.data) + at.offset(1) : nullptr, values.stride};
        if (indices.data) {
          const Row<int64_t> indices_row{indices.data + at.offset(2), indices.stride};
          sort_row_with_indices(in_row, n, descending, values_row, indices_row, scratch, parts);
        } else {
          sort_row_values(in_row, n, descending, values_row, scratch, parts);
        }
      }
    });
  });
}

}  // namespace mica::cpu
