#include "mica/distributions/distribution.h"

#include <atomic>

#include "distributions/shared.h"
#include "mica/autograd.h"
#include "mica/warning.h"

namespace mica::distributions {

static std::atomic<bool> default_validation{true};
void Distribution::set_default_validate_args(bool value) { default_validation = value; }
bool Distribution::default_validate_args() { return default_validation; }

// ---- parameters --------------------------------------------------------------------------------------------------

void Distribution::add(const char* name, const Constraint& constraint, const Tensor& value, Seen seen) {
  parameters_.push_back({name, constraint, value, nullptr, seen});
}

void Distribution::add_computed(const char* name, const Constraint& constraint) {
  parameters_.push_back({name, constraint, Tensor(), std::make_shared<Computed>(), Seen::Printed});
}

Tensor Distribution::Parameter::known() const {
  if (!computed) return value;
  std::lock_guard lock(computed->mutex);
  return computed->value;
}

Tensor Distribution::remember(size_t i, Tensor (*compute)(const void*), const void* context) const {
  const Parameter& p = parameters_[i];
  const Tensor known = p.known();
  if (known.defined()) return known;
  EnableGradGuard recording;
  const Tensor value = compute(context);
  std::lock_guard lock(p.computed->mutex);
  if (!p.computed->value.defined()) p.computed->value = value;  // another thread may have been faster
  return p.computed->value;
}

void Distribution::finish(IntArrayRef batch_shape, IntArrayRef event_shape, const Options& options) {
  batch_shape_ = batch_shape;
  event_shape_ = event_shape;
  validate_args_ = options.validate_args.value_or(default_validate_args());
  if (validate_args_) check_parameters();
}

void Distribution::check_parameters() const {
  for (const Parameter& p : parameters_) {
    if (p.seen == Seen::Hidden || p.computed) continue;  // a computed parameter follows from those that are checked
    if (all_true(p.constraint.check(p.value))) continue;
    fail(ErrorKind::Value, mica::cat("Expected parameter ", p.name, " (Tensor of shape ", tuple_text(p.value.sizes()),
                                     ") of distribution ", str(), " to satisfy the constraint ", p.constraint.str(),
                                     ", but found invalid values:\n", p.value.str()));
  }
}

std::vector<std::pair<std::string, Constraint>> Distribution::arg_constraints() const {
  std::vector<std::pair<std::string, Constraint>> result;
  for (const Parameter& p : parameters_)
    if (p.seen != Seen::Hidden) result.emplace_back(p.name, p.constraint);
  return result;
}

std::string Distribution::str() const {
  std::string text = std::string(name()) + "(";
  bool some = false;
  for (const Parameter& p : parameters_) {
    const Tensor value = p.known();
    if (p.seen != Seen::Printed || !value.defined()) continue;
    text += (some ? ", " : "") + std::string(p.name) + ": ";
    text += value.numel() == 1 ? format_tensor(value) : size_text(value.sizes());
    some = true;
  }
  return text + ")";
}

// ---- expansion ---------------------------------------------------------------------------------------------------

static Tensor widened(const Tensor& value, IntArrayRef batch_shape, int64_t event_dim) {
  return value.expand(joined(batch_shape, last(value.sizes(), static_cast<size_t>(event_dim))));
}

void Distribution::widen(IntArrayRef batch_shape) {
  for (Parameter& p : parameters_) {
    if (p.value.defined()) p.value = widened(p.value, batch_shape, p.constraint.event_dim());
    if (!p.computed) continue;
    const Tensor known = p.known();
    p.computed = std::make_shared<Computed>();
    if (known.defined()) p.computed->value = widened(known, batch_shape, p.constraint.event_dim());
  }
}

void Distribution::widen_batch(IntArrayRef batch_shape) {
  const DimVector shape(batch_shape);  // copied, because it may belong to a part of this object
  widen(shape);
  batch_shape_ = shape;
}

std::shared_ptr<Distribution> Distribution::expand(IntArrayRef batch_shape) const {
  std::shared_ptr<Distribution> copy = clone();
  copy->widen_batch(batch_shape);
  return copy;
}

// ---- samples and values ------------------------------------------------------------------------------------------

DimVector Distribution::extended_shape(IntArrayRef sample_shape) const {
  return joined(joined(sample_shape, batch_shape_), event_shape_);
}

Tensor Distribution::filled(double number, const Tensor& like) const {
  return full(extended_shape(), number, like.options());
}

void Distribution::validate_sample(const Tensor& value) const {
  MICA_CHECK_KIND(value.defined(), Value, "The value argument to log_prob must be a Tensor");
  const IntArrayRef given = value.sizes();
  const size_t event = event_shape_.size();
  MICA_CHECK_KIND(given.size() >= event && last(given, event) == event_shape_.ref(), Value,
                  "The right-most size of value must match event_shape: ", size_text(given), " vs ",
                  size_text(event_shape_), ".");
  const DimVector expected = joined(batch_shape_, event_shape_);
  for (size_t i = 1; i <= std::min(given.size(), expected.size()); ++i) {
    const int64_t a = given[given.size() - i], b = expected[expected.size() - i];
    MICA_CHECK_KIND(a == 1 || b == 1 || a == b, Value,
                    "Value is not broadcastable with batch_shape+event_shape: ", size_text(given), " vs ",
                    size_text(expected), ".");
  }
  std::optional<Constraint> region;
  try {
    region = support();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::NotImplemented) throw;
    warn(mica::cat(name(),
                   " does not define `support` to enable sample validation. Please initialize the distribution "
                   "with `validate_args=False` to turn off validation."));
    return;
  }
  MICA_CHECK_KIND(all_true(region->check(value)), Value, "Expected value argument (Tensor of shape ", tuple_text(given),
                  ") to be within the support (", region->str(), ") of the distribution ", str(),
                  ", but found invalid values:\n", value.str());
}

void Distribution::not_implemented(const char* what) const {
  fail(ErrorKind::NotImplemented, mica::cat(name(), " does not implement ", what));
}

Constraint Distribution::support() const { not_implemented("support"); }
Tensor Distribution::mean() const { not_implemented("mean"); }
Tensor Distribution::mode() const { not_implemented("mode"); }
Tensor Distribution::variance() const { not_implemented("variance"); }
Tensor Distribution::stddev() const { return variance().sqrt(); }
Tensor Distribution::sample(IntArrayRef sample_shape) const {
  NoGradGuard no_grad;
  return rsample(sample_shape);
}
Tensor Distribution::rsample(IntArrayRef) const { not_implemented("rsample"); }
Tensor Distribution::log_prob(const Tensor&) const { not_implemented("log_prob"); }
Tensor Distribution::cdf(const Tensor&) const { not_implemented("cdf"); }
Tensor Distribution::icdf(const Tensor&) const { not_implemented("icdf"); }
Tensor Distribution::enumerate_support(bool) const { not_implemented("enumerate_support"); }
Tensor Distribution::entropy() const { not_implemented("entropy"); }
Tensor Distribution::perplexity() const { return exp(entropy()); }

// ---- exponential families ----------------------------------------------------------------------------------------

std::vector<Tensor> ExponentialFamily::natural_params() const { not_implemented("natural_params"); }
Tensor ExponentialFamily::log_normalizer(const std::vector<Tensor>&) const { not_implemented("log_normalizer"); }
double ExponentialFamily::mean_carrier_measure() const { not_implemented("mean_carrier_measure"); }

Tensor ExponentialFamily::entropy() const {
  const double carrier = mean_carrier_measure();
  TensorVec natural;
  for (const Tensor& p : natural_params()) natural.push_back(p.detach().requires_grad_());
  EnableGradGuard recording;
  const Tensor normalizer = log_normalizer(natural);
  const TensorVec slopes = autograd::grad({normalizer.sum()}, natural, {}, std::nullopt, true);
  Tensor result = normalizer - carrier;
  for (size_t i = 0; i < natural.size(); ++i)
    result = result - (natural[i] * slopes[i]).reshape(joined(batch_shape(), {-1})).sum({-1});
  return result;
}

}  // namespace mica::distributions
