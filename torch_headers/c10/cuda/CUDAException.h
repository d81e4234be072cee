// Checks of what CUDA's functions return.
#pragma once

#include <cuda_runtime_api.h>

#include "torch/check.h"

#define C10_CUDA_CHECK(EXPRESSION)                                                              \
  do {                                                                                          \
    const cudaError_t cuda_result_ = EXPRESSION;                                                \
    TORCH_CHECK(cuda_result_ == cudaSuccess, "CUDA error: ", cudaGetErrorString(cuda_result_)); \
  } while (0)
#define AT_CUDA_CHECK(EXPRESSION) C10_CUDA_CHECK(EXPRESSION)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
