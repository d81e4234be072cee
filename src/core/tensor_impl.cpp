#include "mica/tensor_impl.h"

#include <new>

#include "core/geometry.h"
#include "mica/allocator.h"
#include "mica/autograd.h"

namespace mica {

void delete_autograd_meta(AutogradMeta* meta);  // src/autograd

// Sizes and strides share one block: inline for up to kInlineDims dimensions, on the heap beyond.
int64_t* TensorImpl::allocate_dims(int ndim) {
  if (ndim <= kInlineDims) return inline_dims_;
  if (!heap_dims_ || ndim > view.ndim) heap_dims_.reset(new int64_t[2 * ndim]);
  return heap_dims_.get();
}

TensorImpl* TensorImpl::create(Storage storage, DType dtype, Device device, IntArrayRef sizes, IntArrayRef strides,
                               int64_t offset) {
  auto* t = new (cpu_allocate(sizeof(TensorImpl))) TensorImpl;
  t->storage = std::move(storage);
  t->view.dtype = dtype;
  t->view.device = device;
  t->set_geometry(sizes, strides, offset);
  return t;
}

void TensorImpl::set_geometry(IntArrayRef sizes, IntArrayRef strides, int64_t new_offset) {
  const int ndim = static_cast<int>(sizes.size());
  if (ndim <= kInlineDims) {
    int64_t* dims = inline_dims_;
    int64_t count = 1, expected = 1;
    bool row_major = true;
    // Copied through locals: `sizes` or `strides` may be this tensor's own.
    int64_t s[kInlineDims], st[kInlineDims];
    for (int i = ndim - 1; i >= 0; --i) {
      s[i] = sizes[i];
      st[i] = strides[i];
      count *= s[i];
      if (s[i] != 1) {
        row_major &= st[i] == expected;
        expected *= s[i];
      }
    }
    for (int i = 0; i < ndim; ++i) dims[i] = s[i], dims[kInlineDims + i] = st[i];
    view.sizes = dims;
    view.strides = dims + kInlineDims;
    view.numel = count;
    contiguous = row_major || count == 0;
  } else {
    DimVector s(sizes), st(strides);
    int64_t* dims = allocate_dims(ndim);
    for (int i = 0; i < ndim; ++i) dims[i] = s[i], dims[ndim + i] = st[i];
    view.sizes = dims;
    view.strides = dims + ndim;
    view.numel = count_elements(s);
    contiguous = is_row_major(s, st);
  }
  view.ndim = ndim;
  offset = new_offset;
  refresh_data_pointer();
}

void TensorImpl::refresh_data_pointer() {
  void* base = storage ? storage->data() : nullptr;
  view.data = base ? static_cast<char*>(base) + offset * element_size(view.dtype) : nullptr;
}

uint32_t TensorImpl::version() const {
  if (own_version) return own_version->load(std::memory_order_relaxed);
  return storage ? storage->version() : 0;
}

void TensorImpl::bump_version() {
  if (own_version) {
    own_version->fetch_add(1, std::memory_order_relaxed);
  } else if (storage) {
    storage->bump_version();
  }
}

TensorImpl::~TensorImpl() {
  if (autograd) delete_autograd_meta(autograd);
}

void TensorImpl::destroy() {
  if (python_object && release_python_object) release_python_object(this);
  this->~TensorImpl();
  cpu_free(this, sizeof(TensorImpl));
}

void (*TensorImpl::release_python_object)(TensorImpl*) = nullptr;

}  // namespace mica
