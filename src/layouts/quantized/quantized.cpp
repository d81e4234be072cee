// Quantized tensors: integers with a quantizer, which says what numbers they stand for.
#include <algorithm>
#include <cmath>

#include "core/allocate.h"
#include "core/entry.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/rare_facts.h"
#include "layouts/quantized/packed.h"
#include "layouts/quantized/parts.h"
#include "mica/autograd.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/quantized.h"
#include "mica/generated/layers/quantized_implementations.h"
#include "mica/generated/layouts/quantized.h"
#include "mica/ops.h"

namespace mica {

namespace {

struct Range {
  int64_t low, high;
};

Range range_of(DType integers) {
  switch (integers) {
    case DType::UInt8:
      return {0, 255};
    case DType::Int8:
      return {-128, 127};
    case DType::Int32:
      return {INT32_MIN, INT32_MAX};
    case DType::QUInt4x2:
      return {0, 15};
    case DType::QUInt2x4:
      return {0, 3};
    default:
      fail(cat("quantized tensors are made of quint8, qint8, qint32, quint4x2 or quint2x4, not of ", integers));
  }
}

void check_zero_point(DType integers, int64_t zero_point) {
  const Range r = range_of(integers);
  MICA_CHECK(zero_point >= r.low, "quantize_tensor_per_tensor_affine; zero_point ", zero_point,
             " is below lower bound.");
  MICA_CHECK(zero_point <= r.high, "quantize_tensor_per_tensor_affine; zero_point ", zero_point,
             " is above upper bound.");
}

void check_float(const char* op, const Tensor& t) {
  MICA_CHECK(t.dtype() == DType::Float32 && !t.is_quantized(), op, ": Quantize only works on Float Tensor, got ",
             t.is_quantized() ? "a quantized one" : name(t.dtype()));
}

const Quantizer& need_quantizer(const char* op, const Tensor& t) {
  MICA_CHECK(t.is_quantized(), op, " is only for quantized tensors, but got one of dtype ", t.dtype());
  return quantizer_of(t);
}
const Quantizer& need_per_tensor(const char* op, const Tensor& t) {
  const Quantizer& q = need_quantizer(op, t);
  MICA_CHECK(q.axis < 0, "Expected quantizer->qscheme() == kPerTensorAffine to be true, but got false: ", op,
             " of a tensor that is quantized per channel");
  return q;
}
const Quantizer& need_per_channel(const char* op, const Tensor& t) {
  const Quantizer& q = need_quantizer(op, t);
  MICA_CHECK(q.axis >= 0, "Expected quantizer->qscheme() == kPerChannelAffine to be true, but got false: ", op,
             " of a tensor that is quantized per tensor");
  return q;
}

std::shared_ptr<const Quantizer> per_tensor(double scale, int64_t zero_point) {
  auto q = std::make_shared<Quantizer>();
  q->scale = scale;
  q->zero_point = zero_point;
  return q;
}

Tensor attach(Tensor integers, std::shared_ptr<const Quantizer> quantizer) {
  return attach_quantizer(std::move(integers), std::move(quantizer));
}
Tensor bare(const Tensor& t) { return bare_integers(t); }

// How many neighbouring elements of a contiguous tensor belong to one channel.
int64_t inner_size(const Tensor& t, int64_t axis) {
  int64_t inner = 1;
  for (int64_t d = axis + 1; d < t.dim(); ++d) inner *= t.size(d);
  return axis < 0 ? std::max<int64_t>(t.numel(), 1) : inner;
}

Tensor one(double value) { return full({1}, Scalar(value), TensorOptions(DType::Float64).device(kCPU)); }
Tensor one(int64_t value) { return full({1}, Scalar(value), TensorOptions(DType::Int64).device(kCPU)); }

Tensor quantized(const Tensor& self, std::shared_ptr<const Quantizer> q, DType integers) {
  NoGradGuard below;
  if (q->float_zero_points) {
    const Tensor numbers = round_with_real_zeros(self.detach(), *q, range_of(integers).low, range_of(integers).high);
    if (!is_packed_quantized(integers)) return attach(numbers.to(integers).contiguous(), std::move(q));
    return over_packed_bytes(pack_integers(numbers.to(DType::UInt8), integers), self.sizes(), integers, std::move(q));
  }
  if (is_packed_quantized(integers)) {
    const Range fit = range_of(integers);
    const Tensor numbers = self.detach().div(Scalar(q->scale)).round().add(Scalar(q->zero_point));
    const Tensor codes = numbers.clamp(Scalar(fit.low), Scalar(fit.high)).nan_to_num(0.0);
    return over_packed_bytes(pack_integers(codes.to(DType::UInt8), integers), self.sizes(), integers, std::move(q));
  }
  const Tensor from = self.detach().contiguous();
  const Tensor to = empty(self.sizes(), TensorOptions(integers).device(self.device()));
  const Range r = range_of(integers);
  const bool channels = q->axis >= 0;
  const Tensor scales = channels ? q->scales : one(q->scale), zeros = channels ? q->zero_points : one(q->zero_point);
  if (has_work(to)) MICA_LAYER_KERNEL(to.device(), quantize)
  (to.view_of(), from.view_of(), scales.view_of(), zeros.view_of(), inner_size(self, q->axis), r.low, r.high);
  return attach(to, std::move(q));
}

std::shared_ptr<const Quantizer> per_channel(const Tensor& self, const Tensor& scales, const Tensor& zero_points,
                                             int64_t axis, DType integers) {
  auto q = std::make_shared<Quantizer>();
  q->axis = wrap_dim(axis, self.dim());
  MICA_CHECK(self.dim() > 0, "Channel axis out of range in per channel affine quantization. Got: ", axis,
             " for a tensor without dimensions");
  MICA_CHECK(scales.dim() == 1, "scale tensor must have dimension 1, but has size ", scales.sizes());
  MICA_CHECK(zero_points.dim() == 1, "zero_points tensor must have dimension 1, but has size ", zero_points.sizes());
  MICA_CHECK(scales.numel() == zero_points.numel(), "number of elements in scales and zero_points must match, but ",
             scales.numel(), " != ", zero_points.numel());
  MICA_CHECK(scales.numel() == self.size(q->axis), "length of scales must equal to channel, expected ",
             self.size(q->axis), " got, ", scales.numel());
  q->float_zero_points = is_floating(zero_points.dtype());
  if (q->float_zero_points) {
    q->scales = scales.detach().to(DType::Float32).clone();
    q->zero_points = zero_points.detach().to(DType::Float32).clone();
    return q;
  }
  MICA_CHECK_KIND(!is_packed_quantized(integers), NotImplemented,
                  "\"quantize_tensor_per_channel_affine\" not implemented ", "for '", info(integers).legacy, "'");
  q->scales = scales.detach().to(DType::Float64).clone();
  q->zero_points = zero_points.detach().to(DType::Int64).clone();
  const Range r = range_of(integers);
  for (int64_t i = 0; i < scales.numel() && scales.is_cpu(); ++i) {
    const int64_t zero = q->zero_points.data_ptr<int64_t>()[i];
    MICA_CHECK(zero >= r.low, "quantize_tensor_per_channel_affine; zero_point ", zero, " is below lower bound.");
    MICA_CHECK(zero <= r.high, "quantize_tensor_per_channel_affine; zero_point ", zero, " is above upper bound.");
  }
  return q;
}

}  // namespace

Tensor attach_quantizer(Tensor integers, std::shared_ptr<const Quantizer> quantizer) {
  integers.impl()->rare_facts().quantizer = std::move(quantizer);
  integers.impl()->bits |= tensor_bit::kQuantized;
  return integers;
}

Tensor bare_integers(const Tensor& quantized) {
  MICA_CHECK_KIND(!is_packed_quantized(quantized.dtype()), NotImplemented, "this is not there for ", quantized.dtype(),
                  ": dequantize() it first");
  return make_view_as(quantized, quantized.dtype(), quantized.sizes(), quantized.strides(), quantized.storage_offset());
}

namespace composite {

Tensor quantize_per_tensor(const Tensor& self, double scale, int64_t zero_point, DType dtype) {
  check_float("quantize_per_tensor", self);
  check_zero_point(dtype, zero_point);
  return quantized(self, per_tensor(scale, zero_point), dtype);
}

Tensor quantize_per_tensor(const Tensor& self, const Tensor& scale, const Tensor& zero_point, DType dtype) {
  return composite::quantize_per_tensor(self, scale.item<double>(), zero_point.item<int64_t>(), dtype);
}

Tensor quantize_per_tensor_dynamic(const Tensor& self, DType dtype, bool reduce_range) {
  MICA_CHECK(dtype == DType::UInt8 || dtype == DType::Int8, "dtype not supported: quantize_per_tensor_dynamic makes ",
             "quint8 or qint8 tensors");
  check_float("quantize_per_tensor_dynamic", self);
  Range r = range_of(dtype);
  if (reduce_range) r = {r.low / 2, r.high / 2};
  double least = 0, greatest = 0;
  if (self.numel() > 0) {
    least = std::min(0.0, self.min().item<double>());
    greatest = std::max(0.0, self.max().item<double>());
  }
  MICA_CHECK(std::isfinite(least) && std::isfinite(greatest),
             "quantize_per_tensor_dynamic: the numbers must be finite");
  double scale = (greatest - least) / static_cast<double>(r.high - r.low);
  if (static_cast<float>(scale) == 0.0f || std::isinf(1.0f / static_cast<float>(scale))) scale = 0.1;
  if (scale < 6.1e-5f) {  // torch cuts off scales that small, so that the zero point stays exact
    const double original = scale;
    scale = 6.1e-5f;
    if (least == 0) {
      greatest = 6.1e-5f * static_cast<double>(r.high - r.low);
    } else if (greatest == 0) {
      least = -6.1e-5f * static_cast<double>(r.high - r.low);
    } else {
      const double amplifier = 6.1e-5f / original;
      least *= amplifier;
      greatest *= amplifier;
    }
  }
  const double from_least = static_cast<double>(r.low) - least / scale;
  const double from_greatest = static_cast<double>(r.high) - greatest / scale;
  const double least_error = std::abs(static_cast<double>(r.low)) - std::abs(least / scale);
  const double greatest_error = std::abs(static_cast<double>(r.high)) - std::abs(greatest / scale);
  const double initial = least_error < greatest_error ? from_least : from_greatest;
  const int64_t zero = initial < static_cast<double>(r.low)    ? r.low
                       : initial > static_cast<double>(r.high) ? r.high
                                                               : static_cast<int64_t>(std::nearbyint(initial));
  return composite::quantize_per_tensor(self, scale, zero, dtype);
}

Tensor quantize_per_channel(const Tensor& self, const Tensor& scales, const Tensor& zero_points, int64_t axis,
                            DType dtype) {
  check_float("quantize_per_channel", self);
  return quantized(self, per_channel(self, scales, zero_points, axis, dtype), dtype);
}

Tensor dequantize(const Tensor& self) {
  if (!self.is_quantized()) return self.to(DType::Float32);
  const Quantizer& q = quantizer_of(self);
  if (q.float_zero_points) {
    const Tensor codes = is_packed_quantized(self.dtype()) ? unpack_integers(self) : bare(self);
    return numbers_with_real_zeros(codes, q);
  }
  if (is_packed_quantized(self.dtype()))
    return unpack_integers(self).to(DType::Float32).sub(Scalar(q.zero_point)).mul(Scalar(q.scale));
  const Tensor from = bare(self).contiguous();
  const Tensor to = empty(self.sizes(), TensorOptions(DType::Float32).device(self.device()));
  const bool channels = q.axis >= 0;
  const Tensor scales = channels ? q.scales : one(q.scale), zeros = channels ? q.zero_points : one(q.zero_point);
  if (has_work(to)) MICA_LAYER_KERNEL(to.device(), dequantize)
  (to.view_of(), from.view_of(), scales.view_of(), zeros.view_of(), inner_size(self, q.axis));
  return to;
}

std::vector<Tensor> dequantize(TensorList tensors) {
  std::vector<Tensor> result;
  for (const Tensor& t : tensors) result.push_back(mica::dequantize(t));
  return result;
}

double q_scale(const Tensor& self) { return need_per_tensor("q_scale", self).scale; }
int64_t q_zero_point(const Tensor& self) { return need_per_tensor("q_zero_point", self).zero_point; }
Tensor q_per_channel_scales(const Tensor& self) { return need_per_channel("q_per_channel_scales", self).scales; }
Tensor q_per_channel_zero_points(const Tensor& self) {
  return need_per_channel("q_per_channel_zero_points", self).zero_points;
}
int64_t q_per_channel_axis(const Tensor& self) { return need_per_channel("q_per_channel_axis", self).axis; }

bool _is_quantized_per_channel(const Tensor& self) { return need_quantizer("qscheme", self).axis >= 0; }

Tensor int_repr(const Tensor& self) {
  need_quantizer("int_repr", self);
  if (is_packed_quantized(self.dtype())) return packed_bytes(self).clone();  // several in a byte, as in torch
  return bare(self).clone();
}

Tensor _make_per_tensor_quantized_tensor(const Tensor& self, double scale, int64_t zero_point) {
  MICA_CHECK(!self.is_quantized(), "_make_per_tensor_quantized_tensor: the tensor is quantized already");
  check_zero_point(self.dtype(), zero_point);
  return attach(self.detach().clone(), per_tensor(scale, zero_point));
}

Tensor _make_per_channel_quantized_tensor(const Tensor& self, const Tensor& scale, const Tensor& zero_point,
                                          int64_t axis) {
  MICA_CHECK(!self.is_quantized(), "_make_per_channel_quantized_tensor: the tensor is quantized already");
  return attach(self.detach().clone(), per_channel(self, scale, zero_point, axis, self.dtype()));
}

Tensor _make_packed_quantized_tensor(const Tensor& self, IntArrayRef size, const Tensor& scale,
                                     const Tensor& zero_point, int64_t axis, DType dtype) {
  MICA_CHECK(is_packed_quantized(dtype), "_make_packed_quantized_tensor makes quint4x2 and quint2x4, not ", dtype);
  const Tensor bytes = self.detach().contiguous().clone();
  if (axis >= 0) {
    const Tensor sized = mica::empty(size, TensorOptions(DType::Float32).device(Device(DeviceType::Meta)));
    return over_packed_bytes(bytes, size, dtype, per_channel(sized, scale, zero_point, axis, dtype));
  }
  check_zero_point(dtype, zero_point.item<int64_t>());
  return over_packed_bytes(bytes, size, dtype, per_tensor(scale.item<double>(), zero_point.item<int64_t>()));
}

}  // namespace composite

namespace layouts::quantized {

Tensor clone(const Tensor& self, std::optional<MemoryFormat> memory_format) {
  if (is_packed_quantized(self.dtype()))
    return over_packed_bytes(packed_bytes(self).clone(), self.sizes(), self.dtype(), self.impl()->rare->quantizer);
  return attach(mica::clone(bare(self), memory_format), self.impl()->rare->quantizer);
}

Tensor contiguous(const Tensor& self, MemoryFormat memory_format) {
  return self.is_contiguous(memory_format) ? self : quantized::clone(self, memory_format);
}

Tensor _to_copy(const Tensor& self, const TensorOptions& options, bool non_blocking,
                std::optional<MemoryFormat> memory_format) {
  MICA_CHECK(!options.has_dtype() || options.dtype() == self.dtype(), "to(): a quantized tensor cannot become ",
             options.has_dtype() ? name(options.dtype()) : "", "; dequantize() it first");
  if (is_packed_quantized(self.dtype())) {
    const Tensor bytes = mica::_to_copy(
        packed_bytes(self), TensorOptions(options.has_device() ? options.device() : self.device()), non_blocking, {});
    return over_packed_bytes(bytes, self.sizes(), self.dtype(), self.impl()->rare->quantizer);
  }
  return attach(mica::_to_copy(bare(self), options, non_blocking, memory_format), self.impl()->rare->quantizer);
}

// Real numbers are quantized as self is; quantized ones are taken over with their integers and quantizer.
void copy_(const Tensor& self, const Tensor& src, bool non_blocking) {
  MICA_CHECK(self.is_quantized(), "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use ",
             "dequantize to get a float Tensor from a quantized Tensor");
  if (!src.is_quantized()) {
    const Tensor spread = src.to(DType::Float32).expand(self.sizes());
    MICA_CHECK(self.is_contiguous() || self.is_contiguous(self.suggest_memory_format()),
               "Quantized copy only works with contiguous and NHWC Tensors");
    if (is_packed_quantized(self.dtype())) {
      packed_bytes(self).copy_(packed_bytes(mica::quantized(spread, self.impl()->rare->quantizer, self.dtype())));
      return;
    }
    bare(self).copy_(bare(mica::quantized(spread, self.impl()->rare->quantizer, self.dtype())), non_blocking);
    return;
  }
  MICA_CHECK(self.dtype() == src.dtype(), "Quantized Copy only works with Tensors with the same dtype");
  bare(self).copy_(bare(src), non_blocking);
  self.impl()->rare->quantizer = src.impl()->rare->quantizer;
}

void fill_(const Tensor& self, const Scalar& value) {
  quantized::copy_(self, mica::full({}, value, TensorOptions(DType::Float32).device(self.device())), false);
}

Tensor relu(const Tensor& self) {
  const Quantizer& q = need_per_tensor("relu", self);
  return attach(bare(self).clamp_min(Scalar(q.zero_point)), self.impl()->rare->quantizer);
}

bool equal(const Tensor& self, const Tensor& other) {
  if (!self.is_quantized() || !other.is_quantized() || self.dtype() != other.dtype()) return false;
  const Quantizer &p = quantizer_of(self), &q = quantizer_of(other);
  if (p.axis != q.axis) return false;
  const bool same = p.axis < 0 ? p.scale == q.scale && p.zero_point == q.zero_point
                               : mica::equal(p.scales, q.scales) && mica::equal(p.zero_points, q.zero_points);
  if (is_packed_quantized(self.dtype()))
    return same && self.sizes() == other.sizes() && mica::equal(packed_bytes(self), packed_bytes(other));
  return same && mica::equal(bare(self), bare(other));
}

Tensor max(const Tensor& self) {
  need_per_tensor("max", self);
  return attach(bare(self).max(), self.impl()->rare->quantizer);
}
Tensor min(const Tensor& self) {
  need_per_tensor("min", self);
  return attach(bare(self).min(), self.impl()->rare->quantizer);
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  need_per_tensor("index_select", self);
  return attach(bare(self).index_select(dim, index), self.impl()->rare->quantizer);
}

// A tensor with another scale is rounded to the scale of the first, as in torch.
Tensor cat(TensorList tensors, int64_t dim) {
  MICA_CHECK(!tensors.empty() && tensors[0].is_quantized(), "cat: expected quantized tensors");
  const Quantizer& q = need_per_tensor("cat", tensors[0]);
  std::vector<Tensor> list;
  for (const Tensor& t : tensors) {
    const Quantizer& own = need_per_tensor("cat", t);
    MICA_CHECK(t.dtype() == tensors[0].dtype(), "All dtypes must be the same: cat found ", tensors[0].dtype(), " and ",
               t.dtype());
    const bool same = own.scale == q.scale && own.zero_point == q.zero_point;
    list.push_back(bare(same ? t : quantize_per_tensor(mica::dequantize(t), q.scale, q.zero_point, t.dtype())));
  }
  return attach(mica::cat(list, dim), tensors[0].impl()->rare->quantizer);
}

Tensor eq(const Tensor& self, const Tensor& other) { return mica::eq(mica::dequantize(self), mica::dequantize(other)); }

}  // namespace layouts::quantized

Tensor Tensor::dequantize() const { return mica::dequantize(*this); }
Tensor Tensor::int_repr() const { return mica::int_repr(*this); }
double Tensor::q_scale() const { return mica::q_scale(*this); }
int64_t Tensor::q_zero_point() const { return mica::q_zero_point(*this); }
Tensor Tensor::q_per_channel_scales() const { return mica::q_per_channel_scales(*this); }
Tensor Tensor::q_per_channel_zero_points() const { return mica::q_per_channel_zero_points(*this); }
int64_t Tensor::q_per_channel_axis() const { return mica::q_per_channel_axis(*this); }

}  // namespace mica
