#include "optim/fused_batch.h"

#include <algorithm>
#include <vector>

#include "mica/autograd.h"
#include "mica/core/class_alias.h"

namespace mica::optim {

// The dtype by which a fused kernel takes the elements; undefined if there is none.
static DType fused_dtype(DType dtype) {
  switch (dtype) {
    case DType::Float32:
    case DType::Float64:
    case DType::Float16:
    case DType::BFloat16:
      return dtype;
    case DType::Complex64:
    case DType::Complex128:
      return to_real(dtype);
    default:
      return DType::Undefined;
  }
}

static bool plain(const Tensor& t) {
  return t.defined() && !(t.impl()->bits & (tensor_bit::kSpecial | tensor_bit::kInference));
}

// Whether the elements of both stand in memory in the same order.
static bool same_layout(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.device() != b.device() || a.sizes() != b.sizes()) return false;
  return (a.impl()->contiguous && b.impl()->contiguous) || a.strides() == b.strides();
}

void check_alike(std::initializer_list<const Tensor*> tensors) {
  const Tensor& param = **tensors.begin();
  for (const Tensor* t : tensors)
    MICA_CHECK(!t->defined() || (t->sizes() == param.sizes() && t->device() == param.device()),
               "a step needs gradients and states of their parameter's shape and device, but a parameter is ", param,
               " on ", param.device(), " and beside it is ", *t, " on ", t->device());
}

FusedParameter* FusedBatch::add(std::initializer_list<const Tensor*> tensors, uint32_t flags) {
  check_alike(tensors);
  const Tensor& param = **tensors.begin();
  if (!plain(param) || dispatch::in_parts) return nullptr;  // a class is asked for the rule's operations
  const DType dtype = fused_dtype(param.dtype());
  if (dtype == DType::Undefined || param.is_meta() || !(layer_kernel_table(param.device()).*kernel_)) return nullptr;
  if (!param.impl()->contiguous && !param.is_non_overlapping_and_dense()) return nullptr;
  for (const Tensor* t : tensors)
    if (t != tensors.begin()[0] && (!plain(*t) || !same_layout(param, *t))) return nullptr;

  if (dtype != dtype_ || param.device() != device_) {
    run();
    dtype_ = dtype;
    device_ = param.device();
  }
  FusedParameter& p = parameters_.emplace_back();
  int i = 0;
  for (const Tensor* t : tensors) {
    p.tensors[i] = t->data_ptr();
    if (i != 1) mark_changed(*t);
    ++i;
  }
  p.numel = param.numel() * (param.is_complex() ? 2 : 1);
  p.flags = flags;
  p.decay = 0;
  p.step = p.lr = nullptr;
  return &p;
}

// Fewer elements than this are walked by one thread.
static constexpr int64_t kSmall = 32768;

// Where parameters share memory, each must see what the one before it has written.
bool FusedBatch::overlapping() const {
  std::vector<std::pair<const char*, const char*>> ranges;
  ranges.reserve(parameters_.size());
  for (const FusedParameter& p : parameters_) {
    const char* begin = static_cast<const char*>(p.tensors[0]);
    ranges.emplace_back(begin, begin + p.numel * element_size(dtype_));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second) return true;
  return false;
}

void FusedBatch::run() {
  if (parameters_.empty()) return;
  int64_t total = 0;
  for (const FusedParameter& p : parameters_) total += p.numel;
  const bool shared = total > kSmall && parameters_.size() > 1 && overlapping();
  const FusedStep step{dtype_, device_, parameters_.begin(), static_cast<int64_t>(parameters_.size()), shared};
  (layer_kernel_table(device_).*kernel_)(step);
  parameters_.clear();
}

}  // namespace mica::optim
