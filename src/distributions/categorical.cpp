// Distributions of categories and of how often they come up.

#include "distributions/shared.h"
#include "mica/distributions/discrete.h"
#include "mica/values.h"

namespace mica::distributions {

static OddsOptions of_probs_alone(const Tensor& probs, const Options& options) {
  return {Argument(probs), std::nullopt, options.validate_args};
}

// ---- categorical -------------------------------------------------------------------------------------------------

Categorical::Categorical(const Tensor& probs, const Options& options) : Categorical(of_probs_alone(probs, options)) {}
Categorical::Categorical(const OddsOptions& odds) {
  check_one_of_two(odds);
  const Tensor& value = (odds.probs ? *odds.probs : *odds.logits).tensor();
  MICA_CHECK_KIND(value.defined() && value.dim() >= 1, Value, odds.probs ? "`probs`" : "`logits`",
                  " parameter must be at least one-dimensional.");
  if (odds.probs) {
    add("probs", constraints::simplex(), value / value.sum({-1}, true));
    add_computed("logits", constraints::real_vector());
  } else {
    add_computed("probs", constraints::simplex());
    add("logits", constraints::real_vector(), value - value.logsumexp({-1}, true));
  }
  finish(without_last(value.sizes()), {}, {odds.validate_args});
}
Tensor Categorical::probs() const {
  return computed(0, [this] { return logits_to_probs(parameter(1)); });
}
Tensor Categorical::logits() const {
  return computed(1, [this] { return probs_to_logits(parameter(0)); });
}
Tensor Categorical::mean() const { return filled(kNan, probs()); }
Tensor Categorical::mode() const { return probs().argmax(-1); }
Tensor Categorical::variance() const { return filled(kNan, probs()); }
Tensor Categorical::sample(IntArrayRef sample_shape) const {
  int64_t count = 1;
  for (int64_t size : sample_shape) count *= size;
  const Tensor weights = probs().reshape({-1, num_events()});
  return multinomial(weights, count, true).t().reshape(extended_shape(sample_shape));
}
Tensor Categorical::log_prob(const Tensor& value) const {
  check(value);
  Tensor index = value.to(DType::Int64).unsqueeze(-1), scores = logits();
  if (!(without_last(index.sizes()) == without_last(scores.sizes()))) {
    const auto both = broadcast_tensors({index, scores});
    index = both[0].narrow(-1, 0, std::min<int64_t>(1, both[0].size(-1)));
    scores = both[1];
  }
  return scores.gather(-1, index).squeeze(-1);
}
Tensor Categorical::entropy() const {
  const Tensor finite = clamp_below(logits(), -limits_of(logits()).max);
  return -(finite * probs()).sum({-1});
}
Tensor Categorical::enumerate_support(bool expand) const {
  return enumerated(arange(num_events(), given().options().dtype(DType::Int64)), batch_shape(), expand);
}

// ---- what stands on it -------------------------------------------------------------------------------------------

void OfCategorical::finish_categorical(std::optional<bool> validate_args) {
  if (validate_args.value_or(default_validate_args())) {
    add("probs", constraints::simplex(), probs(), Seen::Quiet);
    add("logits", constraints::real_vector(), logits(), Seen::Quiet);
  } else {  // the others are not computed only to be checked
    add_computed("probs", constraints::simplex());
    add_computed("logits", constraints::real_vector());
  }
  finish(categorical_.batch_shape(), last(param_shape(), 1), {validate_args});
}
void OfCategorical::widen(IntArrayRef batch_shape) {
  Distribution::widen(batch_shape);
  categorical_ = categorical_.expand(batch_shape);
}

OneHotCategorical::OneHotCategorical(const Tensor& probs, const Options& options)
    : OneHotCategorical(of_probs_alone(probs, options)) {}
OneHotCategorical::OneHotCategorical(const OddsOptions& odds) : Family(odds) { finish_categorical(odds.validate_args); }
Tensor OneHotCategorical::mode() const { return one_hot(probs().argmax(-1), probs().size(-1)).to(probs().options()); }
Tensor OneHotCategorical::variance() const { return probs() * (1 - probs()); }
Tensor OneHotCategorical::sample(IntArrayRef sample_shape) const {
  return one_hot(categorical().sample(sample_shape), categorical().num_events()).to(probs().options());
}
Tensor OneHotCategorical::log_prob(const Tensor& value) const {
  check(value);
  return categorical().log_prob(std::get<1>(max(value, -1)));
}
Tensor OneHotCategorical::enumerate_support(bool expand) const {
  const int64_t n = event_shape()[0];
  DimVector ones(batch_shape().size() + 2, 1);
  ones[0] = ones.back() = n;
  const Tensor values = eye(n, probs().options()).view(ones);
  return expand ? values.expand(joined(joined({n}, batch_shape()), {n})) : values;
}
Tensor OneHotCategoricalStraightThrough::rsample(IntArrayRef sample_shape) const {
  const Tensor drawn = sample(sample_shape), p = probs();
  return drawn + (p - p.detach());
}

Multinomial::Multinomial(int64_t total_count, const Tensor& probs, const Options& options)
    : Multinomial(total_count, of_probs_alone(probs, options)) {}
Multinomial::Multinomial(int64_t total_count, const OddsOptions& odds)
    : Family(odds), total_count_(total_count), binomial_(total_count, probs()) {
  finish_categorical(odds.validate_args);
}
Tensor Multinomial::mean() const { return probs() * total_count_; }
Tensor Multinomial::variance() const { return total_count_ * probs() * (1 - probs()); }
Tensor Multinomial::sample(IntArrayRef sample_shape) const {
  const Tensor draws = categorical().sample(joined({total_count_}, sample_shape)).movedim({0}, {-1});
  const Tensor counts = draws.new_zeros(extended_shape(sample_shape));
  counts.scatter_add_(-1, draws, ones_like(draws));
  return counts.type_as(probs());
}
Tensor Multinomial::entropy() const {
  const Tensor n = tensor(total_count_, probs().device());
  const Tensor all = binomial_.enumerate_support(false);
  const Tensor support = all.narrow(0, 1, all.size(0) - 1);
  const Tensor weighted = exp(binomial_.log_prob(support)) * lgamma(support + 1);
  return n * categorical().entropy() - lgamma(n + 1) + weighted.sum(IntArrayRef{0, -1});
}
Tensor Multinomial::log_prob(const Tensor& given) const {
  check(given);
  const auto both = broadcast_all({logits(), given});
  const Tensor& value = both[1];
  // Zero for outcomes that cannot come up and did not.
  const Tensor scores = both[0].masked_fill((value == 0) & (both[0] == -kInf), 0);
  return lgamma(value.sum({-1}) + 1) - lgamma(value + 1).sum({-1}) + (scores * value).sum({-1});
}

}  // namespace mica::distributions
