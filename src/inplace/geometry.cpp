// Operations that change a tensor's geometry or storage, not its data.
#include "autograd/metadata.h"
#include "core/geometry.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::inplace {

namespace {

// self takes the geometry of a view of its own storage.
void become(const Tensor& self, const Tensor& view) {
  self.impl()->set_geometry(view.sizes(), view.strides(), view.storage_offset());
}

// The same for a tensor that keeps its base: if it is a view, it is made from the base in the new geometry from now on.
void lie_as(const Tensor& self, const Tensor& view) {
  note_geometry(self, view);
  become(self, view);
}

}  // namespace

void squeeze_(const Tensor& self) { lie_as(self, views::squeeze(self)); }
void squeeze_(const Tensor& self, int64_t dim) { lie_as(self, views::squeeze_dim(self, dim)); }
void squeeze_(const Tensor& self, IntArrayRef dim) { lie_as(self, views::squeeze_dims(self, dim)); }
void unsqueeze_(const Tensor& self, int64_t dim) { lie_as(self, views::unsqueeze(self, dim)); }
void t_(const Tensor& self) { lie_as(self, views::t(self)); }
void transpose_(const Tensor& self, int64_t dim0, int64_t dim1) { lie_as(self, views::transpose(self, dim0, dim1)); }

void as_strided_(const Tensor& self, IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset) {
  lie_as(self, views::as_strided(self, size, stride, storage_offset));
}

void resize_as_(const Tensor& self, const Tensor& the_template, std::optional<MemoryFormat> memory_format) {
  if (memory_format == MemoryFormat::Preserve) memory_format = the_template.suggest_memory_format();
  if (self.impl()->bits & tensor_bit::kSpecial) {
    self.resize_(the_template.sizes(), memory_format);
  } else {
    inplace::resize_(self, the_template.sizes(), memory_format);  // the entry counts it as one change
  }
}

void set_(const Tensor& self, const Tensor& source) {
  MICA_CHECK(self.dtype() == source.dtype(), "Could not set tensor of type ", source.dtype(), " to a tensor of type ",
             self.dtype());
  MICA_CHECK(self.device() == source.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
             "\" to a storage on different device \"", source.device(),
             "\". This is no longer allowed; the devices must match.");
  // Graphs that were made before keep adding to the gradient of the tensor as it was.
  if (AutogradMeta* meta = self.impl()->autograd) meta->accumulator = nullptr;
  self.impl()->storage = source.storage();
  self.impl()->set_own_version(source.impl()->own_version());
  become(self, source);
}

void set_empty(const Tensor& self) {
  self.impl()->storage = StorageImpl::allocate(0, self.device());
  self.impl()->set_geometry({0}, {1}, 0);
}

void set_view(const Tensor& self, const Tensor& source, int64_t storage_offset, IntArrayRef size, IntArrayRef stride) {
  const DimVector strides = stride.empty() && !size.empty() ? contiguous_strides(size) : DimVector(stride);
  inplace::set_(self, views::as_strided(source, size, strides, storage_offset));
}

}  // namespace mica::inplace
