// Non-owning views of integer and tensor lists, and an owning list of dimensions that lives inline up to kInlineDims.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

// A braced list that is bound to a parameter of these types lives as long as the call.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif

namespace mica {

template <class T>
class ArrayRef {
 public:
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(std::initializer_list<T> list) : data_(list.begin()), size_(list.size()) {}
  ArrayRef(const std::vector<T>& v) : data_(v.data()), size_(v.size()) {}
  template <size_t N>
  constexpr ArrayRef(const T (&a)[N]) : data_(a), size_(N) {}
  constexpr const T* data() const { return data_; }
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](size_t i) const { return data_[i]; }
  constexpr const T& front() const { return data_[0]; }
  constexpr const T& back() const { return data_[size_ - 1]; }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  constexpr ArrayRef slice(size_t from, size_t count) const { return {data_ + from, count}; }
  friend bool operator==(ArrayRef a, ArrayRef b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

// A list of integers as schemas take it: a single integer counts as a list of one, and is kept by value so that it may
// be a temporary. Two words, so that it is passed in registers.
class IntArrayRef {
 public:
  constexpr IntArrayRef() : data_(nullptr) {}
  constexpr IntArrayRef(const int64_t* data, size_t size) : data_(data), size_(size) {}
  constexpr IntArrayRef(std::initializer_list<int64_t> list) : data_(list.begin()), size_(list.size()) {}
  constexpr IntArrayRef(ArrayRef<int64_t> a) : data_(a.data()), size_(a.size()) {}
  IntArrayRef(const std::vector<int64_t>& v) : data_(v.data()), size_(v.size()) {}
  template <size_t N>
  constexpr IntArrayRef(const int64_t (&a)[N]) : data_(a), size_(N) {}
  constexpr IntArrayRef(int64_t one) : one_(one), size_(kByValue | 1) {}
  constexpr IntArrayRef(int one) : one_(one), size_(kByValue | 1) {}
  constexpr const int64_t* data() const { return by_value() ? &one_ : data_; }
  constexpr const int64_t* begin() const { return data(); }
  constexpr const int64_t* end() const { return data() + size(); }
  constexpr size_t size() const { return size_ & ~kByValue; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr int64_t operator[](size_t i) const { return by_value() ? one_ : data_[i]; }
  constexpr int64_t front() const { return data()[0]; }
  constexpr int64_t back() const { return data()[size() - 1]; }
  std::vector<int64_t> vec() const { return std::vector<int64_t>(begin(), end()); }
  IntArrayRef slice(size_t from, size_t count) const { return {data() + from, count}; }
  friend bool operator==(const IntArrayRef& a, const IntArrayRef& b) {
    if (a.size() != b.size()) return false;
    const int64_t *x = a.data(), *y = b.data();
    for (size_t i = 0, n = a.size(); i < n; ++i)
      if (x[i] != y[i]) return false;
    return true;
  }

 private:
  static constexpr size_t kByValue = ~(~size_t{0} >> 1);  // the highest bit
  constexpr bool by_value() const { return size_ & kByValue; }

  union {
    const int64_t* data_;
    int64_t one_;  // in a list that is kept by value
  };
  size_t size_ = 0;
};
static_assert(sizeof(IntArrayRef) == 16 && std::is_trivially_copyable_v<IntArrayRef>);

// An owning, growable list of dimensions. No heap up to kInlineDims entries.
class DimVector {
 public:
  static constexpr size_t kInlineDims = 8;
  DimVector() = default;
  explicit DimVector(size_t n, int64_t value = 0) { resize(n, value); }
  DimVector(IntArrayRef a) { assign(a); }
  DimVector(std::initializer_list<int64_t> a) { assign(IntArrayRef(a)); }
  DimVector(const DimVector& o) { assign(o); }
  DimVector(DimVector&& o) noexcept { take(o); }
  DimVector& operator=(const DimVector& o) {
    if (this != &o) assign(o);
    return *this;
  }
  DimVector& operator=(DimVector&& o) noexcept {
    if (this != &o) {
      if (data_ != inline_) delete[] data_;
      take(o);
    }
    return *this;
  }
  ~DimVector() {
    if (data_ != inline_) delete[] data_;
  }
  operator IntArrayRef() const { return {data_, size_}; }
  IntArrayRef ref() const { return {data_, size_}; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return data_; }
  const int64_t* data() const { return data_; }
  int64_t* begin() { return data_; }
  int64_t* end() { return data_ + size_; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + size_; }
  int64_t& operator[](size_t i) { return data_[i]; }
  int64_t operator[](size_t i) const { return data_[i]; }
  int64_t& back() { return data_[size_ - 1]; }
  int64_t back() const { return data_[size_ - 1]; }
  void push_back(int64_t v) {
    if (size_ == capacity_) grow(size_ + 1);
    data_[size_++] = v;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  void resize(size_t n, int64_t value = 0) {
    if (n > capacity_) grow(n);
    for (size_t i = size_; i < n; ++i) data_[i] = value;
    size_ = n;
  }
  void insert(size_t at, int64_t v) {
    push_back(v);
    for (size_t i = size_ - 1; i > at; --i) data_[i] = data_[i - 1];
    data_[at] = v;
  }
  void erase(size_t at) {
    for (size_t i = at; i + 1 < size_; ++i) data_[i] = data_[i + 1];
    --size_;
  }
  void assign(IntArrayRef a) {
    if (a.size() > capacity_) grow(a.size());
    const int64_t* from = a.data();
    if (from != data_)
      for (size_t i = 0, n = a.size(); i < n; ++i) data_[i] = from[i];
    size_ = a.size();
  }

 private:
  void grow(size_t n) {
    size_t capacity = n > 2 * capacity_ ? n : 2 * capacity_;
    auto* bigger = new int64_t[capacity];
    std::memcpy(bigger, data_, size_ * sizeof(int64_t));
    if (data_ != inline_) delete[] data_;
    data_ = bigger;
    capacity_ = capacity;
  }
  void take(DimVector& o) {
    if (o.data_ == o.inline_) {
      data_ = inline_;
      capacity_ = kInlineDims;
      std::memcpy(inline_, o.inline_, o.size_ * sizeof(int64_t));
    } else {
      data_ = o.data_;
      capacity_ = o.capacity_;
      o.data_ = o.inline_;
      o.capacity_ = kInlineDims;
    }
    size_ = o.size_;
    o.size_ = 0;
  }
  int64_t inline_[kInlineDims];
  int64_t* data_ = inline_;
  size_t size_ = 0;
  size_t capacity_ = kInlineDims;
};

void append_to(std::string& s, IntArrayRef dims);  // "[2, 3]"

}  // namespace mica

#pragma GCC diagnostic pop
