#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/sort.h"
#include "backends/cpu/sort/sort_row.h"

namespace mica::cpu {
namespace {

template <class T>
bool same_value(T a, T b) {
  return order_key(a) == order_key(b) && !(kHasNan<T> && order_key(a) == kNanKey<T>);
}

// Keeps the first element of each run of equal ones; `values` may be `in`. Element i of `in` has the place
// position_of(i) in `inverse`.
template <class T, class PositionOf>
int64_t compact_runs(const T* in, int64_t n, T* values, int64_t* inverse, int64_t* counts, PositionOf&& position_of) {
  int64_t groups = 0;
  T previous{};
  for (int64_t i = 0; i < n; ++i) {
    const T value = in[i];
    if (i == 0 || !same_value(previous, value)) {
      values[groups] = value;
      if (counts) counts[groups] = 0;
      ++groups;
    }
    if (counts) ++counts[groups - 1];
    if (inverse) inverse[position_of(i)] = groups - 1;
    previous = value;
  }
  return groups;
}

}  // namespace

int64_t unique(DType dtype, const void* in, int64_t n, void* values, int64_t* inverse, int64_t* counts) {
  const RowShape shape{{}, n};
  ScratchArray<int64_t> order(inverse ? n : 0);
  sort(dtype, shape, {in}, {values}, {inverse ? order.data() : nullptr}, false);
  return visit_ordered("unique", dtype, [&]<class T>() {
    return compact_runs(static_cast<const T*>(values), n, static_cast<T*>(values), inverse, counts,
                        [&](int64_t i) { return order[i]; });
  });
}

int64_t unique_consecutive(DType dtype, const void* in, int64_t n, void* values, int64_t* inverse, int64_t* counts) {
  return visit_ordered("unique_consecutive", dtype, [&]<class T>() {
    return compact_runs(static_cast<const T*>(in), n, static_cast<T*>(values), inverse, counts,
                        [](int64_t i) { return i; });
  });
}

}  // namespace mica::cpu
