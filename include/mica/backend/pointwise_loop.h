// PointwiseLoop: a broadcast, reordered and coalesced nest of loops over a few operands. Plain data, shared by all
// backends.
#pragma once

#include <cstdint>

#include "mica/device.h"
#include "mica/dtype.h"

namespace mica {

struct PointwiseLoop {
  static constexpr int kMaxOperands = 6;
  static constexpr int kMaxDims = 64;

  int64_t numel;
  int32_t ndim;       // after coalescing; dimension 0 is the fastest
  int32_t noperands;  // outputs first
  int32_t noutputs;
  // Bit k: operand k is a number, at data[k] in the memory of the core whatever the device; its strides are 0.
  uint32_t numbers;
  DType dtype;         // what the inputs are computed in
  DType result_dtype;  // what the outputs hold
  Device device;
  char* data[kMaxOperands];
  DType dtypes[kMaxOperands];
  int64_t shape[kMaxDims];
  int64_t strides[kMaxDims][kMaxOperands];  // in bytes, of either sign; 0 where an operand is broadcast
};

}  // namespace mica
