#include <algorithm>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/sort.h"

namespace mica::cpu {
namespace {

// Whether a row comes before another: whether its first element that differs from the other's is less. A NaN is neither
// less nor greater than its counterpart, so the elements behind it decide.
template <class T>
bool comes_before(const void* rows, int64_t width, int64_t first, int64_t second) {
  const T *a = static_cast<const T*>(rows) + first * width, *b = static_cast<const T*>(rows) + second * width;
  for (int64_t c = 0; c < width; ++c) {
    const auto x = order_key(a[c]), y = order_key(b[c]);
    if (x == y || (kHasNan<T> && (x == kNanKey<T> || y == kNanKey<T>))) continue;
    return x < y;
  }
  return false;
}

// Moves each row before the rows that it comes before. A row that comes before the first one goes there at once,
// because the rows between need not agree where some hold NaN.
template <class Before>
void insert_one_by_one(int64_t* places, int64_t n, const Before& before) {
  for (int64_t i = 1; i < n; ++i) {
    const int64_t place = places[i];
    int64_t to = before(place, places[0]) ? 0 : i;
    if (to != 0)
      while (before(place, places[to - 1])) --to;
    std::copy_backward(places + to, places + i, places + i + 1);
    places[to] = place;
  }
}

}  // namespace

void order_rows(DType dtype, const void* rows, int64_t n, int64_t width, int64_t* places) {
  for (int64_t i = 0; i < n; ++i) places[i] = i;
  decltype(&comes_before<float>) compare = nullptr;  // so that the sort is compiled once for all dtypes
  visit_ordered("unique_dim", dtype, [&]<class T>() { compare = comes_before<T>; });
  const auto before = [&](int64_t a, int64_t b) { return compare(rows, width, a, b); };
  // Rows with NaN have no order of their own. Few rows are inserted one after the other, as torch does it. More rows
  // are merged, which ends whatever `before` answers; std::sort does not promise that.
  constexpr int64_t kInserted = 16;
  if (n <= kInserted)
    insert_one_by_one(places, n, before);
  else
    std::stable_sort(places, places + n, before);
}

}  // namespace mica::cpu
