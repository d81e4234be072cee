// One row of sort(): with indices, or values alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace mica::cpu {

// Memory that one thread's sorts of consecutive rows share; grows, never shrinks.
class SortScratch {
 public:
  // Contents are not kept from one call to the next.
  uint64_t* words(int slot, int64_t count) {
    Buffer& buffer = buffers_[slot];
    if (buffer.capacity < count) {
      buffer.words = std::make_unique_for_overwrite<uint64_t[]>(static_cast<size_t>(count));
      buffer.capacity = count;
    }
    return buffer.words.get();
  }

 private:
  struct Buffer {
    std::unique_ptr<uint64_t[]> words;
    int64_t capacity = 0;
  };
  Buffer buffers_[2];
};

// A strided run of elements; a null data pointer marks an output that is not wanted.
template <class T>
struct Row {
  T* data;
  int64_t stride;

  T& operator[](int64_t i) const { return data[i * stride]; }
};

template <class T>
void sort_row_with_indices(Row<const T> in, int64_t n, bool descending, Row<T> values, Row<int64_t> indices,
                           SortScratch& scratch, int parts);

template <class T>
void sort_row_values(Row<const T> in, int64_t n, bool descending, Row<T> values, SortScratch& scratch, int parts);

// The way for rows whose indices do not fit the 32 bits that sort_row_with_indices packs them into.
template <class T>
void sort_huge_row_with_indices(Row<const T> in, int64_t n, bool descending, Row<T> values, Row<int64_t> indices);

}  // namespace mica::cpu
