// The inner loops of rows.h: copies by element size, sums by dtype.
#include <cstring>

#include "backends/cpu/index/element_bytes.h"
#include "backends/cpu/index/rows.h"
#include "backends/cpu/pointwise/transpose.h"
#include "backends/cpu/visit_dtype.h"
#include "backends/shared/read_element.h"

namespace mica::cpu {

namespace {

// Short rows are copied element by element, in registers; a call of memcpy costs more than they do.
constexpr int64_t kShortRow = 64;

// The processor finds the rest of a row by itself, but not the next row.
void prefetch_row(const RowBlock& b, int64_t p) {
  if (p >= b.count) return;
  for (int64_t line = 0; line < 4; ++line) {
    __builtin_prefetch(b.table + b.offsets[p] + 64 * line);
    __builtin_prefetch(b.row(p) + 64 * line);
  }
}

template <class T, bool kRead>
void copy_rows(const RowBlock& b, const void*) {
  auto move = [](char* table, char* row) {
    auto& a = *reinterpret_cast<T*>(table);
    auto& r = *reinterpret_cast<T*>(row);
    (kRead ? r : a) = kRead ? a : r;
  };
  if (b.run == 1) {
    if (!b.row_offsets && b.row_stride == sizeof(T)) {
      for (int64_t p = 0; p < b.count; ++p) move(b.table + b.offsets[p], b.rows + p * static_cast<int64_t>(sizeof(T)));
    } else {
      for (int64_t p = 0; p < b.count; ++p) move(b.table + b.offsets[p], b.row(p));
    }
    return;
  }
  const int64_t bytes = b.run * static_cast<int64_t>(sizeof(T));
  if (b.run_table == sizeof(T) && b.run_rows == sizeof(T) && bytes > kShortRow) {
    for (int64_t p = 0; p < b.count; ++p) {
      prefetch_row(b, p + 1);
      char *place = b.table + b.offsets[p], *row = b.row(p);
      std::memcpy(kRead ? row : place, kRead ? place : row, static_cast<size_t>(bytes));
    }
    return;
  }
  if constexpr (kRead && sizeof(T) <= 8) {
    if (b.run_rows == sizeof(T) && bytes > kShortRow) {
      for (int64_t p = 0; p < b.count; ++p)
        gather_elements(sizeof(T), b.table + b.offsets[p], b.run_table, b.run, b.row(p));
      return;
    }
  }
  for (int64_t p = 0; p < b.count; ++p) {
    char *place = b.table + b.offsets[p], *row = b.row(p);
    for (int64_t i = 0; i < b.run; ++i) move(place + i * b.run_table, row + i * b.run_rows);
  }
}

template <class T>
T scaled_sum(T to, T from, T alpha, bool scale) {
  if constexpr (std::is_same_v<T, bool>) {
    return to || (from && alpha);
  } else if constexpr (std::is_integral_v<T>) {
    const auto term = scale ? static_cast<uint64_t>(from) * static_cast<uint64_t>(alpha) : static_cast<uint64_t>(from);
    return static_cast<T>(static_cast<uint64_t>(to) + term);
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    const float term = scale ? static_cast<float>(from) * static_cast<float>(alpha) : static_cast<float>(from);
    return T(static_cast<float>(to) + term);
  } else {
    return to + (scale ? from * alpha : from);
  }
}

template <class T, bool kScale>
void add_rows(const RowBlock& b, const void* context) {
  const T alpha = *static_cast<const T*>(context);
  for (int64_t p = 0; p < b.count; ++p) {
    char *place = b.table + b.offsets[p], *row = b.row(p);
    if (b.run_table == sizeof(T) && b.run_rows == sizeof(T)) {
      if (b.run * static_cast<int64_t>(sizeof(T)) > 256) prefetch_row(b, p + 1);
      auto* to = reinterpret_cast<T*>(place);
      auto* from = reinterpret_cast<const T*>(row);
#pragma GCC ivdep
      for (int64_t i = 0; i < b.run; ++i) to[i] = scaled_sum(read_element(to[i]), read_element(from[i]), alpha, kScale);
    } else {
      for (int64_t i = 0; i < b.run; ++i) {
        auto& to = *reinterpret_cast<T*>(place + i * b.run_table);
        to = scaled_sum(read_element(to), read_element(*reinterpret_cast<const T*>(row + i * b.run_rows)), alpha,
                        kScale);
      }
    }
  }
}

}  // namespace

RowLoop row_reader(int64_t element_size) {
  return visit_element_size(element_size, []<class T>(Tag<T>) -> RowLoop { return copy_rows<T, true>; });
}
RowLoop row_writer(int64_t element_size) {
  return visit_element_size(element_size, []<class T>(Tag<T>) -> RowLoop { return copy_rows<T, false>; });
}

RowAdder::RowAdder(const char* op, DType dtype, Scalar by) {
  visit_number_bool(op, dtype, [&]<class T>(Tag<T>) {
    const T value = by.cast<T>();
    static_assert(sizeof(value) <= sizeof(alpha));
    std::memcpy(alpha, static_cast<const void*>(&value), sizeof(value));
    loop = by == Scalar(1) || by == Scalar(1.0) ? add_rows<T, false> : add_rows<T, true>;
  });
}

}  // namespace mica::cpu
