// What a transform is, its inverse, and transforms of single numbers.
#include "mica/distributions/transforms.h"

#include <cmath>

#include "core/geometry.h"
#include "distributions/shared.h"
#include "distributions/transform_rules.h"

namespace mica::distributions {

Tensor Transform::operator()(const Tensor& x) const { return rule_->call(x); }
Transform Transform::inv() const { return rule_->inv(); }
Tensor Transform::log_abs_det_jacobian(const Tensor& x, const Tensor& y) const {
  return rule_->log_abs_det_jacobian(x, y);
}
Constraint Transform::domain() const { return rule_->domain(); }
Constraint Transform::codomain() const { return rule_->codomain(); }
int64_t Transform::event_dim() const { return rule_->event_dim(); }
bool Transform::bijective() const { return rule_->bijective(); }
Argument Transform::sign() const { return rule_->sign(); }
DimVector Transform::forward_shape(IntArrayRef shape) const { return rule_->forward_shape(shape); }
DimVector Transform::inverse_shape(IntArrayRef shape) const { return rule_->inverse_shape(shape); }
std::string Transform::str() const { return rule_->str(); }
bool operator==(const Transform& a, const Transform& b) { return a.rule_->equals(*b.rule_); }

static void check_cache_size(int64_t cache_size) {
  MICA_CHECK_KIND(cache_size == 0 || cache_size == 1, Value, "cache_size must be 0 or 1");
}
Transform Transform::with_cache(int64_t cache_size) const {
  check_cache_size(cache_size);
  return rule_->cache_size() == cache_size ? *this : rule_->with_cache(cache_size);
}

Transform::Rule::Rule(int64_t cache_size) : cache_size_(cache_size) { check_cache_size(cache_size); }

void Transform::Rule::remember(Tensor x, Tensor y) const {
  std::lock_guard lock(mutex_);  // the old pair dies with the parameters, after the lock is released
  std::swap(cached_x_, x);
  std::swap(cached_y_, y);
}

Tensor Transform::Rule::call(const Tensor& x) const {
  if (!cache_size_) return forward(x);
  {
    std::lock_guard lock(mutex_);
    if (cached_x_.defined() && x.is_same(cached_x_)) return cached_y_;
  }
  const Tensor y = forward(x);
  remember(x, y);
  return y;
}

Tensor Transform::Rule::call_inverse(const Tensor& y) const {
  if (!cache_size_) return inverse(y);
  {
    std::lock_guard lock(mutex_);
    if (cached_y_.defined() && y.is_same(cached_y_)) return cached_x_;
  }
  const Tensor x = inverse(y);
  remember(x, y);
  return x;
}

Argument Transform::Rule::sign() const {
  fail(ErrorKind::NotImplemented, mica::cat(name(), " does not implement sign"));
}
Tensor Transform::Rule::log_abs_det_jacobian(const Tensor&, const Tensor&) const {
  fail(ErrorKind::NotImplemented, mica::cat(name(), " does not implement log_abs_det_jacobian"));
}
Transform Transform::Rule::with_cache(int64_t) const {
  fail(ErrorKind::NotImplemented, mica::cat(name(), ".with_cache is not implemented"));
}
int64_t Transform::Rule::event_dim() const {
  const int64_t before = domain().event_dim();
  MICA_CHECK_KIND(before == codomain().event_dim(), Value,
                  "Please use either .domain.event_dim or .codomain.event_dim");
  return before;
}

namespace {

struct InverseRule : Transform::Rule {
  explicit InverseRule(Transform of) : Rule(of.rule().cache_size()), of(std::move(of)) {}
  std::string name() const override { return "_InverseTransform"; }
  std::string str() const override { return mica::cat(name(), "(", of.str(), ")"); }
  Constraint domain() const override { return of.codomain(); }
  Constraint codomain() const override { return of.domain(); }
  bool bijective() const override { return of.bijective(); }
  Argument sign() const override { return of.sign(); }
  Tensor forward(const Tensor& x) const override { return of.rule().call_inverse(x); }
  Tensor inverse(const Tensor& y) const override { return of(y); }
  // The cache is that of the transform itself.
  Tensor call(const Tensor& x) const override { return forward(x); }
  Tensor call_inverse(const Tensor& y) const override { return inverse(y); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    return -of.log_abs_det_jacobian(y, x);
  }
  DimVector forward_shape(IntArrayRef shape) const override { return of.inverse_shape(shape); }
  DimVector inverse_shape(IntArrayRef shape) const override { return of.forward_shape(shape); }
  Transform with_cache(int64_t cache_size) const override { return of.with_cache(cache_size).inv(); }
  Transform inv() const override { return of; }
  bool equals(const Rule& other) const override {
    const auto* inverse = dynamic_cast<const InverseRule*>(&other);
    return inverse && inverse->of == of;
  }
  Transform of;
};

}  // namespace

Transform Transform::Rule::inv() const { return Transform(make_rule<InverseRule>(Transform(shared_from_this()))); }

// ---- of single numbers -------------------------------------------------------------------------------------------

Tensor clipped_sigmoid(const Tensor& x) {
  const FloatLimits limits = limits_of(x);
  return sigmoid(x).clamp(Scalar(limits.tiny), Scalar(1.0 - limits.eps));
}

namespace {

// The elementwise bijections of real numbers that grow.
template <class Self>
struct Growing : Parameterless<Self> {
  using Parameterless<Self>::Parameterless;
  Constraint domain() const override { return constraints::real(); }
  bool bijective() const override { return true; }
  Argument sign() const override { return 1; }
};

struct ExpRule : Growing<ExpRule> {
  using Growing::Growing;
  std::string name() const override { return "ExpTransform"; }
  Constraint codomain() const override { return constraints::positive(); }
  Tensor forward(const Tensor& x) const override { return x.exp(); }
  Tensor inverse(const Tensor& y) const override { return y.log(); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor&) const override { return x; }
};

struct SigmoidRule : Growing<SigmoidRule> {
  using Growing::Growing;
  std::string name() const override { return "SigmoidTransform"; }
  Constraint codomain() const override { return constraints::unit_interval(); }
  Tensor forward(const Tensor& x) const override { return clipped_sigmoid(x); }
  Tensor inverse(const Tensor& y) const override {
    const FloatLimits limits = limits_of(y);
    const Tensor inside = y.clamp(Scalar(limits.tiny), Scalar(1.0 - limits.eps));
    return inside.log() - (-inside).log1p();
  }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor&) const override { return -softplus(-x) - softplus(x); }
};

struct SoftplusRule : Growing<SoftplusRule> {
  using Growing::Growing;
  std::string name() const override { return "SoftplusTransform"; }
  Constraint codomain() const override { return constraints::positive(); }
  Tensor forward(const Tensor& x) const override { return softplus(x); }
  Tensor inverse(const Tensor& y) const override { return (-y).expm1().neg().log() + y; }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor&) const override { return -softplus(-x); }
};

struct TanhRule : Growing<TanhRule> {
  using Growing::Growing;
  std::string name() const override { return "TanhTransform"; }
  Constraint codomain() const override { return constraints::interval(-1.0, 1.0); }
  Tensor forward(const Tensor& x) const override { return x.tanh(); }
  Tensor inverse(const Tensor& y) const override { return atanh(y); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor&) const override {
    return 2.0 * (std::log(2.0) - x - softplus(-2.0 * x));  // log(1 - tanh(x)^2), kept finite for large x
  }
};

struct AbsRule : Parameterless<AbsRule> {
  using Parameterless::Parameterless;
  std::string name() const override { return "AbsTransform"; }
  Constraint domain() const override { return constraints::real(); }
  Constraint codomain() const override { return constraints::positive(); }
  Tensor forward(const Tensor& x) const override { return x.abs(); }
  Tensor inverse(const Tensor& y) const override { return y; }
};

struct PowerRule : RuleOf<PowerRule> {
  PowerRule(const Argument& exponent, int64_t cache_size)
      : RuleOf(cache_size), exponent(broadcast_all({exponent})[0]) {}
  std::string name() const override { return "PowerTransform"; }
  Constraint domain() const override { return constraints::positive(); }
  Constraint codomain() const override { return constraints::positive(); }
  bool bijective() const override { return true; }
  Argument sign() const override { return exponent.sign(); }
  Tensor forward(const Tensor& x) const override { return x.pow(exponent); }
  Tensor inverse(const Tensor& y) const override { return y.pow(1 / exponent); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    return (exponent * y / x).abs().log();
  }
  DimVector forward_shape(IntArrayRef shape) const override { return broadcast_sizes(shape, exponent.sizes()); }
  DimVector inverse_shape(IntArrayRef shape) const override { return forward_shape(shape); }
  bool equals(const Rule& other) const override {
    const auto* power = dynamic_cast<const PowerRule*>(&other);
    return power && all_true(exponent == power->exponent);
  }
  Tensor exponent;
};

bool same(const Argument& a, const Argument& b) {
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (b.is_number()) return all_true(a.tensor() == b.number());
  return all_true(a.visit([&](const auto& left) { return left == b.tensor(); }));
}

struct AffineRule : RuleOf<AffineRule> {
  AffineRule(Argument loc, Argument scale, int64_t event_dim, int64_t cache_size)
      : RuleOf(cache_size), loc(std::move(loc)), scale(std::move(scale)), events(event_dim) {}
  std::string name() const override { return "AffineTransform"; }
  Constraint domain() const override {
    return events ? constraints::independent(constraints::real(), events) : constraints::real();
  }
  Constraint codomain() const override { return domain(); }
  int64_t event_dim() const override { return events; }
  bool bijective() const override { return true; }
  Argument sign() const override {
    if (!scale.is_number()) return scale.tensor().sign();
    const double s = scale.number().to_double();
    return (s > 0) - (s < 0);
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor scaled = scale.visit([&](const auto& s) { return s * x; });
    return loc.visit([&](const auto& l) { return l + scaled; });
  }
  Tensor inverse(const Tensor& y) const override {
    const Tensor moved = loc.visit([&](const auto& l) { return y - l; });
    return scale.visit([&](const auto& s) { return moved / s; });
  }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor&) const override {
    Tensor result =
        scale.is_number() ? full_like(x, std::log(std::abs(scale.number().to_double()))) : scale.tensor().abs().log();
    const auto count = static_cast<size_t>(events);
    if (count) result = result.view(joined(without_last(result.sizes(), count), {-1})).sum({-1});
    return result.expand(without_last(x.sizes(), count));
  }
  DimVector forward_shape(IntArrayRef shape) const override {
    return broadcast_sizes(broadcast_sizes(shape, loc.sizes()), scale.sizes());
  }
  DimVector inverse_shape(IntArrayRef shape) const override { return forward_shape(shape); }
  bool equals(const Rule& other) const override {
    const auto* affine = dynamic_cast<const AffineRule*>(&other);
    return affine && same(loc, affine->loc) && same(scale, affine->scale);
  }
  Argument loc, scale;
  int64_t events;
};

struct CumulativeDistributionRule : RuleOf<CumulativeDistributionRule> {
  CumulativeDistributionRule(const Distribution& of, int64_t cache_size)
      : RuleOf(cache_size), distribution(of.clone()) {}
  std::string name() const override { return "CumulativeDistributionTransform"; }
  Constraint domain() const override { return distribution->support(); }
  Constraint codomain() const override { return constraints::unit_interval(); }
  bool bijective() const override { return true; }
  Argument sign() const override { return 1; }
  Tensor forward(const Tensor& x) const override { return distribution->cdf(x); }
  Tensor inverse(const Tensor& y) const override { return distribution->icdf(y); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor&) const override { return distribution->log_prob(x); }
  DistributionPtr distribution;
};

}  // namespace

ExpTransform::ExpTransform(int64_t cache_size) : Transform(make_rule<ExpRule>(cache_size)) {}
PowerTransform::PowerTransform(Argument exponent, int64_t cache_size)
    : Transform(make_rule<PowerRule>(exponent, cache_size)) {}
SigmoidTransform::SigmoidTransform(int64_t cache_size) : Transform(make_rule<SigmoidRule>(cache_size)) {}
SoftplusTransform::SoftplusTransform(int64_t cache_size) : Transform(make_rule<SoftplusRule>(cache_size)) {}
TanhTransform::TanhTransform(int64_t cache_size) : Transform(make_rule<TanhRule>(cache_size)) {}
AbsTransform::AbsTransform(int64_t cache_size) : Transform(make_rule<AbsRule>(cache_size)) {}
AffineTransform::AffineTransform(Argument loc, Argument scale, int64_t event_dim, int64_t cache_size)
    : Transform(make_rule<AffineRule>(std::move(loc), std::move(scale), event_dim, cache_size)) {}
CumulativeDistributionTransform::CumulativeDistributionTransform(const Distribution& distribution, int64_t cache_size)
    : Transform(make_rule<CumulativeDistributionRule>(distribution, cache_size)) {}

}  // namespace mica::distributions
