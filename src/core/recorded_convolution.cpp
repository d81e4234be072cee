#include "core/recorded_convolution.h"

#include <algorithm>
#include <string_view>

#include "core/kept.h"
#include "core/recorded_rows.h"
#include "mica/core/recording.h"

namespace mica::recording {

namespace {

constexpr int kMostSpatial = 3;
// Of fewer elements there is little to gain. Of more, a norm and a sum that follow need no kernels' calls of their own.
constexpr int64_t kLeastResult = kLeastElements;

struct ConvolutionNumbers {
  ConvolutionKernel* kernel;
  int64_t stride[kMostSpatial], padding[kMostSpatial], dilation[kMostSpatial];
  int64_t groups;
  int32_t dims;
};
static_assert(sizeof(ConvolutionNumbers) <= sizeof(Call::arguments));

void run_alone_on(const Call& call, const TensorView* views, int) { run_convolution(call, views, nullptr, nullptr); }

bool is_own_memory(const Tensor& t) {
  return t.dtype() == DType::Float32 && t.is_cpu() && t.numel() > 0 && t.storage() && t.storage()->resizable();
}

}  // namespace

bool is_convolution(const Call& call) { return call.run_rows == run_alone_on; }

void run_convolution(const Call& call, const TensorView* views, BlockWork* work, const ChannelFactors* factors) {
  const auto& n = *reinterpret_cast<const ConvolutionNumbers*>(call.arguments);
  const auto list = [&](const int64_t* numbers) { return IntArrayRef(numbers, static_cast<size_t>(n.dims)); };
  const kept::Scope weight(call.operands[kConvolutionWeight].storage);
  const BlockWorkScope given(work, factors);
  n.kernel(views[0], views[1], views[2], call.noperands > 3 ? views[3] : TensorView(), list(n.stride), list(n.padding),
           list(n.dilation), n.groups);
}

bool is_product_by_channel(const Call& call, int& dense, int& numbers) {
  if (!call.run_loop || std::string_view(call.name) != "mul" || call.ndim < 3 || call.noperands != 3) return false;
  const auto is_dense = [&](const Operand& o) { return o.dtype == DType::Float32 && lies_dense(call, o); };
  const auto is_one_for_channel = [&](const Operand& o) {
    for (int d = 2; d < call.ndim; ++d)
      if (call.shape[d] != 1 && o.strides[d] != 0) return false;
    return o.storage && o.dtype == DType::Float32;
  };
  for (dense = 1; dense <= 2; ++dense) {
    numbers = 3 - dense;
    if (is_dense(call.operands[0]) && call.operands[0].offset == 0 && is_dense(call.operands[dense]) &&
        is_one_for_channel(call.operands[numbers]))
      return true;
  }
  return false;
}

bool waits_as_product(const Tensor& t) {
  if (!t.storage()->written_later() || !t.is_contiguous() || t.storage_offset() != 0) return false;
  const auto writes = [](const Call& call, const void* context) {
    const Tensor& result = *static_cast<const Tensor*>(context);
    int dense, numbers;
    return call.operands[0].storage == result.impl()->storage.get() && is_product_by_channel(call, dense, numbers) &&
           result.dim() == call.ndim && std::equal(call.shape, call.shape + call.ndim, result.sizes().begin());
  };
  return is_lone_call(writes, &t);
}

bool put_off_convolution(ConvolutionKernel* kernel, const Tensor& out, const Tensor& input, const Tensor& weight,
                         const Tensor& bias, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                         int64_t groups) {
  if (!in_function() || stride.size() > kMostSpatial || !is_own_memory(out) || out.storage()->address() ||
      !out.is_contiguous() || out.numel() < std::min(kLeastResult, least_elements.load(std::memory_order_relaxed)))
    return false;
  for (const Tensor* t : {&input, &weight, &bias}) {
    if (!t->defined()) continue;
    if (!is_own_memory(*t)) return false;
    const bool there = t->storage()->address() && !t->storage()->written_later();
    if (!there && !(t == &input && waits_as_product(input))) return false;
  }
  Call& call = begin_call();
  call.name = "convolution";
  call.device = kCPU;
  call.form = Call::Form::Rows;
  call.run_loop = nullptr;
  call.run_rows = run_alone_on;
  call.kernel = nullptr;
  call.dtype = call.result_dtype = DType::Float32;
  call.noutputs = 1;
  call.noperands = bias.defined() ? 4 : 3;
  call.ndim = 0;  // it is not cut from outside
  describe(call.operands[0], out);
  describe(call.operands[1], input);
  describe(call.operands[kConvolutionWeight], weight);
  if (bias.defined()) describe(call.operands[3], bias);
  auto& n = *new (call.arguments) ConvolutionNumbers{kernel, {}, {}, {}, groups, static_cast<int32_t>(stride.size())};
  std::copy(stride.begin(), stride.end(), n.stride);
  std::copy(padding.begin(), padding.end(), n.padding);
  std::copy(dilation.begin(), dilation.end(), n.dilation);
  return end_call();
}

}  // namespace mica::recording
