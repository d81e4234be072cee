// Losses that end in one kernel: differences of pairs, negative log-likelihoods, cross entropy.
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/pointwise.h"
#include "mica/autocast.h"
#include "mica/backend/layer_backend.h"
#include "mica/backend/pair_loss.h"
#include "mica/generated/layers/loss_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"
#include "shapes/loss.h"

namespace mica::shapes {

namespace {

void pair_loss(Out& out, PairLoss kind, const Tensor& self, const Tensor& target, double parameter, int64_t reduction) {
  const AlikePair pair(self, target);
  const DType dtype = pair.input.dtype();
  if (!is_floating(dtype)) unsupported_dtype(kernel_name(kind), dtype);
  const IntArrayRef contiguous, no_sizes;
  const Tensor& result = reduction != kNone ? out.set(no_sizes, dtype, self.device())
                                            : out.set(pair.input.sizes(), dtype, self.device(),
                                                      pair.input.is_contiguous() ? contiguous : pair.input.strides());
  if (!out.needs_kernel()) return;
  MICA_LAYER_KERNEL(self.device(), pair_loss)
  (result.view_of(), pair.input.view_of(), pair.target.view_of(), static_cast<int64_t>(kind), parameter, reduction);
}

void check_target_dtype(const Tensor& target) {
  MICA_CHECK(target.dtype() == DType::Int64 || target.dtype() == DType::UInt8,
             "expected target dtype to be Long or Byte, but got ", info(target.dtype()).legacy);
}

}  // namespace

AlikePair::AlikePair(const Tensor& self, const Tensor& other) : input(self), target(other) {
  if (self.dtype() != other.dtype()) {
    ResultType type;
    type.add(self);
    type.add(other);
    input = self.to(type.get());
    target = other.to(type.get());
  }
  MICA_CHECK(input.device() == target.device(),
             "Expected all tensors to be on the same device, but found at least two ", "devices, ", input.device(),
             " and ", target.device(), "!");
  if (input.sizes() != target.sizes()) {
    const DimVector sizes = broadcast_sizes(input.sizes(), target.sizes());
    input = input.expand(sizes);
    target = target.expand(sizes);
  }
  if (input.is_contiguous() && target.is_contiguous()) return;
  if (input.strides() == target.strides() && is_non_overlapping_and_dense(input.sizes(), input.strides())) return;
  input = input.contiguous();
  target = target.contiguous();
}

ClassRows::ClassRows(const Tensor& self, const Tensor& target) {
  const bool has_batch = self.dim() > 1;
  batch = has_batch ? self.size(0) : 1;
  classes = self.size(has_batch ? 1 : 0);
  for (int64_t d = 2; d < self.dim(); ++d) inner *= self.size(d);
  // Where the classes lie next to each other, as in channels_last, every place of the batch is a row of its own.
  if (self.dim() > 2 && self.stride(1) == 1 && inner > 1) {
    DimVector order;
    order.push_back(0);
    for (int64_t d = 2; d < self.dim(); ++d) order.push_back(d);
    order.push_back(1);
    const Tensor last = self.permute(order);
    if (last.is_contiguous()) {
      input = last.view({batch * inner, classes, 1});
      labels = target.contiguous().view({batch * inner, 1});
      batch *= inner;
      inner = 1;
      classes_last = true;
      return;
    }
  }
  input = self.reshape({batch, classes, inner});
  labels = target.contiguous().view({batch, inner});
}

void check_classes(const Tensor& self, const Tensor& target, const Tensor& weight) {
  check_one_device("a loss of classes", {&self, &target, &weight});
  MICA_CHECK_KIND(self.dim() > 0, Value, "Expected 1 or more dimensions (got ", self.dim(), ")");
  if (self.dim() == 1) {
    MICA_CHECK(target.dim() <= 1, "0D or 1D target tensor expected, multi-target not supported");
    MICA_CHECK(target.numel() == 1, "size mismatch (got input: ", self.sizes(), ", target: ", target.sizes(), ")");
  } else {
    MICA_CHECK_KIND(target.dim() > 0 && self.size(0) == target.size(0), Value, "Expected input batch_size (",
                    self.size(0), ") to match target batch_size (", target.dim() ? target.size(0) : 1, ").");
    MICA_CHECK(self.dim() > 2 || target.dim() == 1, "0D or 1D target tensor expected, multi-target not supported");
    DimVector expected(self.sizes());
    for (size_t d = 1; d + 1 < expected.size(); ++d) expected[d] = expected[d + 1];
    expected.resize(expected.size() - 1);
    const bool images = self.dim() == 4;  // for which torch has other words
    MICA_CHECK(!images || target.dim() == 3,
               "only batches of spatial targets supported (3D tensors) but got targets of dimension: ", target.dim(),
               "; expected a target of size ", expected.ref());
    MICA_CHECK(!images || target.sizes() == expected.ref(), "size mismatch (got input: ", self.sizes(),
               " , target: ", target.sizes(), "; expected a target of size ", expected.ref(), ")");
    MICA_CHECK(target.sizes() == expected.ref(), "Expected target size ", expected.ref(), ", got ", target.sizes());
  }
  const int64_t classes = self.size(self.dim() > 1 ? 1 : 0);
  if (!weight.defined()) return;
  MICA_CHECK(weight.dim() == 1 && weight.numel() == classes, "weight tensor should be defined either for all ", classes,
             " classes or no classes but got weight tensor of shape: ", weight.sizes());
  MICA_CHECK(weight.dtype() == self.dtype(), "expected scalar type ", info(self.dtype()).legacy, " but found ",
             info(weight.dtype()).legacy, " (the weights of the classes must have the dtype of the input)");
}

void mse_loss(Out& out, const Tensor& self, const Tensor& target, int64_t reduction) {
  pair_loss(out, PairLoss::Squared, self, target, 0, reduction);
}

void l1_loss(Out& out, const Tensor& self, const Tensor& target, int64_t reduction) {
  if (is_floating(result_type({self, target}))) return pair_loss(out, PairLoss::Absolute, self, target, 0, reduction);
  const Tensor elements = mica::abs(self - target);
  out.take(reduction == kNone ? elements : reduction == kMean ? mica::mean(elements) : mica::sum(elements));
}

void smooth_l1_loss(Out& out, const Tensor& self, const Tensor& target, int64_t reduction, double beta) {
  MICA_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta. It is ", beta);
  pair_loss(out, beta == 0 ? PairLoss::Absolute : PairLoss::SmoothAbsolute, self, target, beta, reduction);
}

void huber_loss(Out& out, const Tensor& self, const Tensor& target, int64_t reduction, double delta) {
  MICA_CHECK(delta > 0, "huber_loss does not support non-positive values for delta. It is ", delta);
  pair_loss(out, PairLoss::Huber, self, target, delta, reduction);
}

void _binary_cross_entropy(Out& out, const Tensor& self, const Tensor& target, int64_t reduction) {
  MICA_CHECK(self.dtype() == target.dtype(), "Found dtype ", info(target.dtype()).legacy, " but expected ",
             info(self.dtype()).legacy);
  pair_loss(out, PairLoss::BinaryCrossEntropy, self, target, 0, reduction);
}

void _binary_cross_entropy_with_logits(Out& out, const Tensor& self, const Tensor& target, int64_t reduction) {
  pair_loss(out, PairLoss::BinaryCrossEntropyOfLogit, self, target, 0, reduction);
}

void nll_loss_forward(Out& out, Out& total_weight, const Tensor& self, const Tensor& target, const Tensor& weight,
                      int64_t reduction, int64_t ignore_index) {
  check_classes(self, target, weight);
  check_target_dtype(target);
  if (!is_floating(self.dtype())) unsupported_dtype("nll_loss_out_frame", self.dtype());
  const Tensor& result = out.set(reduction == kNone ? target.sizes() : IntArrayRef(), self.dtype(), self.device());
  const Tensor& total = total_weight.set({}, self.dtype(), self.device());
  if (!total_weight.needs_kernel()) return;
  const ClassRows rows(self, target);
  const Tensor w = weight.defined() ? weight.contiguous() : weight;
  MICA_LAYER_KERNEL(self.device(), nll_loss)
  (result.view_of(), total.view_of(), rows.input.view_of(), rows.labels.view_of(), view_or_none(w), reduction,
   ignore_index);
}

void _cross_entropy(Out& out, Out& statistics, const Tensor& self, const Tensor& target, const Tensor& weight,
                    int64_t reduction, int64_t ignore_index, double label_smoothing) {
  check_classes(self, target, weight);
  check_target_dtype(target);
  if (!is_floating(self.dtype())) unsupported_dtype("log_softmax_lastdim_kernel_impl", self.dtype());
  const DType computed = self.dtype() == DType::Float64 ? DType::Float64 : DType::Float32;
  // Where autocast would have cast the logits to float32, the loss is float32, and the logits stay as they are.
  const bool wide = !self.is_cpu() && thread_modes & mode_bit::kAutocast && autocast::is_enabled(self.device().type());
  const Tensor& result =
      out.set(reduction == kNone ? target.sizes() : IntArrayRef(), wide ? computed : self.dtype(), self.device());
  const Tensor& numbers = statistics.set({2 * target.numel() + 1}, computed, self.device());
  if (!statistics.needs_kernel()) return;
  const ClassRows rows(self, target);
  const Tensor w = weight.defined() ? weight.contiguous() : weight, input = rows.input.contiguous();
  MICA_LAYER_KERNEL(self.device(), cross_entropy)
  (result.view_of(), numbers.view_of(), input.view_of(), rows.labels.view_of(), view_or_none(w), reduction,
   ignore_index, label_smoothing);
}

}  // namespace mica::shapes
