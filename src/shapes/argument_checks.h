// Checks of arguments that shape rules of many families share.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "mica/tensor.h"

namespace mica::shapes {

// Kernels read all tensors on one device. Undefined tensors are left out. Where the first is on the meta device nothing
// is read, so that indices, targets and pivots may be anywhere: programs make those on the CPU.
inline void check_one_device(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* t : tensors) {
    if (!t->defined()) continue;
    if (!first) first = t;
    MICA_CHECK(t->device() == first->device() || (first->is_meta() && !t->is_floating_point() && !t->is_complex()),
               "Expected all tensors to be on the same device, but found at least two devices, ", first->device(),
               " and ", t->device(), "! (in ", op, ")");
  }
}

// Sizes and steps of windows are 32-bit numbers, as in torch: products of two of them fit 64 bits.
inline void check_window_numbers(const char* name, IntArrayRef values) {
  for (int64_t v : values)
    MICA_CHECK(v >= INT32_MIN && v <= INT32_MAX, "value cannot be converted to type int without overflow (", name, "=",
               values, ")");
}

}  // namespace mica::shapes
