// Elements that code of the core reads or writes itself, as numbers of the host.
#pragma once

#include "mica/error.h"
#include "mica/tensor.h"

namespace mica {

// The elements of a tensor of the CPU. Memory of another device is an error here, never an access.
template <class T>
T* host_data(const Tensor& t) {
  MICA_CHECK(t.is_cpu(), "internal error: the host would have read or written memory of ", t.device());
  return t.data_ptr<T>();
}

}  // namespace mica
