#include "core/kernel_arguments.h"
#include "shapes/embedding_bag.h"

#include "core/geometry.h"
#include "core/host_data.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/embedding_bag_implementations.h"
#include "mica/ops.h"
#include "shapes/argument_checks.h"
#include "shapes/indexing.h"

namespace mica::shapes {

namespace {

constexpr int64_t kSumMode = 0, kMeanMode = 1, kMaxMode = 2;

void check_index_dtype(const char* name, const Tensor& t) {
  MICA_CHECK(t.dtype() == DType::Int64 || t.dtype() == DType::Int32, "Expected tensor for argument #1 '", name,
             "' to have one of the following scalar types: Long, Int; but got torch.", info(t.dtype()).legacy,
             "Tensor instead (while checking arguments for embedding_bag)");
}

void check_bags(const Bags& bags) {
  if (capabilities_of(bags.begins.device()).reports_indices) return;
  const Tensor host = bags.begins.cpu();
  const int64_t* begins = host_data<int64_t>(host);
  const int64_t length = bags.indices.numel();
  if (bags.count() == 0) return;
  MICA_CHECK(begins[0] == 0,
             "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
             "However, got ",
             begins[0]);
  const int64_t last = begins[bags.count() - 1];
  MICA_CHECK(last <= length, "offsets[-1] can not be greater than input's length ", length, " but got offsets[-1] of ",
             last);
  for (int64_t b = 0; b < bags.count(); ++b)
    MICA_CHECK(begins[b] <= begins[b + 1] && begins[b + 1] <= length,
               "embedding_bag: offsets must not decrease nor exceed the input's length ", length, ", but bag ", b,
               " goes from ", begins[b], " to ", begins[b + 1]);
}

}  // namespace

Bags::Bags(const Tensor& indices, const Tensor& offsets, bool include_last_offset)
    : indices(plain_index(indices, indices.device()).view({-1})) {
  const Tensor starts = plain_index(offsets, offsets.device()).view({-1});
  begins = include_last_offset ? starts : mica::cat({starts, full({1}, Scalar(indices.numel()), starts.options())});
}

void Bags::run_to_the_end(int64_t mode, int64_t padding_idx, const Tensor& weight) {
  const bool keeps_last = weight.is_cpu() && mode == kSumMode && padding_idx < 0 && weight.dtype() != DType::Float64;
  if (keeps_last || count() == 0) return;
  begins = mica::cat({begins.narrow(0, 0, count()), full({1}, Scalar(indices.numel()), begins.options())});
}

Tensor Bags::bag_of() const {
  const Tensor places = arange(Scalar(0), Scalar(indices.numel()), Scalar(1), indices.options());
  return bucketize(places, begins.narrow(0, 0, count()), false, true) - Scalar(1);
}

void _embedding_bag(Out& out, Out& offset2bag, Out& bag_size, Out& max_indices, const Tensor& weight,
                    const Tensor& indices, const Tensor& offsets, bool, int64_t mode, bool,
                    const Tensor& per_sample_weights, bool include_last_offset, int64_t padding_idx) {
  check_index_dtype("indices", indices);
  check_index_dtype("offsets", offsets);
  MICA_CHECK(mode >= kSumMode && mode <= kMaxMode, "embedding_bag: mode must be 0 (sum), 1 (mean) or 2 (max), got ",
             mode);
  MICA_CHECK(indices.dim() == 1 && offsets.dim() == 1, "embedding_bag: expected 1-D indices and offsets, but got ",
             indices.sizes(), " and ", offsets.sizes());
  check_one_device("embedding_bag", {&weight, &indices, &offsets, &per_sample_weights});
  MICA_CHECK(weight.dim() == 2, "'weight' must be 2-D, but got ", weight.sizes());
  MICA_CHECK(!include_last_offset || offsets.numel() >= 1,
             "include_last_offset: number of offsets should be at least 1");
  MICA_CHECK(weight.is_floating_point(),
             "Expected tensor for argument #1 'weight' to have one of the following scalar types: Half, BFloat16, "
             "Float, Double; but got torch.",
             info(weight.dtype()).legacy, "Tensor instead (while checking arguments for embedding_bag)");
  if (per_sample_weights.defined()) {
    MICA_CHECK(mode == kSumMode, "embedding_bag: per_sample_weights only supported with mode='sum'");
    MICA_CHECK(per_sample_weights.dtype() == weight.dtype(),
               "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
               "'per_sample_weights'; but type torch.",
               info(weight.dtype()).legacy, "Tensor does not equal torch.", info(per_sample_weights.dtype()).legacy,
               "Tensor (while checking arguments for embedding_bag)");
    MICA_CHECK(per_sample_weights.dim() == 1 && per_sample_weights.numel() == indices.numel(),
               "Expected per_sample_weights to have the shape of the indices, ", indices.sizes(), ", but got ",
               per_sample_weights.sizes());
  }
  Bags bags(indices, offsets, include_last_offset);
  const int64_t rows = weight.size(0), width = weight.size(1);
  if (!weight.is_meta()) {
    check_bags(bags);
    if (const auto bad = index_outside(bags.indices, 0, rows)) {
      const Tensor host = bags.indices.cpu();
      int64_t at = 0;
      while (host_data<int64_t>(host)[at] != *bad) ++at;
      fail(mica::cat("Index ", at, " of input takes value ", *bad, " which is not in the valid range [0, ", rows,
                     "). embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be ", *bad));
    }
  }
  if (include_last_offset) bags.run_to_the_end(mode, padding_idx, weight);
  const DType index_dtype = indices.dtype() == offsets.dtype() ? indices.dtype() : DType::Int64;
  const Tensor& result = out.set({bags.count(), width}, weight.dtype(), weight.device());
  // For a sum, these results are what torch returns. The gradient of a sum needs none of them.
  const bool no_bags = mode == kSumMode && padding_idx < 0 && weight.dtype() != DType::Float64;
  const int64_t kept = mode == kSumMode ? offsets.numel() : bags.count();
  const Tensor& bag_of = offset2bag.set({no_bags ? 0 : indices.numel()}, index_dtype, weight.device());
  const Tensor& sizes = bag_size.set({kept}, index_dtype, weight.device());
  const Tensor& places = mode == kMaxMode ? max_indices.set({bags.count(), width}, index_dtype, weight.device())
                                          : max_indices.set({kept}, index_dtype, weight.device());
  if (weight.is_meta()) return;
  if (bag_of.numel() > 0) bag_of.copy_(bags.bag_of());
  sizes.zero_();
  places.zero_();
  if (bags.count() == 0) return;
  const TensorOptions wide = bags.begins.options();
  const Tensor counts = empty({bags.count()}, wide), from = mode == kMaxMode ? zeros(places.sizes(), wide) : Tensor();
  const Tensor table = weight.contiguous(),
               factors = per_sample_weights.defined() ? per_sample_weights.contiguous() : Tensor();
  MICA_LAYER_KERNEL(weight.device(), embedding_bag)
  (result.view_of(), counts.view_of(), view_or_none(from), table.view_of(), bags.indices.view_of(),
   bags.begins.view_of(), view_or_none(factors), mode, padding_idx);
  if (mode == kSumMode) return;
  sizes.copy_(counts);
  places.copy_(mode == kMaxMode ? from : counts);
}

}  // namespace mica::shapes
