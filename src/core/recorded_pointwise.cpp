// Pointwise calls within compiled functions: which of them can be put off, and how they are described.
#include <cstring>
#include <string_view>

#include "core/lone_calls.h"
#include "core/pointwise.h"
#include "mica/core/recording.h"

namespace mica {

// Whether a kernel may refuse values that it finds. Such a call is not put off, so that its error comes at the line
// that made it.
static bool may_refuse_values(const char* op, DType dtype) {
  if (is_floating(dtype) || is_complex(dtype)) return false;
  static constexpr std::string_view kRefusing[] = {
      "div", "floor_divide",       "remainder",           "fmod",       "pow", "gcd",
      "lcm", "bitwise_left_shift", "bitwise_right_shift", "float_power"};
  for (const std::string_view name : kRefusing)
    if (std::string_view(op).starts_with(name)) return true;
  return false;
}

// Only a call on memory that nobody outside knows can run later: an array of NumPy may change unseen.
bool PointwisePlan::can_wait() const {
  const IntArrayRef sizes = shape();
  if (device_.is_cpu()) {
    if (sizes.size() > recording::kDims || may_refuse_values(op_.name, common_)) return false;
  } else if (device_.is_meta() || sizes.size() > kFusedDims || !recording::fusion_of(device_)) {
    return false;
  }
  int64_t count = 1;
  for (const int64_t n : sizes) count *= n;
  const bool few = device_.is_cpu() && (common_ == DType::Float32 ? 2 * count : count) <
                                           recording::least_elements.load(std::memory_order_relaxed);
  // Most calls of most programs end here, without a look at their operands.
  if (few ? !recording::pending() : recording::runs_alone_for_sure(op_.name, common_, sizes)) return false;
  bool awaited = false;
  for (int i = 0; i < ninputs_; ++i) {
    if (!operands_[i].tensor) continue;
    const StorageImpl* storage = operands_[i].tensor->impl()->storage.get();
    if (!storage || !storage->resizable() || storage->nbytes() == 0) return false;
    awaited |= storage->written_later();
  }
  if (!device_.is_cpu()) {
    if (count == 0 || count > kFusedElements) return false;
    return awaited || (count >= recording::least_fused && !recording::runs_alone(op_.name, common_, sizes));
  }
  // A chain of float32 operations may become machine code, which gains even where the data fits the first cache.
  if (awaited) return count > 0;
  return !few && !recording::runs_alone(op_.name, common_, sizes);
}

// Dimensions go from the output's slowest to its fastest, so that pieces of a call lie together in memory.
recording::Call& PointwisePlan::begin_call(const char* slot) {
  recording::Call& call = recording::begin_call();
  const IntArrayRef sizes = shape();
  const int ndim = static_cast<int>(sizes.size());
  call.name = slot;
  call.device = device_;
  call.dtype = common_;
  call.result_dtype = result_;
  call.noutputs = op_.noutputs;
  call.noperands = op_.noutputs + ninputs_;
  call.ndim = ndim;
  if (!flat_ && general_->permutation.empty()) compute_permutation();
  int order[recording::kDims];
  for (int d = 0; d < ndim; ++d) order[d] = flat_ ? d : static_cast<int>(general_->permutation[ndim - 1 - d]);
  for (int d = 0; d < ndim; ++d) call.shape[d] = sizes[order[d]];
  for (int k = 0; k < call.noperands; ++k) {
    recording::Operand& o = call.operands[k];
    o.ndim = ndim;
    const Tensor* input = k < op_.noutputs ? nullptr : operands_[k - op_.noutputs].tensor;
    if (k >= op_.noutputs && !input) {
      write_number(k);
      o.storage = nullptr;
      o.dtype = loop.dtypes[k];
      std::memcpy(o.number, values_[k], sizeof(o.number));
      continue;
    }
    const TensorImpl* t = input ? input->impl() : outputs_[k];
    const int64_t bytes = element_size(t->view.dtype);
    o.storage = t->storage.get();
    o.dtype = t->view.dtype;
    o.offset = t->offset * bytes;
    if (flat_) {  // it has all dimensions
      for (int d = 0; d < ndim; ++d) o.strides[d] = sizes[d] != 1 ? t->view.strides[d] * bytes : 0;
      continue;
    }
    for (int d = 0; d < ndim; ++d) {
      const int at = order[d] - (ndim - t->view.ndim);
      o.strides[d] = at >= 0 && t->view.sizes[at] != 1 ? t->view.strides[at] * bytes : 0;
    }
  }
  return call;
}

}  // namespace mica
