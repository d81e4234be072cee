// Runs a one-dimensional inner loop over the nest of a PointwiseLoop, on as many threads as pay.
#pragma once

#include "mica/pointwise_loop.h"

namespace mica::cpu {

// Processes n elements: operand k is at data[k] + i * strides[k] bytes. `context` is the operation's own.
using InnerLoop = void (*)(char* const* data, const int64_t* strides, int64_t n, const void* context);

// Elements below which a second thread costs more than it brings, for an operation bound by memory and for one bound by arithmetic.
inline constexpr int64_t kMemoryGrain = 32768;
inline constexpr int64_t kMathGrain = 8192;

void run_loop(const PointwiseLoop& loop, InnerLoop inner, const void* context = nullptr, int64_t grain = kMemoryGrain);

}  // namespace mica::cpu
