#include "mica/core/tensor_impl.h"

#include <new>

#include "core/geometry.h"
#include "core/rare_facts.h"
#include "core/reach.h"
#include "mica/allocator.h"
#include "mica/autograd.h"
#include "mica/error.h"

namespace mica {

void delete_autograd_meta(AutogradMeta* meta);  // src/autograd

static_assert(sizeof(void*) < 8 || sizeof(TensorImpl) == 192, "one of the commonest blocks: three cache lines");

TensorImpl* TensorImpl::create(Storage storage, DType dtype, Device device, IntArrayRef sizes, IntArrayRef strides,
                               int64_t offset) {
  auto* t = new (cpu_allocate(sizeof(TensorImpl))) TensorImpl;
  new (&t->storage) Storage(std::move(storage));  // constructed over an empty one, which owns nothing
  t->view.dtype = dtype;
  t->view.device = device;
  try {
    t->set_geometry(sizes, strides, offset);
  } catch (...) {
    t->release();
    throw;
  }
  return t;
}

TensorImpl* TensorImpl::create_contiguous(Storage storage, DType dtype, Device device, IntArrayRef sizes,
                                          int64_t offset) {
  const int ndim = static_cast<int>(sizes.size());
  if (ndim > kInlineDims) [[unlikely]]
    return create(std::move(storage), dtype, device, sizes, contiguous_strides(sizes), offset);
  auto* t = new (cpu_allocate(sizeof(TensorImpl))) TensorImpl;
  new (&t->storage) Storage(std::move(storage));  // constructed over an empty one, which owns nothing
  t->offset = offset;
  TensorView& v = t->view;
  v.dtype = dtype;
  v.device = device;
  v.ndim = ndim;
  v.sizes = t->inline_dims_;
  v.strides = t->inline_dims_ + kInlineDims;
  int64_t count = 1, step = 1;
  const int64_t* from = sizes.data();
  for (int i = ndim - 1; i >= 0; --i) {
    const int64_t n = from[i];
    t->inline_dims_[i] = n;
    t->inline_dims_[kInlineDims + i] = step;
    // As in contiguous_strides; only where there are no elements can a product overflow.
    if (__builtin_mul_overflow(step, n > 0 ? n : 1, &step)) [[unlikely]]
      step = 0;
    __builtin_mul_overflow(count, n, &count);
  }
  v.numel = count;
  t->refresh_data_pointer();
  return t;
}

void TensorImpl::set_geometry(IntArrayRef sizes, IntArrayRef strides, int64_t new_offset) {
  const int ndim = static_cast<int>(sizes.size());
  bool overflows = false;
  if (ndim <= kInlineDims) [[likely]] {
    const int64_t *size = sizes.data(), *stride = strides.data();
    int64_t count = 1;
    bool row_major = true;
    // Element by element: `sizes` and `strides` may be this tensor's own.
    for (int i = ndim - 1; i >= 0; --i) {
      const int64_t n = size[i], step = stride[i];
      inline_dims_[i] = n;
      inline_dims_[kInlineDims + i] = step;
      row_major &= step == count || n == 1;
      overflows |= __builtin_mul_overflow(count, n, &count);
    }
    view.sizes = inline_dims_;
    view.strides = inline_dims_ + kInlineDims;
    view.numel = overflows ? 0 : count;
    contiguous = row_major || count == 0;
  } else {
    set_large_geometry(sizes, strides);
  }
  view.ndim = ndim;
  offset = new_offset;
  refresh_data_pointer();
  if (overflows) [[unlikely]]
    count_elements(sizes);  // throws
}

// Sizes and strides share one block on the heap.
void TensorImpl::set_large_geometry(IntArrayRef sizes, IntArrayRef strides) {
  const size_t ndim = sizes.size();
  std::unique_ptr<int64_t[]> dims(new int64_t[2 * ndim]);
  for (size_t i = 0; i < ndim; ++i) dims[i] = sizes[i], dims[ndim + i] = strides[i];
  heap_dims_ = std::move(dims);
  view.sizes = heap_dims_.get();
  view.strides = heap_dims_.get() + ndim;
  const IntArrayRef new_sizes(view.sizes, ndim), new_strides(view.strides, ndim);
  view.numel = count_elements(new_sizes);
  contiguous = is_row_major(new_sizes, new_strides);
}

void TensorImpl::refresh_data_pointer() {
  void* base_address = storage ? storage->address() : nullptr;
  void* const now = base_address ? static_cast<char*>(base_address) + offset * element_size(view.dtype) : nullptr;
  // Threads that read one tensor come here at the same time. A pointer that is right already is not written.
  if (view.data != now) view.data = now;
}

void TensorImpl::follow_storage() {
  MICA_CHECK_KIND(
      !(bits & tensor_bit::kSparse), NotImplemented,
      "Cannot access data pointer of Tensor that doesn't have storage: it is sparse. Use to_dense(), or its "
      "indices and values.");
  storage->data();  // lets recorded calls on this memory run now
  check_reach(*this);
  refresh_data_pointer();
}

void check_reach(const TensorImpl& t) {
  // Quantized elements may be smaller than a byte, and meta tensors have no memory.
  if (t.view.numel == 0 || t.view.device.is_meta() || (t.bits & tensor_bit::kQuantized)) return;
  const auto ndim = static_cast<size_t>(t.view.ndim);
  const Extent reach = extent({t.view.sizes, ndim}, {t.view.strides, ndim});
  const int64_t width = element_size(t.view.dtype), held = static_cast<int64_t>(t.storage->nbytes());
  const int64_t needed = (t.offset + reach.high) * width;
  MICA_CHECK(needed <= held && t.offset + reach.low >= 0, "a tensor of ", needed, " bytes is read whose storage has ",
             held, ": it was resized. Give it memory first, with storage.resize_(", needed, ") and values");
}

static const Ref<VersionCounter> kNoCounter;

const Ref<VersionCounter>& TensorImpl::own_version() const { return rare ? rare->own_version : kNoCounter; }

void TensorImpl::set_own_version(Ref<VersionCounter> counter) {
  if (rare || counter) rare_facts().own_version = std::move(counter);
}

uint32_t TensorImpl::version() const {
  if (rare && rare->own_version) return rare->own_version->get();
  return storage ? storage->version() : 0;
}

void TensorImpl::bump_version() {
  if (rare && rare->own_version) [[unlikely]] {
    rare->own_version->bump();
  } else if (storage) {
    storage->bump_version();
  }
}

RareFacts& TensorImpl::rare_facts() {
  if (!rare) rare = new RareFacts;
  return *rare;
}

void TensorImpl::share_rare_facts(const TensorImpl& from) {
  if (from.rare) {
    rare_facts() = *from.rare;
  } else {
    delete std::exchange(rare, nullptr);
  }
}

TensorImpl::~TensorImpl() {
  if (autograd) delete_autograd_meta(autograd);
  if (rare) [[unlikely]]
    delete rare;
}

void TensorImpl::destroy() {
  if (python_object && release_python_object) release_python_object(this);
  this->~TensorImpl();
  cpu_free(this, sizeof(TensorImpl));
}

void (*TensorImpl::release_python_object)(TensorImpl*) = nullptr;

}  // namespace mica
