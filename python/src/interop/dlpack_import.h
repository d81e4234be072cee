// Checks what a DLPack structure of another library says before its memory is touched. Does not use Python.
#pragma once

#include "interop/dlpack.h"
#include "mica/tensor.h"

namespace mica::dlpack {

DType dtype_of(DLDataType type);
Device device_of(DLDevice device);
DLDataType data_type_of(DType dtype);

// A tensor over the structure's memory; `deleter(context, ...)` runs when the last reference to the memory goes. Throws
// for numbers that make no sense, before it has taken anything over: then the deleter never runs.
Tensor tensor_over(const DLTensor& t, StorageImpl::Deleter deleter, void* context);

}  // namespace mica::dlpack
