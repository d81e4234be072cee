// Deterministic mode gives memory without a value one: NaN, or the largest integer.
#pragma once

#include "mica/tensor.h"

namespace mica {

void set_fill_uninitialized(bool fill);
Tensor filled_if_asked(Tensor t);
// What lies behind the bytes that the storage had before it grew.
void fill_added_if_asked(const Tensor& t, int64_t bytes_before);

}  // namespace mica
