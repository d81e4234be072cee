// Memory whose bytes stand for elements that are somewhere else, as those of a tensor whose Python class answers for
// its operations. Whoever asks for it gets an error.
#pragma once

#include "mica/core/scalar.h"
#include "mica/tensor.h"

namespace mica {

Storage absent_memory(size_t nbytes, Device device);
bool is_absent(const StorageImpl& storage);
inline bool is_absent(const Tensor& t) { return t.storage() && is_absent(*t.storage()); }

// Asks the class for the element of a tensor that has one. The Python extension sets this.
extern Scalar (*absent_item)(const Tensor&);

}  // namespace mica
