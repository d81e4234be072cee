#include "core/geometry.h"
#include "mica/autograd.h"
#include "mica/core/dispatch.h"
#include "mica/generated/layers/embedding_bag.h"
#include "mica/generated/layers/embedding_bag_implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

using Bagged = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Bagged embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool scale_grad_by_freq,
                     int64_t mode, bool sparse, const Tensor& per_sample_weights, bool include_last_offset) {
  return mica::_embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
                              include_last_offset, -1);
}

Bagged embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool scale_grad_by_freq,
                     int64_t mode, bool sparse, const Tensor& per_sample_weights, bool include_last_offset,
                     std::optional<int64_t> padding_idx) {
  int64_t padding = -1;
  if (padding_idx) {
    const int64_t rows = weight.size(0);
    MICA_CHECK(*padding_idx >= -rows && *padding_idx < rows, "padding_idx must be within the number of embeddings, ",
               -rows, " through ", rows - 1, ", but got ", *padding_idx);
    padding = *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
  }
  return mica::_embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
                              include_last_offset, padding);
}

Tensor functional_embedding_bag(const Tensor& input, const Tensor& weight, const Tensor& offsets,
                                std::optional<double> max_norm, double norm_type, bool scale_grad_by_freq,
                                std::string_view mode, bool sparse, const Tensor& per_sample_weights,
                                bool include_last_offset, std::optional<int64_t> padding_idx) {
  if (weight.dtype() == DType::Int64 && input.is_floating_point()) {
    warn(
        "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
        "deprecated, and should now be `embedding_bag(input, weight, ...)`.");
    return composite::functional_embedding_bag(weight, input, offsets, max_norm, norm_type, scale_grad_by_freq, mode,
                                               sparse, per_sample_weights, include_last_offset, padding_idx);
  }
  MICA_CHECK_KIND(!per_sample_weights.defined() || per_sample_weights.sizes() == input.sizes(), Value,
                  "embedding_bag: If per_sample_weights (torch.Size(",
                  per_sample_weights.defined() ? per_sample_weights.sizes() : IntArrayRef(),
                  ")) is not None, then it must have the same shape as the input (torch.Size(", input.sizes(), "))");
  MICA_CHECK_KIND(weight.dim() == 2, Value, "weight has to be a 2D Tensor, but got Tensor of dimension ", weight.dim());
  MICA_CHECK_KIND(input.dim() == 1 || input.dim() == 2, Value,
                  "input has to be 1D or 2D Tensor, but got Tensor of dimension ", input.dim());
  Tensor indices = input, starts = offsets, factors = per_sample_weights;
  if (input.dim() == 2) {
    MICA_CHECK_KIND(!offsets.defined(), Value,
                    "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                    "sequences. However, found offsets of type <class 'torch.Tensor'>");
    // A row without columns is an empty bag. A step of zero would give none of them.
    // Lets a mode see where the bags begin. A fake tensor's device is not that of its options.
    dispatch::direct = dispatch::active && !input.is_meta();
    starts = input.size(1) ? mica::arange(Scalar(0), Scalar(input.numel()), Scalar(input.size(1)), input.options())
                           : mica::zeros({input.size(0)}, input.options());
    dispatch::direct = false;
    include_last_offset = false;
    indices = input.reshape({-1});
    if (factors.defined()) factors = factors.reshape({-1});
  } else {
    MICA_CHECK_KIND(offsets.defined(), Value, "offsets has to be a 1D Tensor but got None");
    MICA_CHECK_KIND(offsets.dim() == 1, Value, "offsets has to be a 1D Tensor");
  }
  const int64_t how = mode == "sum" ? 0 : mode == "mean" ? 1 : mode == "max" ? 2 : -1;
  MICA_CHECK_KIND(how >= 0, Value, "mode has to be one of sum, mean or max");
  MICA_CHECK_KIND(how != 2 || !scale_grad_by_freq, Value,
                  "max mode does not support scaling the gradient by the frequency");
  MICA_CHECK_KIND(how != 2 || !sparse, Value, "max mode does not support sparse weights");
  if (max_norm) {
    NoGradGuard unrecorded;
    mica::embedding_renorm_(weight, indices, *max_norm, norm_type);
  }
  MICA_CHECK_KIND(!per_sample_weights.defined() || how == 0, NotImplemented,
                  "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
                  "(got mode='",
                  mode, "'). Please open a feature request on GitHub.");
  return std::get<0>(mica::embedding_bag(weight, indices, starts, scale_grad_by_freq, how, sparse, factors,
                                         include_last_offset, padding_idx));
}

}  // namespace mica::composite
