// TensorView: a tensor as a kernel sees it. Plain data, the unit of the boundary between the core and a backend.
#pragma once

#include <cstdint>

#include "mica/core/array_ref.h"
#include "mica/device.h"
#include "mica/dtype.h"

namespace mica {

struct TensorView {
  void* data = nullptr;  // the element at index (0, ..., 0); null on the meta device and for empty storages
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;  // in elements, of either sign
  int64_t numel = 0;
  int32_t ndim = 0;
  DType dtype = DType::Undefined;
  Device device;

  int64_t size(int64_t d) const { return sizes[d < 0 ? d + ndim : d]; }
  int64_t stride(int64_t d) const { return strides[d < 0 ? d + ndim : d]; }
  IntArrayRef shape() const { return {sizes, static_cast<size_t>(ndim)}; }
  bool defined() const { return dtype != DType::Undefined; }
  template <class T>
  T* ptr() const {
    return static_cast<T*>(data);
  }
};

}  // namespace mica
