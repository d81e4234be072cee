// Memory for the length of a kernel, from the cache that tensors use: aligned, uninitialised.
#pragma once

#include <cstdint>

#include "mica/allocator.h"

namespace mica::cpu {

template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : bytes_(static_cast<size_t>(count) * sizeof(T)), data_(static_cast<T*>(cpu_allocate(bytes_))) {}
  ~Scratch() { cpu_free(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  size_t bytes_;
  T* data_;
};

}  // namespace mica::cpu
