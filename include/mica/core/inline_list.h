// A short list that lives inside its owner up to N entries: edges and input descriptions of a graph node need no heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <utility>

namespace mica {

template <class T, size_t N>
class InlineList {
 public:
  InlineList() = default;
  InlineList(const InlineList&) = delete;
  InlineList& operator=(const InlineList&) = delete;
  InlineList& operator=(std::initializer_list<T> values) {
    clear();
    for (const T& v : values) push_back(v);
    return *this;
  }
  ~InlineList() {
    clear();
    if (data_ != inline_data()) ::operator delete(data_);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }

  void clear() {
    std::destroy_n(data_, size_);
    size_ = 0;
  }
  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  void push_back(T value) { emplace_back(std::move(value)); }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == capacity_) grow(2 * size_t{capacity_});
    return *new (data_ + size_++) T{std::forward<Args>(args)...};
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(inline_); }
  void grow(size_t capacity) {
    T* bigger = static_cast<T*>(::operator new(capacity * sizeof(T)));
    std::uninitialized_move_n(data_, size_, bigger);
    std::destroy_n(data_, size_);
    if (data_ != inline_data()) ::operator delete(data_);
    data_ = bigger;
    capacity_ = static_cast<uint32_t>(capacity);
  }

  alignas(T) unsigned char inline_[N * sizeof(T)];
  T* data_ = inline_data();
  uint32_t size_ = 0;
  uint32_t capacity_ = N;
};

}  // namespace mica
