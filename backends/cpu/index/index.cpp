// index, index_put, index_select, index_add: rows at the places that indices name.
#include "backends/cpu/index/rows.h"
#include "backends/cpu/register.h"

namespace mica::cpu {

namespace {

void index_kernel(const TensorView& out, const TensorView& self, int64_t first, TensorViewList indices) {
  const IndexedDims dims(self, first, indices);
  RowMove(self, out, first, static_cast<int64_t>(indices.size()), indices[0]->ndim)
      .read(dims, row_reader(element_size(self.dtype)));
}

void index_put_kernel(const TensorView& self, int64_t first, TensorViewList indices, const TensorView& values,
                      bool accumulate) {
  const IndexedDims dims(self, first, indices);
  const RowMove move(self, values, first, static_cast<int64_t>(indices.size()), indices[0]->ndim);
  if (accumulate) {
    const RowAdder adder("index_put", self.dtype, Scalar(1));
    move.write(dims, adder.loop, adder.alpha);
  } else {
    move.write(dims, row_writer(element_size(self.dtype)), nullptr);
  }
}

void index_select_kernel(const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index) {
  const TensorView* indices[] = {&index};
  index_kernel(out, self, dim, TensorViewList(indices));
}

void index_add_kernel(const TensorView& self, int64_t dim, const TensorView& index, const TensorView& source,
                      Scalar alpha) {
  const TensorView* indices[] = {&index};
  const IndexedDims dims(self, dim, TensorViewList(indices));
  const RowAdder adder("index_add", self.dtype, alpha);
  RowMove(self, source, dim, 1, 1).write(dims, adder.loop, adder.alpha);
}

MICA_REGISTER_CPU(index, index_kernel);
MICA_REGISTER_CPU(index_put, index_put_kernel);
MICA_REGISTER_CPU(index_select, index_select_kernel);
MICA_REGISTER_CPU(index_add, index_add_kernel);

}  // namespace
}  // namespace mica::cpu
