// One row of sort(): with indices, or values alone.
#pragma once

#include <cstdint>

#include "mica/allocator.h"

namespace mica::cpu {

// Uninitialised elements from the tensor allocator: huge pages, and none of them faulted in again on every call.
template <class T>
class ScratchArray {
 public:
  ScratchArray() = default;
  explicit ScratchArray(int64_t size) : size_(size), data_(static_cast<T*>(cpu_allocate(bytes()))) {}
  ~ScratchArray() { cpu_free(data_, bytes()); }
  ScratchArray(const ScratchArray&) = delete;
  ScratchArray& operator=(const ScratchArray&) = delete;

  // Forgets the contents.
  void reserve(int64_t size) {
    if (size <= size_) return;
    cpu_free(data_, bytes());
    data_ = nullptr;
    size_ = 0;
    data_ = static_cast<T*>(cpu_allocate(static_cast<size_t>(size) * sizeof(T)));
    size_ = size;
  }
  T* data() { return data_; }
  T& operator[](int64_t i) { return data_[i]; }

 private:
  size_t bytes() const { return static_cast<size_t>(size_) * sizeof(T); }

  int64_t size_ = 0;
  T* data_ = nullptr;
};

// Memory that one thread's sorts of consecutive rows share; grows, never shrinks.
class SortScratch {
 public:
  // Contents are not kept from one call to the next.
  uint64_t* words(int slot, int64_t count) {
    slots_[slot].reserve(count);
    return slots_[slot].data();
  }

 private:
  ScratchArray<uint64_t> slots_[2];
};

// A strided run of elements; a null data pointer marks an output that is not wanted.
template <class T>
struct Row {
  T* data;
  int64_t stride;

  T& operator[](int64_t i) const { return data[i * stride]; }
};

// A row whose elements are only moved: bytes of each, and a stride that counts elements.
template <class Byte>
struct RowBytes {
  Byte* data;
  int64_t stride;

  template <int kBytes>
  Byte* at(int64_t i) const {
    return data + i * stride * kBytes;
  }
};

template <class T>
void sort_row_with_indices(Row<const T> in, int64_t n, bool descending, Row<T> values, Row<int64_t> indices,
                           SortScratch& scratch, int parts);

template <class T>
void sort_row_values(Row<const T> in, int64_t n, bool descending, Row<T> values, SortScratch& scratch, int parts);

// For rows whose indices do not fit the 32 bits into which sort_row_with_indices packs them.
template <class T>
void sort_huge_row_with_indices(Row<const T> in, int64_t n, bool descending, Row<T> values, Row<int64_t> indices);

}  // namespace mica::cpu
