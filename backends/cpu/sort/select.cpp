// kthvalue, median and mode. The value is found by radix selection. Where several elements are equal to it, the index
// is one that torch's choice of algorithm happens to leave at the wanted rank: the same algorithm is then run over
// again.
#include "backends/cpu/sort/select.h"

#include <cstring>

#include "backends/cpu/sort/rows.h"
#include "backends/cpu/sort/sort.h"
#include "backends/cpu/sort/sort_row.h"

namespace mica::cpu {
namespace {

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

// Finds the index of an element of a row by its keys.
template <class K>
class RowSelector {
 public:
  RowSelector(int64_t n, bool wants_index, bool has_nan, ReadKeys<K> read)
      : n_(n), wants_index_(wants_index), has_nan_(has_nan), read_(read) {}

  void read_row(const void* row, int64_t stride) {
    keys_.reserve(n_);
    read_(row, stride, 0, n_, keys_.data());
  }

  int64_t kthvalue(int64_t rank) {
    const auto torch_index = [&](int64_t) {
      KeyedIndex<K>* items = keyed_indices();
      quickselect(items, n_, rank);
      return items[rank].index;
    };
    constexpr int64_t kShort = 512;
    const bool is_integer = !has_nan_;  // of integers several are mostly equal
    return is_integer && wants_index_ && n_ <= kShort ? torch_index(0) : select(rank, torch_index);
  }

  int64_t median(NanPolicy policy) {
    constexpr K kNan = std::numeric_limits<K>::max();
    int64_t numbers = n_;
    if (has_nan_) {
      numbers -= count_keys(kNan).equal;
      if (numbers < n_ && policy == NanPolicy::Propagate) return find_key(kNan, 0);
    }
    const int64_t rank = numbers == 0 ? 0 : (numbers - 1) / 2;
    return select(rank, [&](int64_t smaller) {
      const K key = selected_;
      int64_t index = find_key(key, 0);
      for (int64_t equals_before = rank - smaller; equals_before > 0; --equals_before) index = find_key(key, index + 1);
      return index;
    });
  }

  int64_t mode() {
    KeyedIndex<K>* items = keyed_indices();
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
    return items[best_last].index;
  }

 private:
  KeyedIndex<K>* keyed_indices() {
    items_.reserve(n_);
    for (int64_t i = 0; i < n_; ++i) items_[i] = {keys_[i], i};
    return items_.data();
  }

  struct KeyCount {
    int64_t smaller, equal;
  };
  // In blocks that are counted in the keys' own type, so that a vector has as many counters as keys.
  KeyCount count_keys(K key) {
    constexpr int64_t kBlock = 128;
    const K* keys = keys_.data();
    KeyCount total{0, 0};
    for (int64_t begin = 0; begin < n_; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, n_);
      K smaller = 0, equal = 0;
      for (int64_t i = begin; i < end; ++i) {
        smaller = static_cast<K>(smaller + (keys[i] < key));
        equal = static_cast<K>(equal + (keys[i] == key));
      }
      total.smaller += smaller;
      total.equal += equal;
    }
    return total;
  }

  // The first place from `begin` on of a key that is there.
  int64_t find_key(K key, int64_t begin) {
    constexpr int64_t kBlock = 32;
    const K* keys = keys_.data();
    for (; begin + kBlock <= n_; begin += kBlock) {
      K found = 0;
      for (int64_t i = begin; i < begin + kBlock; ++i) found = static_cast<K>(found | (keys[i] == key));
      if (found) break;
    }
    while (keys[begin] != key) ++begin;
    return begin;
  }

  template <class TiedIndex>
  int64_t select(int64_t rank, TiedIndex&& tied_index) {
    work_.reserve(n_);
    std::copy_n(keys_.data(), n_, work_.data());
    selected_ = select_key(work_.data(), n_, rank);
    if (wants_index_) {
      const KeyCount count = count_keys(selected_);
      if (count.equal > 1) return tied_index(count.smaller);
    }
    return find_key(selected_, 0);
  }

  int64_t n_;
  bool wants_index_, has_nan_;
  ReadKeys<K> read_;
  K selected_{};
  ScratchArray<K> keys_, work_;  // keys of all elements, and of those that the selection has not ruled out
  ScratchArray<KeyedIndex<K>> items_;
};

struct ReduceCall {
  const RowShape& shape;
  Rows<const void> in;
  Rows<void> values;
  Rows<int64_t> indices;
};

template <class K, class IndexOf>
void reduce_rows_by_keys(const ReduceCall& call, bool has_nan, ReadKeys<K> read, const IndexOf& index_of) {
  constexpr int64_t kBytes = sizeof(K);
  for_each_row_range(call.shape.rows(), call.shape.n, 1, [&](int64_t first, int64_t last) {
    RowSelector<K> selector(call.shape.n, call.indices.data != nullptr, has_nan, read);
    RowCursor<3> at(call.shape.batch, {call.in.batch_strides, call.values.batch_strides, call.indices.batch_strides},
                    first);
    for (int64_t row = first; row < last; ++row, at.next()) {
      const char* in = static_cast<const char*>(call.in.data) + at.offset(0) * kBytes;
      selector.read_row(in, call.in.stride);
      const int64_t index = index_of(selector);
      if (call.values.data)
        std::memcpy(static_cast<char*>(call.values.data) + at.offset(1) * kBytes, in + index * call.in.stride * kBytes,
                    kBytes);
      if (call.indices.data) call.indices.data[at.offset(2)] = index;
    }
  });
}

template <class IndexOf>
void reduce_rows(const char* op, DType dtype, const ReduceCall& call, const IndexOf& index_of) {
  check_batch_rank(op, call.shape);
  MICA_CHECK_KIND(call.shape.n > 0 || call.shape.rows() == 0, Index, op,
                  "(): Expected reduction dim to have non-zero size.");
  visit_ordered(op, dtype,
                [&]<class T>() { reduce_rows_by_keys<OrderKey<T>>(call, kHasNan<T>, read_keys<T>, index_of); });
}

}  // namespace

void kthvalue(DType dtype, const RowShape& shape, int64_t k, Rows<const void> in, Rows<void> values,
              Rows<int64_t> indices) {
  MICA_CHECK(k >= 1 && k <= shape.n, "kthvalue(): selected number k out of range: got k = ", k,
             " for a dimension of size ", shape.n);
  reduce_rows("kthvalue", dtype, {shape, in, values, indices},
              [k](auto& selector) { return selector.kthvalue(k - 1); });
}

void median(DType dtype, const RowShape& shape, NanPolicy policy, Rows<const void> in, Rows<void> values,
            Rows<int64_t> indices) {
  reduce_rows(policy == NanPolicy::Propagate ? "median" : "nanmedian", dtype, {shape, in, values, indices},
              [policy](auto& selector) { return selector.median(policy); });
}

void mode(DType dtype, const RowShape& shape, Rows<const void> in, Rows<void> values, Rows<int64_t> indices) {
  reduce_rows("mode", dtype, {shape, in, values, indices}, [](auto& selector) { return selector.mode(); });
}

}  // namespace mica::cpu
