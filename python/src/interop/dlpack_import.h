// What a DLPack structure of another library says, checked before its memory is touched. Knows nothing of Python.
#pragma once

#include "interop/dlpack.h"
#include "mica/tensor.h"

namespace mica::dlpack {

DType dtype_of(DLDataType type);
Device device_of(DLDevice device);
DLDataType data_type_of(DType dtype);

// A tensor over the structure's memory; `deleter(context, ...)` runs when the last reference to the memory goes. Throws
// for numbers that make no sense, before it has taken anything over: the deleter has not run then, and will not.
Tensor tensor_over(const DLTensor& t, StorageImpl::Deleter deleter, void* context);

}  // namespace mica::dlpack
