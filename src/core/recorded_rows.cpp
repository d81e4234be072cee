#include "core/recorded_rows.h"

#include <algorithm>

#include "mica/core/recording.h"

namespace mica::recording {

namespace {

// Kernels on rows take these; of others they may say so, which is to come with the line that called.
bool is_common_float(DType t) {
  return t == DType::Float32 || t == DType::Float64 || t == DType::Float16 || t == DType::BFloat16;
}

bool can_wait(const Tensor& t, int lead) {
  return is_common_float(t.dtype()) && t.is_cpu() && t.dim() <= kDims && t.dim() >= lead && t.storage() &&
         t.storage()->resizable() && t.numel() > 0;
}

void describe(Operand& o, const Tensor& t) {
  const int64_t bytes = t.element_size();
  o.storage = t.impl()->storage.get();
  o.offset = t.storage_offset() * bytes;
  o.dtype = t.dtype();
  o.ndim = static_cast<int32_t>(t.dim());
  for (int d = 0; d < o.ndim; ++d) {
    o.sizes[d] = t.sizes()[d];
    o.strides[d] = t.strides()[d] * bytes;
  }
}

}  // namespace

Call* begin_rows(const char* name, std::initializer_list<const Tensor*> outputs,
                 std::initializer_list<const Tensor*> inputs, int lead) {
  if (lead < 1 || outputs.size() + inputs.size() > kOperands) return nullptr;
  int64_t most = 0;
  bool awaited = false;
  for (const auto& list : {outputs, inputs})
    for (const Tensor* t : list) {
      if (!can_wait(*t, lead)) return nullptr;
      most = std::max(most, t->numel());
      awaited |= t->storage()->written_later();
    }
  if (most < least_elements.load(std::memory_order_relaxed) && !awaited) return nullptr;
  Call& call = begin_call();
  call.name = name;
  call.device = kCPU;
  call.noutputs = static_cast<int32_t>(outputs.size());
  call.noperands = static_cast<int32_t>(outputs.size() + inputs.size());
  call.ndim = lead;
  int k = 0;
  for (const auto& list : {outputs, inputs})
    for (const Tensor* t : list) describe(call.operands[k++], *t);
  const Tensor& first = **inputs.begin();
  for (int d = 0; d < lead; ++d) call.shape[d] = first.sizes()[d];
  call.dtype = first.dtype();
  call.result_dtype = (*outputs.begin())->dtype();
  return &call;
}

}  // namespace mica::recording
