#include "mica/distributions/compound.h"

#include <algorithm>

#include "distributions/shared.h"
#include "mica/core/grad_mode.h"

namespace mica::distributions {

// ---- independent -------------------------------------------------------------------------------------------------

Independent::Independent(const Distribution& base_distribution, int64_t reinterpreted_batch_ndims,
                         const Options& options)
    : base_(base_distribution.clone()), ndims_(reinterpreted_batch_ndims) {
  const auto batch = static_cast<int64_t>(base_->batch_shape().size());
  MICA_CHECK_KIND(ndims_ <= batch, Value,
                  "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual ", ndims_, " vs ",
                  batch);
  MICA_CHECK_KIND(ndims_ >= 0, Value, "reinterpreted_batch_ndims must be >= 0, got ", ndims_);
  const DimVector shape = joined(base_->batch_shape(), base_->event_shape());
  const auto cut = static_cast<size_t>(batch - ndims_);
  finish(first(shape, cut), last(shape, shape.size() - cut), options);
}
void Independent::widen(IntArrayRef batch_shape) {
  base_ = base_->expand(joined(batch_shape, first(event_shape(), static_cast<size_t>(ndims_))));
}
std::string Independent::str() const { return mica::cat(kName, "(", base_->str(), ", ", ndims_, ")"); }
Constraint Independent::support() const {
  const Constraint inner = base_->support();
  return ndims_ ? constraints::independent(inner, ndims_) : inner;
}
Tensor Independent::log_prob(const Tensor& value) const { return sum_rightmost(base_->log_prob(value), ndims_); }
Tensor Independent::entropy() const { return sum_rightmost(base_->entropy(), ndims_); }
Tensor Independent::enumerate_support(bool expand) const {
  MICA_CHECK_KIND(ndims_ == 0, NotImplemented, "Enumeration over cartesian product is not implemented");
  return base_->enumerate_support(expand);
}

// ---- mixtures ----------------------------------------------------------------------------------------------------

MixtureSameFamily::MixtureSameFamily(const Categorical& mixture_distribution,
                                     const Distribution& component_distribution, const Options& options)
    : mixture_(mixture_distribution), components_(component_distribution.clone()) {
  const IntArrayRef all = components_->batch_shape(), mixed = mixture_.batch_shape();
  MICA_CHECK_KIND(!all.empty(), Value, "`component_distribution.batch_shape` must have a last dimension, of the ",
                  "components; it is ", size_text(all));
  const IntArrayRef batch = without_last(all);
  for (size_t i = 1; i <= std::min(mixed.size(), batch.size()); ++i) {
    const int64_t a = mixed[mixed.size() - i], b = batch[batch.size() - i];
    MICA_CHECK_KIND(a == 1 || b == 1 || a == b, Value, "`mixture_distribution.batch_shape` (", size_text(mixed),
                    ") is not compatible with `component_distribution.batch_shape`(", size_text(batch), ")");
  }
  const int64_t chosen_from = mixture_.logits().size(-1);
  MICA_CHECK_KIND(chosen_from == all.back(), Value, "`mixture_distribution component` (", chosen_from,
                  ") does not equal `component_distribution.batch_shape[-1]` (", all.back(), ")");
  finish(batch, components_->event_shape(), options);
}
void MixtureSameFamily::widen(IntArrayRef batch_shape) {
  mixture_ = mixture_.expand(batch_shape);
  components_ = components_->expand(joined(batch_shape, last(components_->batch_shape(), 1)));
}
std::string MixtureSameFamily::str() const {
  return mica::cat("MixtureSameFamily(\n  ", mixture_.str(), ",\n  ", components_->str(), ")");
}
Tensor MixtureSameFamily::padded(const Tensor& x) const {
  return x.unsqueeze(-1 - static_cast<int64_t>(event_shape().size()));
}
Tensor MixtureSameFamily::weighted(const Tensor& values) const {
  const Tensor probs = mixture_.probs();
  const size_t mixed = mixture_.batch_shape().size(), batch = batch_shape().size(), event = event_shape().size();
  const size_t padding = mixed == 1 || mixed > batch ? 0 : batch - mixed;
  DimVector shape = joined(without_last(probs.sizes()), DimVector(padding, 1));
  shape = joined(joined(shape, last(probs.sizes(), 1)), DimVector(event, 1));
  return (probs.reshape(shape) * values).sum({-1 - static_cast<int64_t>(event)});
}
Tensor MixtureSameFamily::mean() const { return weighted(components_->mean()); }
Tensor MixtureSameFamily::variance() const {
  return weighted(components_->variance()) + weighted((components_->mean() - padded(mean())).pow(2.0));
}
Tensor MixtureSameFamily::cdf(const Tensor& value) const {
  return (components_->cdf(padded(value)) * mixture_.probs()).sum({-1});
}
Tensor MixtureSameFamily::log_prob(const Tensor& value) const {
  check(value);
  return logsumexp(components_->log_prob(padded(value)) + log_softmax(mixture_.logits(), -1), {-1});
}
Tensor MixtureSameFamily::sample(IntArrayRef sample_shape) const {
  NoGradGuard no_grad;
  const auto dim = static_cast<int64_t>(sample_shape.size() + batch_shape().size());
  const Tensor chosen = mixture_.sample(sample_shape);
  const Tensor drawn = components_->sample(sample_shape);
  const Tensor index = chosen.reshape(joined(chosen.sizes(), DimVector(event_shape().size() + 1, 1)));
  const DimVector repeats = joined(DimVector(static_cast<size_t>(chosen.dim()) + 1, 1), event_shape());
  return gather(drawn, dim, index.repeat(repeats)).squeeze(dim);
}

// ---- transformed -------------------------------------------------------------------------------------------------

TransformedDistribution::TransformedDistribution(const Distribution& base_distribution,
                                                 std::vector<Transform> transforms, const Options& options) {
  finish_transformed(base_distribution, std::move(transforms), options);
}

void TransformedDistribution::finish_transformed(const Distribution& base_distribution,
                                                 std::vector<Transform> transforms, const Options& options) {
  transforms_ = std::move(transforms);
  const ComposeTransform whole(transforms_);
  const int64_t needed = whole.domain().event_dim(), made = whole.codomain().event_dim();
  const DimVector base_shape = joined(base_distribution.batch_shape(), base_distribution.event_shape());
  const auto base_event_dim = static_cast<int64_t>(base_distribution.event_shape().size());
  MICA_CHECK_KIND(static_cast<int64_t>(base_shape.size()) >= needed, Value,
                  "base_distribution needs to have shape with size at least ", needed, ", but got ",
                  size_text(base_shape), ".");
  // A transform with batched parameters broadcasts the base.
  const DimVector shape = whole.forward_shape(base_shape), wide = whole.inverse_shape(shape);
  base_ = wide.ref() == base_shape.ref()
              ? base_distribution.clone()
              : base_distribution.expand(without_last(wide, static_cast<size_t>(base_event_dim)));
  if (needed > base_event_dim) base_ = std::make_shared<Independent>(*base_, needed - base_event_dim);
  const int64_t event_dim = std::max(made, base_event_dim + made - needed);
  MICA_CHECK_KIND(static_cast<int64_t>(shape.size()) >= event_dim, Value, "forward_shape length ", shape.size(),
                  " must be >= event_dim ", event_dim);
  const size_t cut = shape.size() - static_cast<size_t>(event_dim);
  finish(first(shape, cut), last(shape, shape.size() - cut), options);
}
void TransformedDistribution::widen(IntArrayRef batch_shape) {
  Distribution::widen(batch_shape);
  DimVector shape = joined(batch_shape, event_shape());
  for (size_t i = transforms_.size(); i-- > 0;) shape = transforms_[i].inverse_shape(shape);
  base_ = base_->expand(without_last(shape, base_->event_shape().size()));
}
Constraint TransformedDistribution::support() const {
  if (transforms_.empty()) return base_->support();
  const Constraint region = transforms_.back().codomain();
  const int64_t extra = static_cast<int64_t>(event_shape().size()) - region.event_dim();
  return extra > 0 ? constraints::independent(region, extra) : region;
}
Tensor TransformedDistribution::transformed(Tensor x) const {
  for (const Transform& transform : transforms_) x = transform(x);
  return x;
}
Tensor TransformedDistribution::sample(IntArrayRef sample_shape) const {
  NoGradGuard no_grad;
  return transformed(base_->sample(sample_shape));
}
Tensor TransformedDistribution::rsample(IntArrayRef sample_shape) const {
  return transformed(base_->rsample(sample_shape));
}
Tensor TransformedDistribution::log_prob(const Tensor& value) const {
  check(value);
  auto event_dim = static_cast<int64_t>(event_shape().size());
  Tensor jacobians, y = value;
  for (size_t i = transforms_.size(); i-- > 0;) {
    const Transform& transform = transforms_[i];
    const Tensor x = transform.inv()(y);
    const int64_t own = transform.domain().event_dim();
    event_dim += own - transform.codomain().event_dim();
    const Tensor term = sum_rightmost(transform.log_abs_det_jacobian(x, y), event_dim - own);
    jacobians = jacobians.defined() ? jacobians - term : -term;
    y = x;
  }
  const auto base_event_dim = static_cast<int64_t>(base_->event_shape().size());
  const Tensor base = sum_rightmost(base_->log_prob(y), event_dim - base_event_dim);
  return jacobians.defined() ? jacobians + base : base;
}

// Turns a probability from below into one from above where the transforms reverse the order.
Tensor TransformedDistribution::monotonized(const Tensor& value) const {
  const Argument sign = ComposeTransform(transforms_).sign();
  if (sign.is_number() && sign.number().to_int() == 1) return value;
  return sign.visit([&](const auto& s) { return s * (value - 0.5) + 0.5; });
}
Tensor TransformedDistribution::cdf(const Tensor& value) const {
  Tensor x = value;
  for (size_t i = transforms_.size(); i-- > 0;) x = transforms_[i].inv()(x);
  if (validates()) base_->validate_sample(x);
  return monotonized(base_->cdf(x));
}
Tensor TransformedDistribution::icdf(const Tensor& value) const { return transformed(base_->icdf(monotonized(value))); }

}  // namespace mica::distributions
