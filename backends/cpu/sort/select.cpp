// kthvalue, median and mode. The value is found by radix selection. Where several elements are equal to it, the index
// is one that torch's choice of algorithm happens to leave at the wanted rank: the same algorithm is then run over
// again.
#include "backends/cpu/sort/select.h"

#include "backends/cpu/sort/rows.h"
#include "backends/cpu/sort/sort.h"
#include "backends/cpu/sort/sort_row.h"

namespace mica::cpu {
namespace {

template <class T>
struct RowSelection {
  T value;
  int64_t index;
};

template <class K>
struct KeyedIndex {
  K key;
  int64_t index;
};

// Quickselect with the median of three as pivot, in the textbook form that partitions from both ends.
template <class K>
void quickselect(KeyedIndex<K>* items, int64_t n, int64_t rank) {
  int64_t left = 0, right = n - 1;
  const auto order = [&](int64_t a, int64_t b) {
    if (items[a].key > items[b].key) std::swap(items[a], items[b]);
  };
  while (right > left + 1) {
    std::swap(items[(left + right) / 2], items[left + 1]);
    order(left + 1, right);
    order(left, right);
    order(left + 1, left);
    const K pivot = items[left].key;
    int64_t up = left + 1, down = right;
    for (;;) {
      do ++up;
      while (items[up].key < pivot);
      do --down;
      while (items[down].key > pivot);
      if (down < up) break;
      std::swap(items[up], items[down]);
    }
    std::swap(items[left], items[down]);
    if (down <= rank) left = up;
    if (down >= rank) right = down - 1;
  }
  if (right == left + 1) order(left, right);
}

template <class T>
class RowSelector {
  using K = OrderKey<T>;

 public:
  RowSelector(int64_t n, bool wants_index) : n_(n), wants_index_(wants_index) {}

  RowSelection<T> kthvalue(Row<const T> in, int64_t rank) {
    return select(in, rank, [&](K, int64_t) {
      KeyedIndex<K>* items = keyed_indices(in);
      quickselect(items, n_, rank);
      return items[rank].index;
    });
  }

  RowSelection<T> median(Row<const T> in, NanPolicy policy) {
    int64_t numbers = n_;
    if constexpr (kHasNan<T>) {
      for (int64_t i = 0; i < n_; ++i) {
        if (order_key(in[i]) != kNanKey<T>) continue;
        if (policy == NanPolicy::Propagate) return {in[i], i};
        --numbers;
      }
    }
    const int64_t rank = numbers == 0 ? 0 : (numbers - 1) / 2;
    return select(in, rank, [&](K key, int64_t first) {
      int64_t equals_before = rank;
      for (int64_t i = 0; i < n_; ++i) equals_before -= order_key(in[i]) < key;
      int64_t index = first;
      for (; equals_before > 0; --equals_before) {
        do ++index;
        while (order_key(in[index]) != key);
      }
      return index;
    });
  }

  RowSelection<T> mode(Row<const T> in) {
    KeyedIndex<K>* items = keyed_indices(in);
    std::sort(items, items + n_, [](const auto& a, const auto& b) { return a.key < b.key; });
    int64_t best_length = 0, best_last = 0;
    for (int64_t begin = 0; begin < n_;) {
      int64_t end = begin + 1;
      while (end < n_ && items[end].key == items[begin].key) ++end;
      if (end - begin > best_length) {
        best_length = end - begin;
        best_last = end - 1;
      }
      begin = end;
    }
    const int64_t index = items[best_last].index;
    return {in[index], index};
  }

 private:
  KeyedIndex<K>* keyed_indices(Row<const T> in) {
    items_.reserve(n_);
    for (int64_t i = 0; i < n_; ++i) items_[i] = {order_key(in[i]), i};
    return items_.data();
  }

  template <class TiedIndex>
  RowSelection<T> select(Row<const T> in, int64_t rank, TiedIndex&& tied_index) {
    keys_.reserve(n_);
    for (int64_t i = 0; i < n_; ++i) keys_[i] = order_key(in[i]);
    const K key = select_key(keys_.data(), n_, rank);
    int64_t first = 0;
    while (order_key(in[first]) != key) ++first;
    if (!wants_index_) return {in[first], first};
    for (int64_t i = first + 1; i < n_; ++i) {
      if (order_key(in[i]) == key) {
        const int64_t index = tied_index(key, first);
        return {in[index], index};
      }
    }
    return {in[first], first};
  }

  int64_t n_;
  bool wants_index_;
  ScratchArray<K> keys_;
  ScratchArray<KeyedIndex<K>> items_;
};

template <class PerRow>
void reduce_rows(const char* op, DType dtype, const RowShape& shape, Rows<const void> in, Rows<void> values,
                 Rows<int64_t> indices, PerRow&& per_row) {
  check_batch_rank(op, shape);
  const int64_t rows = shape.rows();
  MICA_CHECK_KIND(shape.n > 0 || rows == 0, Index, op, "(): Expected reduction dim to have non-zero size.");
  visit_ordered(op, dtype, [&]<class T>() {
    for_each_row_range(rows, shape.n, 1, [&](int64_t first, int64_t last) {
      RowSelector<T> selector(shape.n, indices.data != nullptr);
      RowCursor<3> at(shape.batch, {in.batch_strides, values.batch_strides, indices.batch_strides}, first);
      for (int64_t row = first; row < last; ++row, at.next()) {
        const RowSelection<T> found =
            per_row(selector, Row<const T>{static_cast<const T*>(in.data) + at.offset(0), in.stride});
        if (values.data) static_cast<T*>(values.data)[at.offset(1)] = found.value;
        if (indices.data) indices.data[at.offset(2)] = found.index;
      }
    });
  });
}

}  // namespace

void kthvalue(DType dtype, const RowShape& shape, int64_t k, Rows<const void> in, Rows<void> values,
              Rows<int64_t> indices) {
  MICA_CHECK(k >= 1 && k <= shape.n, "kthvalue(): selected number k out of range: got k = ", k,
             " for a dimension of size ", shape.n);
  reduce_rows("kthvalue", dtype, shape, in, values, indices,
              [k](auto& selector, auto row) { return selector.kthvalue(row, k - 1); });
}

void median(DType dtype, const RowShape& shape, NanPolicy policy, Rows<const void> in, Rows<void> values,
            Rows<int64_t> indices) {
  reduce_rows(policy == NanPolicy::Propagate ? "median" : "nanmedian", dtype, shape, in, values, indices,
              [policy](auto& selector, auto row) { return selector.median(row, policy); });
}

void mode(DType dtype, const RowShape& shape, Rows<const void> in, Rows<void> values, Rows<int64_t> indices) {
  reduce_rows("mode", dtype, shape, in, values, indices, [](auto& selector, auto row) { return selector.mode(row); });
}

}  // namespace mica::cpu
