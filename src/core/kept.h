// Arrangements of weights that kernels keep for their next call: filters and matrices in the order in which products
// read them. Making one takes about as long as a product of few rows with it.
//
// They are kept within compiled functions, from the second call on, if nobody has asked for the weight's memory between
// the calls. Meanwhile the weight is held (StorageImpl::hold): code that asks for its memory, other than kernels that
// only read it, comes to StorageImpl::settle(), and the arrangements are forgotten before the memory can change. They
// are also forgotten when the weight's storage is freed. Nothing is kept of weights that are trained, because the
// backward pass asks for their memory, nor of memory whose address another library has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mica/backend/tensor_view.h"
#include "mica/tensor.h"

namespace mica::kept {

struct Weight;

// While this object lives, kernels that this thread calls may keep arrangements of the weight.
class Scope {
 public:
  explicit Scope(const Tensor& weight);
  explicit Scope(StorageImpl* weight);  // of a call that a compiled function has put off
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();

 private:
  void open(StorageImpl* weight);
  std::shared_ptr<Weight> weight_;
  std::shared_ptr<Weight>* before_ = nullptr;  // that of the scope around this one
};

// A view for a kernel that only reads the tensor: nothing is forgotten because of it.
const TensorView& view_to_read(const Tensor& t);

// Tells apart the arrangements of one weight: where the part begins, and how it is arranged.
struct Key {
  enum class Kind : int64_t {
    WinogradFilters,
    DirectFilters,
    DepthwiseFilters,
    MatrixPanels,
    ProductPanels,
    RecurrentPanels
  };
  const void* data;
  Kind kind;
  int64_t numbers[12] = {};
  friend bool operator==(const Key&, const Key&) = default;
};

// Memory that an earlier call has filled, or memory to fill. Where nothing may be kept, it belongs to the caller alone.
class Memory {
 public:
  Memory(const Key& key, size_t bytes);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();
  bool is_filled() const { return filled_; }
  void set_filled();  // lets other calls read it
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Key key_;
  size_t bytes_;
  void* data_ = nullptr;
  bool filled_ = false;
  std::shared_ptr<void> shared_;    // owns the data, where other calls may read it too
  std::shared_ptr<Weight> weight_;  // the weight that keeps it
};

// Whether this arrangement is kept already, or there is room for it.
bool may_keep(const Key& key, size_t bytes);

// Drops the arrangements of this storage: no later call reads them.
void forget(const StorageImpl& storage);
size_t bytes();  // the number of bytes that are kept

}  // namespace mica::kept
