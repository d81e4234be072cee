// Checks of arguments that rules of many families share.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "mica/tensor.h"

namespace mica::shapes {

// Kernels read all tensors on the device of the first. On the meta device nothing is read.
inline void check_one_device(const char* op, const Tensor& first, std::initializer_list<const Tensor*> others) {
  for (const Tensor* t : others)
    MICA_CHECK(!t->defined() || t->device() == first.device() || first.is_meta(),
               "Expected all tensors to be on the same device, but found at least two devices, ", first.device(),
               " and ", t->device(), "! (in ", op, ")");
}

// Sizes and steps of windows are numbers of 32 bits, as in torch: their products with one another fit 64.
inline void check_window_numbers(const char* name, IntArrayRef values) {
  for (int64_t v : values)
    MICA_CHECK(v >= INT32_MIN && v <= INT32_MAX, "value cannot be converted to type int without overflow (", name, "=",
               values, ")");
}

}  // namespace mica::shapes
