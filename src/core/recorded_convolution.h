// Convolutions within compiled functions: the kernel's call is put off, so that what reads its result can run on each
// block of it as soon as that is computed.
#pragma once

#include "core/block_work.h"
#include "core/interleaved.h"
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

// Whether a tensor is all that is pending, a product of dense float32 with one number for each channel. A convolution
// of single pixels multiplies its input by these as it reads it, and need not let the product run first.
bool waits_as_product(const Tensor& t);

// Whether this thread has put off one call, of which `holds(call, context)`.
bool is_lone_call(bool (*holds)(const Call& call, const void* context), const void* context);

// Operands of such a call: the result, the input, the weight, and the bias if there is one.
bool is_convolution(const Call& call);
inline constexpr int kConvolutionWeight = 2;

// Runs it on memory, with `work` on each block of it and the input multiplied by `factors`; both may be null. Views of
// images that lie interleaved have the strides of their memory, and `interleaved` says whether the result is such.
void run_convolution(const Call& call, const TensorView* views, BlockWork* work, const ChannelFactors* factors,
                     bool interleaved);
bool computes_interleaved(const Call& call);
// How an operand lies if its storage has its images interleaved and nothing else; none if it cannot.
Interleaving interleaving_of(const Operand& operand);

// Computes what the input waits for. Where the convolution is faster so, the input lies interleaved afterwards.
void compute_input(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, int64_t groups);

// The product of a call by one number for each channel: which operand is dense, images of channels of `positions`
// elements, and which has these numbers. Else false.
bool is_product_by_channel(const Call& call, int& dense, int& numbers);

}  // namespace mica::recording
