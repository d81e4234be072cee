#include "backends/cpu/pointwise/packing.h"

#include <complex>
#include <cstring>

#include "backends/cpu/pointwise/nest.h"
#include "backends/cpu/pointwise/transpose.h"

namespace mica::cpu {

namespace {

template <class T>
void copy_row_of(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n) {
  constexpr int64_t kSize = sizeof(T);
  if (to_stride == kSize && from_stride == kSize && n >= 16) {
    std::memcpy(to, from, static_cast<size_t>(n * kSize));
  } else if (to_stride == kSize && from_stride == 0) {
    T* out = reinterpret_cast<T*>(to);
    const T value = *reinterpret_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) out[i] = value;
  } else if (to_stride == kSize && n >= 16) {
    gather_elements(kSize, from, from_stride, n, to);
  } else {
    for (int64_t i = 0; i < n; ++i)
      *reinterpret_cast<T*>(to + i * to_stride) = *reinterpret_cast<const T*>(from + i * from_stride);
  }
}

// Calls f with a type of `size` bytes.
template <class F>
void with_element_of(int64_t size, const F& f) {
  switch (size) {
    case 1:
      return f(uint8_t());
    case 2:
      return f(uint16_t());
    case 4:
      return f(uint32_t());
    case 8:
      return f(uint64_t());
    default:
      return f(std::complex<double>());
  }
}

// Calls f(address of the operand, offset in the packed order, elements) for every piece of a row.
template <class F>
void for_each_piece(const PointwiseLoop& loop, int operand, int64_t begin, int64_t count, const F& f) {
  Odometer at(loop, begin);
  const int64_t stride = loop.strides[0][operand];
  char* start[kOperands];
  start[operand] = at.address(operand) - at.column() * stride;
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min(count - done, at.left_in_row());
    f(start[operand] + at.column() * stride, done, n);
    done += n;
    at.next_row(start, operand, operand + 1);
  }
}

}  // namespace

void gather(const PointwiseLoop& loop, int operand, int64_t begin, int64_t count, char* to) {
  const int64_t stride = loop.strides[0][operand];
  with_element_of(element_size(loop.dtypes[operand]), [&]<class T>(T) {
    for_each_piece(loop, operand, begin, count, [&](const char* from, int64_t offset, int64_t n) {
      copy_row_of<T>(to + offset * sizeof(T), sizeof(T), from, stride, n);
    });
  });
}

void scatter(const PointwiseLoop& loop, int operand, int64_t begin, int64_t count, const char* from) {
  const int64_t stride = loop.strides[0][operand];
  with_element_of(element_size(loop.dtypes[operand]), [&]<class T>(T) {
    for_each_piece(loop, operand, begin, count, [&](char* to, int64_t offset, int64_t n) {
      copy_row_of<T>(to, stride, from + offset * sizeof(T), sizeof(T), n);
    });
  });
}

void copy_row(int64_t size, char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n) {
  with_element_of(size, [&]<class T>(T) { copy_row_of<T>(to, to_stride, from, from_stride, n); });
}

void copy_rectangle(int64_t size, char* to, int64_t to_row, int64_t to_column, const char* from, int64_t from_row,
                    int64_t from_column, int64_t rows, int64_t columns) {
  if (to_column == size && from_row == size) return transpose(size, from, from_column, to, to_row, columns, rows);
  if (to_row == size && from_column == size) return transpose(size, from, from_row, to, to_column, rows, columns);
  with_element_of(size, [&]<class T>(T) {
    for (int64_t r = 0; r < rows; ++r)
      copy_row_of<T>(to + r * to_row, to_column, from + r * from_row, from_column, columns);
  });
}

}  // namespace mica::cpu
