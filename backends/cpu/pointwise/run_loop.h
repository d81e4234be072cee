// Runs a one-dimensional inner loop over the nest of a PointwiseLoop, on as many threads as pay.
#pragma once

#include <type_traits>

#include "mica/backend/pointwise_loop.h"

namespace mica::cpu {

// Processes n elements: operand k is at data[k] + i * strides[k] bytes. `context` is the operation's own.
using InnerLoop = void (*)(char* const* data, const int64_t* strides, int64_t n, const void* context);

// The same for one or more rows of n elements: the rows of operand k lie row_strides[k] bytes apart. For a single row,
// strides are passed as row_strides too.
using RowsLoop = void (*)(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides,
                          int64_t rows, const void* context);

template <class T>
inline T* bytes_on(T* p, int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(p) + bytes);
}

// The number of elements below which a second thread costs more than it brings: for operations bound by memory, by one
// short function such as exp, by a long one such as tan or pow, and by a scalar function.
inline constexpr int64_t kMemoryGrain = 32768;
inline constexpr int64_t kMathGrain = 16384;
inline constexpr int64_t kHeavyGrain = 4096;
inline constexpr int64_t kSlowGrain = 1024;

// For inner loops that take operands at any strides.
void run_loop(const PointwiseLoop& loop, InnerLoop inner, const void* context = nullptr, int64_t grain = kMemoryGrain);

// For inner loops that take dense operands only: every stride is the element's size, or zero for an input of one value.
// Operands that lie otherwise pass through buffers.
void run_dense(const PointwiseLoop& loop, RowsLoop rows, const void* context = nullptr, int64_t grain = kMemoryGrain);
void run_dense(const PointwiseLoop& loop, InnerLoop inner, const void* context = nullptr, int64_t grain = kMemoryGrain);

// Runs a loop that writes a large output, with the output's lines asked for ahead, on processors that gain by it. False
// where they do not: then nothing has run.
bool run_fetched(const PointwiseLoop& loop, InnerLoop inner, const void* context, int64_t grain);

// Whether an input has the same value for all elements.
bool is_constant(const PointwiseLoop& loop, int operand);

}  // namespace mica::cpu
