// Half and bfloat16 to float and back, at the speed of memory: inner loops over dense operands.
#pragma once

#include <cstdint>

namespace mica::cpu {

void half_to_float_loop(char* const* data, const int64_t* strides, int64_t n, const void* context);
void bfloat16_to_float_loop(char* const* data, const int64_t* strides, int64_t n, const void* context);
void float_to_half_loop(char* const* data, const int64_t* strides, int64_t n, const void* context);
void float_to_bfloat16_loop(char* const* data, const int64_t* strides, int64_t n, const void* context);

}  // namespace mica::cpu
