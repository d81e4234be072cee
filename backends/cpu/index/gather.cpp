// gather: a dense result, read through one index per element.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/index/gather.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/index/element_bytes.h"
#include "backends/cpu/index/element_nest.h"
#include "backends/cpu/simd_register.h"
#include "mica/error.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether all of n consecutive indices lie in [0, size).
HWY_ATTR bool all_inside(const int64_t* index, int64_t n, int64_t size) {
  const hn::ScalableTag<uint64_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limit = hn::Set(d, static_cast<uint64_t>(size));
  auto outside = hn::Lt(limit, hn::Zero(d));
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    outside = hn::Or(outside, hn::Not(hn::Lt(hn::LoadU(d, reinterpret_cast<const uint64_t*>(index + j)), limit)));
  bool inside = hn::AllFalse(d, outside);
  for (; j < n; ++j) inside &= static_cast<uint64_t>(index[j]) < static_cast<uint64_t>(size);
  return inside;
}

// dense[j] = table[index[j]] for checked indices. Gather instructions are not used: an element is two loads and a store
// either way, and protections against leaks make those instructions several times slower on some processors.
template <class T>
HWY_INLINE void gather_row(T* HWY_RESTRICT dense, const T* HWY_RESTRICT table, const int64_t* HWY_RESTRICT index,
                           int64_t n) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    const T x0 = table[index[j]], x1 = table[index[j + 1]], x2 = table[index[j + 2]], x3 = table[index[j + 3]];
    dense[j] = x0, dense[j + 1] = x1, dense[j + 2] = x2, dense[j + 3] = x3;
  }
  for (; j < n; ++j) dense[j] = table[index[j]];
}

template <class T>
HWY_ATTR void gather_run(const ElementRun& r, int64_t dim, int64_t size) {
  auto* dense = reinterpret_cast<T*>(r.dense);
  auto* table = reinterpret_cast<const T*>(r.table);
  constexpr int64_t kBlock = 512;
  for (int64_t begin = 0; begin < r.count; begin += kBlock) {
    const int64_t n = r.count - begin < kBlock ? r.count - begin : kBlock;
    const int64_t* index = r.index + begin * r.index_stride;
    T* to = dense + begin * r.dense_stride;
    bool inside = true;
    if (r.index_stride == 1) {
      inside = all_inside(index, n, size);
    } else {
      for (int64_t j = 0; j < n; ++j)
        inside &= static_cast<uint64_t>(index[j * r.index_stride]) < static_cast<uint64_t>(size);
    }
    if (!inside) {
      for (int64_t j = 0; j < n; ++j) {
        const int64_t i = index[j * r.index_stride];
        MICA_CHECK(i >= 0 && i < size, "index ", i, " is out of bounds for dimension ", dim, " with size ", size);
      }
    }
    if (r.index_stride == 1 && r.dense_stride == 1 && r.table_stride == 0 && r.dim_stride == 1) {
      gather_row(to, table, index, n);
      continue;
    }
    const T* from = table + begin * r.table_stride;
    for (int64_t j = 0; j < n; ++j)
      to[j * r.dense_stride] = from[index[j * r.index_stride] * r.dim_stride + j * r.table_stride];
  }
}

void gather_kernel(const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index) {
  const ElementNest nest(self, dim, index, out);
  constexpr int64_t kGrain = 16384;
  visit_element_size(nest.element, [&]<class T>(Tag<T>) {
    parallel_for(0, nest.numel, kGrain, [&](int64_t begin, int64_t end) {
      nest.for_range(begin, end, [&](const ElementRun& run) { gather_run<T>(run, dim, nest.dim_size); });
    });
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(gather_kernel);
MICA_REGISTER_SIMD(gather, gather_kernel);
}  // namespace mica::cpu
#endif
