#include "dispatch/lowered.h"

#include "mica/generated/layers/loss_implementations.h"
#include "mica/layers.h"
#include "mica/ops.h"

namespace mica::dispatch::lowered {

static Tensor normalized(const char* name, const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  const bool half_to_float = false;
  const Tensor input = dtype ? self.to(*dtype) : self;
  return call_one(name, {input, dim, half_to_float}, false);
}

Tensor softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return normalized("_softmax", self, dim, dtype);
}

Tensor log_softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return normalized("_log_softmax", self, dim, dtype);
}

Tensor relu6(const Tensor& self) { return hardtanh(self, Scalar(int64_t{0}), Scalar(int64_t{6})); }

Tensor max_pool2d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return std::get<0>(max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

Tensor max_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return std::get<0>(max_pool3d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

Tensor cross_entropy_loss(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                          int64_t ignore_index, double label_smoothing) {
  if (label_smoothing != 0 || target.is_floating_point() || self.dim() == 0)
    return composite::cross_entropy_loss(self, target, weight, reduction, ignore_index, label_smoothing);
  const Tensor scores = mica::log_softmax(self, self.dim() == 1 ? 0 : 1, std::nullopt);
  return nll_loss(scores, target, weight, reduction, ignore_index);
}

// The statistics are wanted by what a mode has seen already.
std::tuple<Tensor, Tensor, Tensor> _batch_norm_statistics(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                          const Tensor& running_mean, const Tensor& running_var,
                                                          bool training, double momentum, double eps) {
  return {std::get<0>(native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)),
          Tensor(), Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> _group_norm_statistics(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                          int64_t N, int64_t C, int64_t HxW, int64_t group,
                                                          double eps) {
  return {std::get<0>(native_group_norm(input, weight, bias, N, C, HxW, group, eps)), Tensor(), Tensor()};
}

}  // namespace mica::dispatch::lowered
