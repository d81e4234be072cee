#include <cmath>

#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/recorded_attention.h"
#include "core/recorded_rows.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/attention_implementations.h"
#include "mica/ops.h"

namespace mica::shapes {

void _scaled_dot_product_flash_attention_for_cpu(Out& output, Out& logsumexp, const Tensor& query, const Tensor& key,
                                                 const Tensor& value, double dropout_p, bool is_causal,
                                                 const Tensor& attn_mask, std::optional<double> scale) {
  MICA_CHECK(dropout_p == 0.0, "scaled_dot_product_attention_flash_attention: Currently do not support dropout > 0");
  for (const Tensor* t : {&query, &key, &value})
    MICA_CHECK(
        t->dim() == 4,
        "scaled_dot_product_attention_flash_attention: Accept only 4 dims inputs shape of {B, H, T, K}, but got ", *t);
  const DType dtype = query.dtype();
  MICA_CHECK(query.is_floating_point() && key.dtype() == dtype && value.dtype() == dtype,
             "scaled_dot_product_attention_flash_attention: Expected query, key and value of one floating dtype, but "
             "got ",
             query, ", ", key, " and ", value);
  const int64_t batch = query.size(0), heads = query.size(1), length = query.size(2), kv_heads = key.size(1);
  MICA_CHECK(key.size(3) == query.size(3) && key.size(2) == value.size(2),
             "scaled_dot_product_attention_flash_attention: Q/K/V should have the same head size and sequence lengths "
             "that fit, but got ",
             query, ", ", key, " and ", value);
  MICA_CHECK(
      key.size(0) == batch && value.size(0) == batch && value.size(1) == kv_heads,
      "scaled_dot_product_attention_flash_attention: batch and heads of query, key and value must agree, but got ",
      query, ", ", key, " and ", value);
  MICA_CHECK(heads == kv_heads || (kv_heads > 0 && heads % kv_heads == 0),
             "Number of heads in key and value must divide the number of heads in query, but got ", kv_heads, " and ",
             heads);

  // The result has the query's order in memory. Where heads lie within positions, joining the heads is a view.
  const DimVector sizes{batch, heads, length, value.size(3)};
  const bool heads_inside = query.stride(1) < query.stride(2) && heads > 1 && length > 1;
  const int64_t width = value.size(3);
  const DimVector strides = heads_inside ? DimVector{length * heads * width, width, heads * width, 1} : DimVector();
  const bool waits = recording::attention_waits(query, key, value, attn_mask);
  const recording::Promises promised(waits);
  const Tensor& out = output.set(sizes, dtype, query.device(), strides);
  const DType sums = dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const Tensor& lse = logsumexp.set({batch, heads, length}, sums, query.device());
  if (!output.needs_kernel()) return;
  const auto rows = [](const Tensor& t) { return t.stride(3) == 1 || t.size(3) == 1 ? t : t.contiguous(); };
  const Tensor q = rows(query), k = rows(key), v = rows(value);
  const Tensor mask = attn_mask.defined() ? attn_mask.expand({batch, heads, length, key.size(2)}) : attn_mask;
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
  if (waits && recording::put_off_attention(out, lse, q, k, v, mask, is_causal, factor)) return;
  MICA_LAYER_KERNEL(query.device(), attention_forward)
  (out.view_of(), lse.view_of(), q.view_of(), k.view_of(), v.view_of(), view_or_none(mask), is_causal, factor);
}

}  // namespace mica::shapes
