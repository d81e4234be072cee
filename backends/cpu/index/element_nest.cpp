#include "backends/cpu/index/element_nest.h"

namespace mica::cpu {

ElementNest::ElementNest(const TensorView& table_view, int64_t dim, const TensorView& index_view,
                         const TensorView& dense_view)
    : index(index_view.ptr<const int64_t>()),
      dense(dense_view.ptr<char>()),
      table(table_view.ptr<char>()),
      dim_stride(table_view.strides[dim]),
      dim_size(table_view.sizes[dim]),
      element(element_size(table_view.dtype)) {
  for (int64_t d = index_view.ndim - 1; d >= 0; --d) {
    const Loop loop{index_view.sizes[d], index_view.strides[d], dense_view.strides[d],
                    d == dim ? 0 : table_view.strides[d], d == dim};
    numel *= loop.size;
    if (loop.size == 1) continue;
    if (!loops.empty()) {
      Loop& last = loops.back();
      const bool continues = loop.index == last.index * last.size && loop.dense == last.dense * last.size &&
                             loop.table == last.table * last.size && !loop.is_dim && !last.is_dim;
      if (continues) {
        last.size *= loop.size;
        continue;
      }
    }
    loops.push_back(loop);
  }
  if (loops.empty()) loops.push_back({1, 1, 1, 0, true});
}

ElementNest ElementNest::part(size_t loop, int64_t begin, int64_t end) const {
  ElementNest p(*this);
  Loop& l = p.loops[loop];
  p.index += begin * l.index;
  p.dense += begin * l.dense * element;
  p.table += begin * l.table * element;
  p.numel = l.size ? numel / l.size * (end - begin) : 0;
  l.size = end - begin;
  return p;
}

}  // namespace mica::cpu
