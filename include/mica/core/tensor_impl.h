// What a Tensor points to: a view of a storage, and the little that autograd and Python hang on it.
#pragma once

#include <atomic>
#include <memory>

#include "mica/backend/tensor_view.h"
#include "mica/core/array_ref.h"
#include "mica/core/options.h"
#include "mica/core/storage.h"

namespace mica {

struct AutogradMeta;  // include/mica/autograd.h
struct RareFacts;     // src/core/rare_facts.h

// Facts that change how an operation treats a tensor. All that is rare shares one word, so that the entry of an
// operation asks about all of it with a single test.
namespace tensor_bit {
inline constexpr uint32_t kConj = 1u << 0;           // a lazily conjugated view
inline constexpr uint32_t kNeg = 1u << 1;            // a lazily negated view
inline constexpr uint32_t kWrappedNumber = 1u << 2;  // a Python number made a 0-dim tensor: ranks lowest in promotion
inline constexpr uint32_t kInference = 1u << 3;      // made under inference_mode: no version counter, no autograd
inline constexpr uint32_t kOwnVersion = 1u << 4;     // counts its versions apart from its storage, as x.data does
inline constexpr uint32_t kNamed = 1u << 5;          // has dimension names
inline constexpr uint32_t kSparse = 1u << 6;         // has sparse parts instead of a storage
inline constexpr uint32_t kQuantized = 1u << 7;      // its integers stand for real numbers, as a quantizer says
inline constexpr uint32_t kBatched = 1u << 8;        // stands for one sample of a batch
inline constexpr uint32_t kDual = 1u << 9;           // carries a tangent, in forward-mode differentiation
inline constexpr uint32_t kLazyBits = kConj | kNeg;
inline constexpr uint32_t kForeignLayout = kSparse | kQuantized;
// Bits that send an operation's entry to its slow path.
inline constexpr uint32_t kSpecial = kLazyBits | kNamed | kForeignLayout | kBatched | kDual;
// Bits that send a view operation to its slow path. Lazy signs and quantizers are not among them: every view passes
// them on.
inline constexpr uint32_t kSpecialView = kNamed | kSparse | kBatched | kDual;
}  // namespace tensor_bit

// Why an in-place change through a view cannot be recorded; Normal where it can.
enum class ViewCreation : uint8_t { Normal, InNoGrad, InInference, MultiOutput, InCustomFunction };

// Counts the changes of tensors that count them apart from their storage.
class VersionCounter {
 public:
  explicit VersionCounter(uint32_t start) : value_(start) {}
  uint32_t get() const { return value_.load(std::memory_order_relaxed); }
  void bump() { value_.fetch_add(1, std::memory_order_relaxed); }
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (drop_reference(refs_)) delete this;
  }

 private:
  ~VersionCounter() = default;
  std::atomic<uint32_t> refs_{1};
  std::atomic<uint32_t> value_;
};

class TensorImpl {
 public:
  static constexpr int kInlineDims = 5;

  // A tensor of `sizes` and `strides` over `storage`, beginning `offset` elements into it. Nothing is checked.
  static TensorImpl* create(Storage storage, DType dtype, Device device, IntArrayRef sizes, IntArrayRef strides,
                            int64_t offset);
  static TensorImpl* create_contiguous(Storage storage, DType dtype, Device device, IntArrayRef sizes, int64_t offset);

  TensorView view;  // the first member: a kernel gets a pointer to it
  int64_t offset = 0;
  Storage storage;
  AutogradMeta* autograd = nullptr;  // owned; null while autograd has nothing to remember about the tensor
  void* python_object = nullptr;     // the Python wrapper; owned only while python_owned
  Ref<TensorImpl> base;              // not null: this is a view, and never of another view
  RareFacts* rare = nullptr;         // owned; null for almost every tensor
  bool python_owned = false;
  bool requires_grad_leaf = false;  // mirrors AutogradMeta for the one-load test of requires_grad()
  bool has_grad_fn = false;
  bool contiguous = true;  // row-major, computed whenever sizes or strides change
  uint16_t bits = 0;
  ViewCreation creation = ViewCreation::Normal;
  Layout layout = Layout::Strided;
  uint32_t view_version = 0;  // of a view: the version at which its grad_fn was right

  // Replaces the geometry; recomputes numel, contiguity and the data pointer.
  void set_geometry(IntArrayRef sizes, IntArrayRef strides, int64_t new_offset);
  void refresh_data_pointer();  // after the storage was resized or replaced
  // Finds the data again where the storage is marked as moved. A sparse tensor has an empty storage with that mark, so
  // that code which takes it for a strided tensor gets an error here.
  void follow_storage();

  uint32_t version() const;
  void bump_version();
  const Ref<VersionCounter>& own_version() const;     // null: the storage counts
  void set_own_version(Ref<VersionCounter> counter);  // null: the storage counts from now on

  RareFacts& rare_facts();  // made on demand
  void share_rare_facts(const TensorImpl& from);

  // Set by the Python extension: lets go of an owned wrapper when the last C++ reference dies.
  static void (*release_python_object)(TensorImpl*);

  uint32_t use_count() const { return refs_.load(std::memory_order_relaxed); }
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (drop_reference(refs_)) destroy();
  }

 private:
  TensorImpl() = default;
  ~TensorImpl();
  void destroy();
  void set_large_geometry(IntArrayRef sizes, IntArrayRef strides);  // for more dimensions than fit inline

  std::atomic<uint32_t> refs_{1};
  int64_t inline_dims_[2 * kInlineDims];
  std::unique_ptr<int64_t[]> heap_dims_;
};

}  // namespace mica
