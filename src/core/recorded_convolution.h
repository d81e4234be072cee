// Convolutions within compiled functions: the kernel's call is put off, so that what reads its result can run on each
// block of it as soon as that is computed.
#pragma once

#include "core/block_work.h"
#include "core/recorded_call.h"
#include "mica/core/array_ref.h"
#include "mica/tensor.h"

namespace mica::recording {

using ConvolutionKernel = void(const TensorView& out, const TensorView& input, const TensorView& weight,
                               const TensorView& bias, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                               int64_t groups);

// Puts off a convolution of float32 with the channels first, where a compiled function runs and nobody outside knows
// the memory. What it reads is computed before: only what follows it waits with it.
bool put_off_convolution(ConvolutionKernel* kernel, const Tensor& out, const Tensor& input, const Tensor& weight,
                         const Tensor& bias, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                         int64_t groups);

// Operands of such a call: the result, the input, the weight, and the bias if there is one.
bool is_convolution(const Call& call);
inline constexpr int kConvolutionWeight = 2;

// Runs it on memory; `work` on each block of it, or null.
void run_convolution(const Call& call, const TensorView* views, BlockWork* work);

}  // namespace mica::recording
