#include "core/recorded_rows.h"

#include <algorithm>

#include "core/lone_calls.h"
#include "mica/backend.h"
#include "mica/backend/layer_backend.h"
#include "mica/core/recording.h"

namespace mica::recording {

namespace {

// The dtypes that kernels on rows take. For others a kernel may throw, and the error has to come at the line that made
// the call.
bool is_common_float(DType t) {
  return t == DType::Float32 || t == DType::Float64 || t == DType::Float16 || t == DType::BFloat16;
}

bool can_wait(const Tensor& t, int lead) {
  return is_common_float(t.dtype()) && t.is_cpu() && t.dim() <= kDims && t.dim() >= lead && t.storage() &&
         t.storage()->resizable() && t.numel() > 0;
}

}  // namespace

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

Call* begin_rows(const char* name, std::initializer_list<const Tensor*> outputs,
                 std::initializer_list<const Tensor*> inputs, int lead) {
  if (lead < 1 || outputs.size() + inputs.size() > kOperands) return nullptr;
  const Tensor& first = **inputs.begin();
  int64_t most = 0;
  bool awaited = false;
  for (const auto& list : {outputs, inputs})
    for (const Tensor* t : list) {
      if (!can_wait(*t, lead)) return nullptr;
      most = std::max(most, t->numel());
      awaited |= t->storage()->written_later();
    }
  if (!awaited &&
      (most < least_elements.load(std::memory_order_relaxed) || runs_alone(name, first.dtype(), first.sizes())))
    return nullptr;
  Call& call = begin_call();
  call.name = name;
  call.device = kCPU;
  call.noutputs = static_cast<int32_t>(outputs.size());
  call.noperands = static_cast<int32_t>(outputs.size() + inputs.size());
  call.ndim = lead;
  int k = 0;
  for (const auto& list : {outputs, inputs})
    for (const Tensor* t : list) describe(call.operands[k++], *t);
  for (int d = 0; d < lead; ++d) call.shape[d] = first.sizes()[d];
  call.dtype = first.dtype();
  call.result_dtype = (*outputs.begin())->dtype();
  return &call;
}

namespace {

// A matrix as a batch of one. Its address is not known yet; the offset tells its alignment.
struct Batch {
  int64_t sizes[3], strides[3];
  TensorView view;
  explicit Batch(const Tensor& t) : sizes{1, 1, t.sizes().back()}, strides{0, 0, t.strides().back()} {
    if (t.dim() == 2) sizes[1] = t.sizes()[0], strides[1] = t.strides()[0];
    view = {reinterpret_cast<void*>(t.storage_offset() * t.element_size()),
            sizes,
            strides,
            t.numel(),
            3,
            t.dtype(),
            t.device()};
  }
  Batch(const Batch&) = delete;
};

void describe(Operand& o, const Tensor& t, const Batch& as) {
  const int64_t bytes = t.element_size();
  o.storage = t.impl()->storage.get();
  o.offset = t.storage_offset() * bytes;
  o.dtype = t.dtype();
  o.ndim = 3;
  for (int d = 0; d < 3; ++d) o.sizes[d] = as.sizes[d], o.strides[d] = as.strides[d] * bytes;
}

void multiply(const TensorView* views, bool biased) {
  MatmulCall call;
  call.out = views[0];
  call.a = views[1];
  call.b = views[2];
  if (biased) call.bias = views[3].data;
  MICA_KERNEL(call.out.device, matmul)(call);
}

}  // namespace

bool puts_pieces_off(Device device) {
  if (!(thread_modes & mode_bit::kRecord) || device.is_meta()) return false;
  return device.is_cpu() || (least_fused <= 1 && fusion_of(device));
}

bool put_off_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* bias) {
  if (!(thread_modes & mode_bit::kRecord) || least_fused > 1 || out.is_cpu() || out.is_meta()) [[likely]]
    return false;
  const Fusion* fusion = fusion_of(out.device());
  if (!fusion || !fusion->takes_product || out.size(0) != 1) return false;
  for (const Tensor* t : {&out, &a, &b, bias})
    if (t && (!t->storage() || !t->storage()->resizable() || t->numel() == 0)) return false;
  const Batch to(out), left(a), right(b);
  MatmulCall product;
  product.out = to.view;
  product.a = left.view;
  product.b = right.view;
  if (!fusion->takes_product(product)) return false;
  Call& call = begin_call();
  call.name = "matmul";
  call.device = out.device();
  call.dtype = call.result_dtype = out.dtype();
  call.noutputs = 1;
  call.noperands = bias ? 4 : 3;
  call.ndim = 1;
  call.shape[0] = 1;
  describe(call.operands[0], out, to);
  describe(call.operands[1], a, left);
  describe(call.operands[2], b, right);
  if (bias) describe(call.operands[3], *bias, Batch(*bias));
  const bool biased = bias != nullptr;
  set_rows(call, [biased](const TensorView* views, int) { multiply(views, biased); });
  call.form = Call::Form::Product;
  return end_call();
}

Call* begin_sum(const char* name, const Tensor& out, const Tensor& row, bool is_mean) {
  if (least_fused > 1 || out.is_cpu() || out.is_meta() || out.numel() != 1 || !row.is_contiguous() || row.dim() == 0 ||
      row.sizes().back() != row.numel())
    return nullptr;
  for (const Tensor* t : {&out, &row})
    if (t->dtype() != DType::Float32 || t->dim() > kDims || !t->storage() || !t->storage()->resizable()) return nullptr;
  const Fusion* fusion = fusion_of(out.device());
  FusedSum sum{reinterpret_cast<const float*>(row.storage_offset() * row.element_size()), nullptr, row.numel(), 1};
  if (is_mean) sum.divisor = static_cast<float>(row.numel());
  if (!fusion || !fusion->takes_sum || !fusion->takes_sum(sum)) return nullptr;
  Call& call = begin_call();
  call.name = name;
  call.device = out.device();
  call.dtype = call.result_dtype = DType::Float32;
  call.noutputs = 1;
  call.noperands = 2;
  call.ndim = 0;
  describe(call.operands[0], out);
  describe(call.operands[1], row);
  return &call;
}

namespace {

// The operands of a Norm call, one after the other; outputs come first.
class NormCall {
 public:
  explicit NormCall(Call& call) : call_(call) { call_.noperands = 0; }
  int8_t add(const Tensor& t) {
    if (!t.defined()) return -1;
    describe(call_.operands[call_.noperands], t);
    return static_cast<int8_t>(call_.noperands++);
  }

 private:
  Call& call_;
};

// Rows whose memory nobody outside knows, from addresses that vectors can be read from.
bool is_fusable(const Tensor& t, Device device, DType dtype = DType::Float32) {
  return t.dtype() == dtype && t.device() == device && t.impl()->contiguous && t.dim() <= kDims && t.numel() != 0 &&
         t.storage() && t.storage()->resizable() && t.storage_offset() * t.element_size() % 16 == 0;
}

bool are_fusable(std::initializer_list<const Tensor*> tensors, Device device) {
  for (const Tensor* t : tensors)
    if (t->defined() && !is_fusable(*t, device)) return false;
  return true;
}

bool can_be_fused(const char* name, std::initializer_list<const Tensor*> tensors, int64_t count) {
  const Tensor& first = **tensors.begin();
  if (!(thread_modes & mode_bit::kRecord) || first.is_cpu() || first.is_meta()) [[likely]]
    return false;
  if (runs_alone_for_sure(name, DType::Float32, first.sizes())) return false;
  const Fusion* fusion = fusion_of(first.device());
  if (!fusion || !fusion->takes_norm || !fusion->takes_norm(count)) return false;
  bool awaited = false;
  for (const Tensor* t : tensors) {
    if (!t->defined()) continue;
    if (!is_fusable(*t, first.device())) return false;
    awaited |= t->storage()->written_later();
  }
  return first.numel() >= least_fused && (awaited || !runs_alone(name, DType::Float32, first.sizes()));
}

// One row of 16-bit floats that rms_norm normalises, in a graph that is captured: products of the row may follow.
bool can_precede_products(const Tensor& row, const Tensor& weight, int64_t count) {
  if (!(thread_modes & mode_bit::kRecord) || least_fused > 1 || row.is_cpu() || row.is_meta()) [[likely]]
    return false;
  const Fusion* fusion = fusion_of(row.device());
  if (!fusion || !fusion->takes_row_norm || row.numel() != count || !fusion->takes_row_norm(row.dtype(), count))
    return false;
  return is_fusable(row, row.device(), row.dtype()) &&
         (!weight.defined() || is_fusable(weight, row.device(), row.dtype()));
}

void run_norm(const NormArguments& a, const TensorView* views) {
  const TensorView none{};
  const auto at = [&](int8_t k) -> const TensorView& { return k < 0 ? none : views[k]; };
  const Device device = at(a.input).device;
  if (!a.backward && a.centred) {
    MICA_LAYER_KERNEL(device, layer_norm)
    (at(a.out), at(a.mean), at(a.rstd), at(a.input), at(a.weight), at(a.bias), a.count, a.eps);
  } else if (!a.backward) {
    MICA_LAYER_KERNEL(device, rms_norm)(at(a.out), at(a.rstd), at(a.input), at(a.weight), a.count, a.eps);
  } else if (a.centred) {
    MICA_LAYER_KERNEL(device, layer_norm_backward)
    (at(a.out), at(a.grad_weight), at(a.grad_bias), at(a.grad), at(a.input), at(a.mean), at(a.rstd), at(a.weight),
     a.count);
  } else {
    MICA_LAYER_KERNEL(device, rms_norm_backward)
    (at(a.out), at(a.grad_weight), at(a.grad), at(a.input), at(a.rstd), at(a.weight), a.count);
  }
}

bool end_norm(Call& call, const char* name, int noutputs, const Tensor& rows, const NormArguments& arguments) {
  call.name = name;
  call.device = rows.device();
  call.dtype = call.result_dtype = rows.dtype();
  call.noutputs = noutputs;
  call.ndim = 0;
  set_rows(call, [arguments](const TensorView* views, int) { run_norm(arguments, views); });
  call.form = Call::Form::Norm;
  return end_call();
}

}  // namespace

constinit thread_local bool Promises::active_ = false;

bool rows_may_wait(const Tensor& input) {
  if (!(thread_modes & mode_bit::kRecord) || input.is_meta()) [[likely]]
    return false;
  if (!input.is_cpu()) return least_fused <= 1 && fusion_of(input.device());
  return input.numel() >= least_elements.load(std::memory_order_relaxed) ||
         (input.storage() && input.storage()->written_later());
}

bool copy_may_wait(const Tensor& input, Device device) {
  if (!(thread_modes & mode_bit::kRecord) || device.is_meta() || device != input.device()) [[likely]]
    return false;
  if (input.storage() && input.storage()->written_later()) return true;
  const bool enough = device.is_cpu() ? 2 * input.numel() >= least_elements.load(std::memory_order_relaxed)
                                      : input.numel() >= least_fused && fusion_of(device);
  return enough && !copy_runs_alone(input.dtype(), input.sizes());
}

bool layer_norm_waits(const Tensor& input, const Tensor& weight, const Tensor& bias, int64_t count) {
  return can_be_fused("norm", {&input, &weight, &bias}, count);
}
bool rms_norm_waits(const Tensor& input, const Tensor& weight, int64_t count) {
  return can_be_fused("norm", {&input, &weight}, count) || can_precede_products(input, weight, count);
}

bool norm_gradient_waits(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, int64_t count) {
  return can_be_fused("norm_backward", {&input, &grad, &mean, &rstd, &weight}, count);
}

bool put_off_norm(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& input, const Tensor& weight,
                  const Tensor& bias, int64_t count, double eps) {
  if (!is_fusable(out, input.device(), input.dtype()) || !are_fusable({&mean, &rstd}, input.device())) return false;
  Call& call = begin_call();
  NormCall operands(call);
  NormArguments a{input.numel() / count, count, eps, mean.defined(), false};
  a.out = operands.add(out);
  a.mean = operands.add(mean);
  a.rstd = operands.add(rstd);
  const int noutputs = call.noperands;
  a.input = operands.add(input);
  a.weight = operands.add(weight);
  a.bias = operands.add(bias);
  return end_norm(call, a.centred ? "layer_norm" : "rms_norm", noutputs, input, a);
}

bool put_off_norm_gradient(const NormGradients& gradients, const Tensor& input, const Tensor& mean, const Tensor& rstd,
                           const Tensor& weight, int64_t count) {
  const auto& [grad_input, grad_weight, grad_bias, grad] = gradients;
  if (!grad_input.defined() || !are_fusable({&grad_input, &grad_weight, &grad_bias}, input.device())) return false;
  Call& call = begin_call();
  NormCall operands(call);
  NormArguments a{input.numel() / count, count, 0, mean.defined(), true};
  a.out = operands.add(grad_input);
  a.grad_weight = operands.add(grad_weight);
  a.grad_bias = operands.add(grad_bias);
  const int noutputs = call.noperands;
  a.grad = operands.add(grad);
  a.input = operands.add(input);
  a.mean = operands.add(mean);
  a.rstd = operands.add(rstd);
  a.weight = operands.add(weight);
  return end_norm(call, a.centred ? "layer_norm_backward" : "rms_norm_backward", noutputs, input, a);
}

bool put_off_copy_to(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  if (!(thread_modes & mode_bit::kRecord) || least_fused > 1 || self.is_cpu() || self.is_meta()) [[likely]]
    return false;
  const Fusion* fusion = fusion_of(self.device());
  if (!fusion || self.dim() > kFusedDims || source.dim() != self.dim() || source.sizes()[dim] != 1 ||
      source.numel() == 0 || source.numel() > kFusedElements || index.numel() != 1 || index.dtype() != DType::Int64 ||
      source.dtype() != self.dtype())
    return false;
  for (const Tensor* t : {&self, &index, &source})
    if (t->device() != self.device() || !t->storage() || !t->storage()->resizable()) return false;
  PointwiseLoop copy{};
  copy.noutputs = 1;
  copy.noperands = 2;
  copy.dtype = copy.result_dtype = copy.dtypes[0] = copy.dtypes[1] = self.dtype();
  copy.device = self.device();
  FusedInstruction step;
  if (!fusion->describe("copy", copy, nullptr, step)) return false;
  // The slowest dimension first.
  int order[kFusedDims];
  const int ndim = static_cast<int>(self.dim());
  for (int d = 0; d < ndim; ++d) order[d] = d;
  std::stable_sort(order, order + ndim, [&](int a, int b) { return self.strides()[a] > self.strides()[b]; });
  Call& call = begin_call();
  call.name = "index_put";
  call.form = Call::Form::Indexed;
  call.run_loop = nullptr;
  call.run_rows = nullptr;
  call.device = self.device();
  call.dtype = call.result_dtype = self.dtype();
  call.step = step;
  call.noutputs = 1;
  call.noperands = 3;
  call.ndim = ndim;
  for (int d = 0; d < ndim; ++d) call.shape[d] = source.sizes()[order[d]];
  const Tensor* tensors[] = {&self, &source, &index};
  for (int k = 0; k < 3; ++k) {
    const Tensor& t = *tensors[k];
    Operand& o = call.operands[k];
    const int64_t bytes = t.element_size();
    o.storage = t.impl()->storage.get();
    o.offset = t.storage_offset() * bytes;
    o.dtype = t.dtype();
    o.ndim = ndim;
    for (int d = 0; d < ndim; ++d) {
      o.sizes[d] = k < 2 ? call.shape[d] : 1;
      o.strides[d] = k < 2 && call.shape[d] > 1 ? t.strides()[order[d]] * bytes : 0;
    }
  }
  new (call.arguments)
      IndexedPlace{self.strides()[dim] * self.element_size(), self.sizes()[dim], static_cast<int32_t>(dim)};
  return end_call();
}

}  // namespace mica::recording
