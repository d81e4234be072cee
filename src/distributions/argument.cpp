#include "mica/distributions/argument.h"

#include <cfloat>
#include <cmath>

#include "core/geometry.h"
#include "distributions/shared.h"
#include "mica/indexing.h"
#include "mica/values.h"

namespace mica::distributions {

Argument::Argument(Tensor tensor) : tensor_(std::move(tensor)) {
  MICA_CHECK_KIND(tensor_.defined(), Value,
                  "Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                  "__torch_function__. An undefined tensor is neither.");
}

std::string Argument::str() const {
  if (!is_number()) return format_tensor(tensor_);
  return number_.is_floating() ? mica::cat(number_.to_double()) : to_string(number_);
}

std::vector<Tensor> broadcast_all(const std::vector<Argument>& values) {
  TensorOptions options = TensorOptions(default_dtype());
  for (const Argument& value : values) {
    if (value.is_number()) continue;
    options = value.tensor().options();
    break;
  }
  std::vector<Tensor> tensors;
  DimVector shape;
  for (const Argument& value : values) {
    tensors.push_back(value.is_number() ? full({}, value.number(), options) : value.tensor());
    shape = broadcast_sizes(shape, value.sizes());
  }
  for (Tensor& t : tensors)
    if (!(t.sizes() == shape.ref())) t = t.expand(shape);
  return tensors;
}

std::string size_text(IntArrayRef shape) {
  std::string text = "torch.Size(";
  append_to(text, shape);
  return text + ")";
}

std::string tuple_text(IntArrayRef shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

FloatLimits limits_of(const Tensor& t) {
  switch (to_real(t.dtype())) {
    case DType::Float64:
      return {DBL_EPSILON, DBL_MIN, DBL_MAX};
    case DType::Float32:
      return {FLT_EPSILON, FLT_MIN, FLT_MAX};
    case DType::Float16:
      return {0x1p-10, 0x1p-14, 65504.0};
    case DType::BFloat16:
      return {0x1p-7, 0x1p-126, 0x1.fep127};
    default:
      fail(ErrorKind::Type,
           "torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'torch.finfo'");
  }
}

Tensor sum_rightmost(const Tensor& value, int64_t count) {
  if (count == 0) return value;
  DimVector shape(without_last(value.sizes(), static_cast<size_t>(count)));
  shape.push_back(-1);
  return value.reshape(shape).sum({-1});
}

Tensor standard_normal(IntArrayRef shape, const Tensor& like) {
  Tensor noise = empty(shape, like.options());
  noise.normal_();
  return noise;
}

bool all_true(const Tensor& flags) { return flags.all().item<bool>(); }

void check_one_of_two(const OddsOptions& odds) {
  MICA_CHECK_KIND(odds.probs.has_value() != odds.logits.has_value(), Value,
                  "Either `probs` or `logits` must be specified, but not both.");
}

std::string format_tensor(const Tensor& t) {
  if (t.dim() > 0 || t.is_meta()) return t.str();
  const Scalar number = t.item();
  return number.is_floating() ? mica::cat(number.to_double()) : to_string(number);
}

Tensor enumerated(const Tensor& values, IntArrayRef batch_shape, bool expand) {
  DimVector ones(batch_shape.size() + 1, 1), wide = joined({-1}, batch_shape);
  ones[0] = -1;
  const Tensor column = values.view(ones);
  return expand ? column.expand(wide) : column;
}

Tensor clamp_probs(const Tensor& probs) {
  const double eps = limits_of(probs).eps;
  return probs.clamp(Scalar(eps), Scalar(1 - eps));
}

Tensor logits_to_probs(const Tensor& logits, bool is_binary) {
  return is_binary ? sigmoid(logits) : softmax(logits, -1);
}

Tensor probs_to_logits(const Tensor& probs, bool is_binary) {
  const Tensor inside = clamp_probs(probs);
  return is_binary ? log(inside) - log1p(-inside) : log(inside);
}

static Tensor lower_mask(int64_t n, int64_t diag, Device device) {
  const Tensor column = arange(n, device);
  return column < column.view({-1, 1}) + (diag + 1);
}

Tensor tril_matrix_to_vec(const Tensor& mat, int64_t diag) {
  const int64_t n = mat.size(-1);
  MICA_CHECK_KIND(-n <= diag && diag < n, Value, "diag (", diag, ") provided is outside [", -n, ", ", n - 1, "].");
  return mat.index({indexing::Ellipsis, lower_mask(n, diag, mat.device())});
}

Tensor vec_to_tril_matrix(const Tensor& vec, int64_t diag) {
  const int64_t length = vec.size(-1);
  // The side d solves d^2 + (1 + 2 diag) d - |diag| (diag + 1) - 2 length = 0.
  const double b = static_cast<double>(1 + 2 * diag);
  const double rest = static_cast<double>(8 * length + 4 * std::abs(diag) * (diag + 1));
  const double side = (-b + std::sqrt(b * b + rest)) / 2;
  MICA_CHECK_KIND(std::abs(std::nearbyint(side) - side) <= limits_of(vec).eps, Value, "The size of last dimension is ",
                  length, " which cannot be expressed as the lower triangular part of a square D x D matrix.");
  const auto n = static_cast<int64_t>(std::nearbyint(side));
  Tensor mat = vec.new_zeros(joined(without_last(vec.sizes()), {n, n}));
  mat.index_put_({indexing::Ellipsis, lower_mask(n, diag, vec.device())}, vec);
  return mat;
}

}  // namespace mica::distributions
