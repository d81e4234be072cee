// index, index_put, index_select, index_add: rows at the places that indices name.
#include <algorithm>
#include <memory>

#include "backends/cpu/index/rows.h"
#include "backends/cpu/register.h"
#include "mica/parallel.h"

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

// For histograms: int64 elements are added to a small table, of which every thread has its own. Sums of integers do not
// depend on their order.
bool add_counts(const IndexedDims& dims, const TensorView& self, const TensorView& source, Scalar alpha) {
  constexpr int64_t kMostBins = 1 << 14, kGrain = 1 << 15;
  if (self.dtype != DType::Int64 || self.ndim != 1 || self.strides[0] != 1 || source.ndim != 1 ||
      alpha != Scalar(int64_t{1}) || self.numel > kMostBins || dims.positions < 4 * self.numel)
    return false;
  const int64_t bins = self.numel, step = source.strides[0];
  const int64_t* index = dims.dims[0].index;
  const int64_t* from = source.ptr<const int64_t>();
  dims.check();
  const int64_t threads = std::clamp<int64_t>(dims.positions / kGrain, 1, get_num_threads());
  const std::unique_ptr<uint64_t[]> tables(new uint64_t[static_cast<size_t>(threads * bins)]());
  parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      uint64_t* table = tables.get() + t * bins;
      const int64_t end = dims.positions * (t + 1) / threads;
      for (int64_t p = dims.positions * t / threads; p < end; ++p)
        table[index[p] < 0 ? index[p] + bins : index[p]] += static_cast<uint64_t>(from[p * step]);
    }
  });
  auto* to = self.ptr<uint64_t>();
  for (int64_t t = 0; t < threads; ++t)
    for (int64_t i = 0; i < bins; ++i) to[i] += tables[static_cast<size_t>(t * bins + i)];
  return true;
}

void index_add_kernel(const TensorView& self, int64_t dim, const TensorView& index, const TensorView& source,
                      Scalar alpha) {
  const TensorView* indices[] = {&index};
  const IndexedDims dims(self, dim, TensorViewList(indices));
  if (add_counts(dims, self, source, alpha)) return;
  const RowAdder adder("index_add", self.dtype, alpha);
  RowMove(self, source, dim, 1, 1).write(dims, adder.loop, adder.alpha);
}

MICA_REGISTER_CPU(index, index_kernel);
MICA_REGISTER_CPU(index_put, index_put_kernel);
MICA_REGISTER_CPU(index_select, index_select_kernel);
MICA_REGISTER_CPU(index_add, index_add_kernel);

}  // namespace
}  // namespace mica::cpu
