#include "core/dispatch.h"

#include "inspect/observe.h"
#include "mica/autograd.h"
#include "mica/error.h"
#include "mica/generated/layers/loss_implementations.h"
#include "mica/layers.h"
#include "mica/ops.h"

namespace mica::dispatch {

constinit thread_local bool active = false;
constinit thread_local bool direct = false;
std::vector<Tensor> (*handler)(const char*, const Argument*, size_t, int) = nullptr;

void set_active(bool on) {
  active = on;
  inspect::update_recording_modes();
}

static bool is_among(const Tensor& t, Arguments arguments) {
  for (const Argument& a : arguments) {
    if (a.is_none()) continue;
    if (a.kind() == Argument::Kind::Tensor && a.as<Tensor>().is_same(t)) return true;
    if (a.kind() == Argument::Kind::Tensors)
      for (const Tensor& each : a.as<TensorList>())
        if (each.is_same(t)) return true;
  }
  return false;
}

// A view that was made while nothing was recorded requires grad as its base does, and has no node.
static bool is_recorded(const Tensor& t) { return t.requires_grad() && (t.grad_fn() || !t.is_view()); }

std::vector<Tensor> call(const char* name, Arguments arguments, int count, bool recorded) {
  std::vector<Tensor> results;
  {
    const ModeGuard below(recorded ? mode_bit::kNoGrad : 0, true);
    results = handler(name, arguments.begin(), arguments.size(), count);
  }
  if (recorded) {
    // The operation's node is for a tensor of its own: not for an argument, nor for what the mode has recorded itself.
    const NoGradGuard unrecorded;
    for (Tensor& each : results)
      if (each.defined() && (is_among(each, arguments) || is_recorded(each))) each = each.detach();
  }
  return results;
}

// The engine reads the memory of what it copies for itself: an answer must be such a copy.
static void check_copy(const char* name, const Tensor& self, const Tensor& copy) {
  const std::string_view called(name);
  if (called != "clone" && called != "_to_copy") return;
  MICA_CHECK(copy.defined() && copy.sizes() == self.sizes() && (called != "clone" || copy.device() == self.device()),
             "aten::", called, ": a mode's __torch_dispatch__ answered for ", self, " with ", copy,
             ", which is no copy of it");
}

Tensor call_one(const char* name, Arguments arguments, bool recorded) {
  Tensor result = std::move(call(name, arguments, 1, recorded)[0]);
  if (arguments.size() && arguments.begin()->kind() == Argument::Kind::Tensor)
    check_copy(name, arguments.begin()->as<Tensor>(), result);
  return result;
}

void call_none(const char* name, Arguments arguments, bool recorded) { call(name, arguments, 0, recorded); }

bool shares_memory(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && !a.is_same(b) && a.impl()->storage == b.impl()->storage;
}

namespace lowered {

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

}  // namespace lowered
}  // namespace mica::dispatch
