// What kernels have made of a weight that stays as it is, kept for their next call: filters and matrices in the order
// in which products read them, which takes about as long to bring about as products of few rows with them.
//
// Things are kept within compiled functions, from the second call on between which nobody has asked for the weight's
// memory. The weight is held meanwhile (StorageImpl::hold): whoever asks for its memory, but for kernels that only read
// it, comes to StorageImpl::settle(), and what was kept is forgotten before the memory can change. So it is when the
// weight's storage goes. Of weights that are trained nothing is kept: the backward pass asks for them. Memory whose
// address another library has is left alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mica/backend/tensor_view.h"
#include "mica/tensor.h"

namespace mica::kept {

struct Weight;

// Kernels that this thread calls may keep what they make of the weight, for as long as this lives.
class Scope {
 public:
  explicit Scope(const Tensor& weight);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();

 private:
  std::shared_ptr<Weight> weight_;
};

// A view of what a kernel only reads: nothing is forgotten for it.
const TensorView& view_to_read(const Tensor& t);

// What tells the things that are made of one weight apart: where it begins, and how it is arranged.
struct Key {
  enum class Kind : int64_t { WinogradFilters, DirectFilters, MatrixPanels, ProductPanels, RecurrentPanels };
  const void* data;
  Kind kind;
  int64_t numbers[12] = {};
  friend bool operator==(const Key&, const Key&) = default;
};

// Memory that an earlier call has filled, or memory to fill. Where nothing may be kept it is the caller's own.
class Memory {
 public:
  Memory(const Key& key, size_t bytes);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();
  bool is_filled() const { return filled_; }
  void set_filled();  // other calls may read it now
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Key key_;
  size_t bytes_;
  void* data_ = nullptr;
  bool filled_ = false;
  std::shared_ptr<void> shared_;    // what owns the data, where others may read it, too
  std::shared_ptr<Weight> weight_;  // where it is to be kept
};

// Whether such a thing is kept already, or there is room for it.
bool may_keep(const Key& key, size_t bytes);

// Nobody reads what was kept of this storage any more.
void forget(const StorageImpl& storage);
size_t bytes();  // that are kept

}  // namespace mica::kept
