#include <cmath>

#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/recorded_attention.h"
#include "mica/autograd.h"
#include "mica/backend/layer_backend.h"
#include "mica/core/class_alias.h"
#include "mica/generated/layers/attention.h"
#include "mica/generated/layers/attention_implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

namespace {

Scalar minus_infinity() { return Scalar(-INFINITY); }

// A mask that is added to scores, from one of bools in which true lets a key take part.
Tensor additive(const Tensor& mask, DType dtype) {
  if (mask.dtype() != DType::Bool) return mask;
  return mica::zeros(mask.sizes(), mask.options().dtype(dtype)).masked_fill_(mask.logical_not(), minus_infinity());
}

// Softmax in which a row of minus infinities gives zeros.
Tensor safe_softmax(const Tensor& scores) {
  const Tensor empty_rows = mica::eq(scores, minus_infinity()).all(-1, true);
  return mica::softmax(scores.masked_fill(empty_rows, Scalar(0)), -1).masked_fill(empty_rows, Scalar(0));
}

IntArrayRef batch_of(const Tensor& t) { return {t.impl()->view.sizes, static_cast<size_t>(t.dim() - 2)}; }

void check_arguments(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, bool is_causal) {
  MICA_CHECK(query.dtype() == key.dtype() && query.dtype() == value.dtype(),
             "Expected query, key, and value to have the same dtype, but got query.dtype: ", query.dtype(),
             " key.dtype: ", key.dtype(), " and value.dtype: ", value.dtype(), " instead.");
  MICA_CHECK(query.device() == key.device() && query.device() == value.device(),
             "Expected query, key, and value to have the same device type, but got ", query, ", ", key, " and ", value,
             " instead.");
  MICA_CHECK(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2,
             "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: ", query.dim(),
             " key.dim: ", key.dim(), " and value.dim: ", value.dim(), " instead.");
  if (!mask.defined()) return;
  MICA_CHECK(mask.dtype() == DType::Bool || mask.dtype() == DType::Float32 || mask.dtype() == query.dtype(),
             "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: ",
             mask.dtype(), " and  query.dtype: ", query.dtype(), " instead.");
  MICA_CHECK(mask.device() == query.device(), "Expected attn_mask and query to have the same device, but got ", mask,
             " and ", query, " instead.");
  MICA_CHECK(!is_causal || query.dim() == 4,
             "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True");
}

// Inputs as the fused kernel takes them: four dimensions, batches expanded to one another.
struct Fused {
  Tensor query, key, value, mask;
};

bool fits_fused(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double dropout_p) {
  static const TensorView kNone;
  // A class that answers for its tensors has no elements here: then only their geometry is asked for.
  const auto view = [](const Tensor& t) { return dispatch::in_parts ? &t.impl()->view : &t.view_of(); };
  const bool has_kernel = recording::attention_waits(query, key, value, mask) ||
                          MICA_LAYER_TAKES(query.device(), attention_forward, view(query), view(key), view(value),
                                           mask.defined() ? view(mask) : &kNone);
  return has_kernel && dropout_p == 0.0 && query.is_floating_point() && element_size(query.dtype()) >= 2 &&
         query.size(-1) == key.size(-1) && key.size(-2) == value.size(-2) && query.numel() > 0 && key.numel() > 0 &&
         value.numel() > 0 && !compute_requires_grad(mask);
}

Tensor in_four_dims(const Tensor& t, IntArrayRef batch) {
  DimVector sizes(batch);
  sizes.push_back(t.size(-2));
  sizes.push_back(t.size(-1));
  const Tensor expanded = batch_of(t) == batch ? t : t.expand(sizes);
  switch (batch.size()) {
    case 0:
      return expanded.unsqueeze(0).unsqueeze(0);
    case 1:
      return expanded.unsqueeze(1);
    case 2:
      return expanded;
    default:
      return expanded.flatten(0, static_cast<int64_t>(batch.size()) - 2);
  }
}

Fused prepare_fused(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, bool grouped) {
  if (grouped) return {query, key, value, mask};
  const DimVector batch = broadcast_sizes(broadcast_sizes(batch_of(query), batch_of(key)), batch_of(value));
  Fused f{in_four_dims(query, batch), in_four_dims(key, batch), in_four_dims(value, batch), mask};
  if (mask.defined() && mask.dim() > 2 && batch.size() != 2) {
    const Tensor grown = mask.size(-1) == key.size(-2) && mask.size(-2) == query.size(-2) ? mask : mask.expand([&] {
      DimVector sizes(batch_of(mask));
      sizes.push_back(query.size(-2));
      sizes.push_back(key.size(-2));
      return sizes;
    }());
    f.mask = in_four_dims(grown, batch);
  }
  return f;
}

}  // namespace

std::tuple<Tensor, Tensor> _scaled_dot_product_attention_math(const Tensor& query, const Tensor& key,
                                                              const Tensor& value, const Tensor& attn_mask,
                                                              double dropout_p, bool is_causal,
                                                              const Tensor& dropout_mask, std::optional<double> scale,
                                                              bool enable_gqa) {
  const DType dtype = query.dtype();
  const bool widen = is_narrow(dtype);
  const auto computed = [&](const Tensor& t) { return widen ? t.to(DType::Float32) : t; };
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  const double root = std::sqrt(std::abs(factor));
  Tensor k = computed(key), v = computed(value);
  if (enable_gqa) {
    MICA_CHECK(query.dim() >= 3 && key.dim() >= 3 && value.dim() >= 3,
               "scaled_dot_product_attention: grouped heads need at least 3 dimensions");
    const int64_t heads = query.size(-3);
    MICA_CHECK(key.size(-3) > 0 && value.size(-3) > 0 && heads % key.size(-3) == 0 && heads % value.size(-3) == 0,
               "Number of heads in key and value must divide the number of heads in query, but got ", key.size(-3),
               ", ", value.size(-3), " and ", heads);
    if (key.size(-3) != heads) k = mica::repeat_interleave(k, heads / key.size(-3), -3);
    if (value.size(-3) != heads) v = mica::repeat_interleave(v, heads / value.size(-3), -3);
  }
  Tensor mask = attn_mask;
  if (is_causal) {
    MICA_CHECK(!attn_mask.defined(),
               "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True");
    mask = mica::tril(mica::ones({query.size(-2), key.size(-2)}, query.options().dtype(DType::Bool)));
  }
  const Tensor q = computed(query) * Scalar(factor < 0 ? -root : root);
  Tensor scores = mica::matmul(q, (k * Scalar(root)).transpose(-2, -1));
  if (mask.defined()) scores = scores + additive(mask, scores.dtype());
  // Under a causal mask every query sees at least the first key, so no row is empty.
  Tensor weights = mask.defined() && !is_causal ? safe_softmax(scores) : mica::softmax(scores, -1);
  if (dropout_p > 0.0) {
    if (dropout_mask.defined()) {
      weights = weights.masked_fill(dropout_mask.logical_not(), Scalar(0));
      v = v * Scalar(1.0 / (1.0 - dropout_p));
    } else {
      weights = mica::dropout(weights, dropout_p, true);
    }
  }
  const Tensor result = mica::matmul(weights, v);
  return widen ? std::tuple(result.to(dtype), weights.to(dtype)) : std::tuple(result, weights);
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  check_arguments(query, key, value, attn_mask, is_causal);
  MICA_CHECK(dropout_p >= 0.0 && dropout_p <= 1.0, "dropout probability has to be between 0 and 1, but got ",
             dropout_p);
  const bool grouped = enable_gqa && query.dim() == 4 && key.dim() == 4 && value.dim() == 4 &&
                       key.size(0) == query.size(0) && value.size(0) == query.size(0) && key.size(1) == value.size(1);
  if (grouped) {
    MICA_CHECK(key.size(1) > 0 && query.size(1) % key.size(1) == 0,
               "Number of heads in key and value must divide the number of heads in query, but got ", key.size(1),
               " and ", query.size(1));
  }
  if (fits_fused(query, key, value, attn_mask, dropout_p) && (!enable_gqa || grouped)) {
    const Fused f = prepare_fused(query, key, value, attn_mask, grouped);
    const Tensor result = std::get<0>(
        mica::_scaled_dot_product_flash_attention_for_cpu(f.query, f.key, f.value, 0.0, is_causal, f.mask, scale));
    if (grouped || (query.dim() == 4 && result.dim() == 4 && batch_of(result).size() == 2 && f.query.is_same(query)))
      return result;
    DimVector sizes = broadcast_sizes(broadcast_sizes(batch_of(query), batch_of(key)), batch_of(value));
    sizes.push_back(query.size(-2));
    sizes.push_back(value.size(-1));
    return result.reshape(sizes);
  }
  if (is_causal && attn_mask.defined()) {  // only the fused form takes a mask as well
    const Tensor below = mica::tril(mica::ones({query.size(-2), key.size(-2)}, query.options().dtype(DType::Bool)));
    const Tensor both = additive(attn_mask, query.dtype()) + additive(below, query.dtype());
    return std::get<0>(
        mica::_scaled_dot_product_attention_math(query, key, value, both, dropout_p, false, {}, scale, enable_gqa));
  }
  return std::get<0>(mica::_scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, {},
                                                              scale, enable_gqa));
}

Tensor _canonical_mask(const Tensor& mask, std::string_view mask_name, std::optional<DType> other_type,
                       std::string_view other_name, DType target_type, bool check_other) {
  if (!mask.defined()) return mask;
  MICA_CHECK(mask.dtype() == DType::Bool || mask.is_floating_point(), "only bool and floating types of ", mask_name,
             " are supported, but got ", mask);
  if (check_other && other_type && mask.dtype() != *other_type) {
    warn(mica::cat("Support for mismatched ", mask_name, " and ", other_name,
                   " is deprecated. Use same type for both instead."));
  }
  if (mask.dtype() != DType::Bool) return mask;
  return mask.to(target_type).masked_fill_(mask, minus_infinity());  // zero where the mask is False
}

}  // namespace mica::composite
