#include "core/recorded_convolution.h"

#include <algorithm>
#include <string_view>

#include "core/allocate.h"
#include "core/compiler_switch.h"
#include "core/kept.h"
#include "core/recorded_rows.h"
#include "mica/core/recording.h"
#include "mica/parallel.h"

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

void run_alone_on(const Call& call, const TensorView* views, int) {
  run_convolution(call, views, nullptr, nullptr, false);
}

IntArrayRef list(const int64_t* numbers, int32_t count) { return IntArrayRef(numbers, static_cast<size_t>(count)); }

bool is_own_memory(const Tensor& t) {
  return t.dtype() == DType::Float32 && t.is_cpu() && t.numel() > 0 && t.storage() && t.storage()->resizable();
}

}  // namespace

bool is_convolution(const Call& call) { return call.run_rows == run_alone_on; }

void run_convolution(const Call& call, const TensorView* views, BlockWork* work, const ChannelFactors* factors,
                     bool interleaved) {
  const auto& n = *reinterpret_cast<const ConvolutionNumbers*>(call.arguments);
  const kept::Scope weight(call.operands[kConvolutionWeight].storage);
  const BlockWorkScope given(work, factors, interleaved);
  n.kernel(views[0], views[1], views[2], call.noperands > 3 ? views[3] : TensorView(), list(n.stride, n.dims),
           list(n.padding, n.dims), list(n.dilation, n.dims), n.groups);
}

bool computes_interleaved(const Call& call) {
  if (!interleaving_of(call.operands[0])) return false;
  const auto& n = *reinterpret_cast<const ConvolutionNumbers*>(call.arguments);
  TensorView views[3];
  int64_t strides[3][kDims];
  for (int k = 0; k < 3; ++k) {
    const Operand& o = call.operands[k];
    for (int d = 0; d < o.ndim; ++d) strides[k][d] = o.strides[d] / element_size(o.dtype);
    views[k].ndim = o.ndim;
    views[k].sizes = o.sizes;
    views[k].strides = strides[k];
    views[k].dtype = o.dtype;
  }
  return computes_interleaved(views[0], views[1], views[2], list(n.stride, n.dims), list(n.padding, n.dims),
                              list(n.dilation, n.dims), n.groups);
}

Interleaving interleaving_of(const Operand& o) {
  if (o.ndim != 4 || o.dtype != DType::Float32 || o.offset != 0) return {};
  int64_t step = element_size(o.dtype);
  for (int d = o.ndim - 1; d >= 0; --d) {
    if (o.sizes[d] != 1 && o.strides[d] != step) return {};
    step *= o.sizes[d];
  }
  if (static_cast<int64_t>(o.storage->nbytes()) != step) return {};
  return {o.sizes[0], o.sizes[1], o.sizes[2] * o.sizes[3]};
}

static bool interleaving_wanted() {
  static const bool wanted = is_switched_on("MICA_COMPILER_INTERLEAVE");
  return wanted;
}

bool compute_interleaved(const Tensor& result, const Tensor& input, FunctionRef<void()> compute) {
  if (!in_function() || !interleaving_wanted() || !is_own_memory(input) || !input.storage()->written_later() ||
      !is_own_memory(result) || !has_interleaved_convolutions())
    return false;
  Operand from, to;
  describe(from, input);
  describe(to, result);
  const Interleaving how = interleaving_of(to);
  if (!how || !interleaving_of(from)) return false;
  (void)result.view_of();  // it has memory from here on
  return compute_interleaved(result.impl()->storage, *input.storage(), how, compute);
}

void compute_input(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  const auto needs_grad = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
  const bool keeps = grad_enabled() && (needs_grad(input) || needs_grad(weight) || needs_grad(bias));
  if (interleaving_wanted() && !keeps && input.storage()->written_later() && is_own_memory(input) &&
      input.is_contiguous()) {
    const auto shape = [](const Tensor& t) {
      TensorView v;
      v.ndim = static_cast<int>(t.dim());
      v.sizes = t.sizes().data();
      v.strides = t.strides().data();
      v.dtype = t.dtype();
      return v;
    };
    if (computes_interleaved(shape(out), shape(input), shape(weight), stride, padding, dilation, groups) &&
        settle_interleaved(*input.storage(), "a convolution"))
      return;
  }
  (void)input.view_of();
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

// A copy of a small image whose memory somebody outside knows, as that of a NumPy array: he may change it before the
// call runs. None where the copy would cost more than the call gains.
static Tensor own_copy(const Tensor& input, int64_t results) {
  constexpr int64_t kResultsForOne = 2;
  if (input.dtype() != DType::Float32 || !input.is_cpu() || !input.storage() || input.storage()->written_later() ||
      !input.storage()->address() || !input.is_contiguous() || input.numel() * kResultsForOne > results)
    return {};
  const Tensor copy = empty_contiguous(input.sizes(), input.dtype(), input.device());
  const float* from = static_cast<const float*>(input.view_of().data);
  float* to = static_cast<float*>(copy.view_of().data);
  parallel_for(0, input.numel(), 1 << 15,
               [&](int64_t begin, int64_t end) { std::copy(from + begin, from + end, to + begin); });
  return copy;
}

bool put_off_convolution(ConvolutionKernel* kernel, const Tensor& out, const Tensor& given, const Tensor& weight,
                         const Tensor& bias, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                         int64_t groups) {
  if (!in_function() || stride.size() > kMostSpatial || !is_own_memory(out) || out.storage()->address() ||
      !out.is_contiguous() || out.numel() < std::min(kLeastResult, least_elements.load(std::memory_order_relaxed)))
    return false;
  const Tensor copy = given.storage() && !given.storage()->resizable() ? own_copy(given, out.numel()) : Tensor();
  const Tensor& input = copy.defined() ? copy : given;
  for (const Tensor* t : {&input, &weight, &bias}) {
    if (!t->defined()) continue;
    if (!is_own_memory(*t)) return false;
    const bool there = t->storage()->address() && !t->storage()->written_later();
    const bool waits = t == &input && (waits_as_product(input) || lies_interleaved(*input.storage()));
    if (!there && !waits) return false;
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
