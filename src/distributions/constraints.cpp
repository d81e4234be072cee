#include "mica/distributions/constraints.h"

#include <algorithm>

#include "distributions/shared.h"
#include "mica/distributions/transforms.h"
#include "mica/linalg.h"

namespace mica::distributions {

Tensor Constraint::check(const Tensor& value) const { return rule_->check(value); }
bool Constraint::is_discrete() const { return rule_->is_discrete(); }
int64_t Constraint::event_dim() const { return rule_->event_dim(); }
std::string Constraint::str() const { return rule_->str(); }

Transform Constraint::Rule::transform(bool) const {
  fail(ErrorKind::NotImplemented, mica::cat("Cannot transform _", name(), " constraints"));
}
Transform biject_to(const Constraint& constraint) { return constraint.rule().transform(true); }
Transform transform_to(const Constraint& constraint) { return constraint.rule().transform(false); }

namespace {

template <class R, class... Arguments>
Constraint make(Arguments&&... arguments) {
  return Constraint(std::make_shared<R>(std::forward<Arguments>(arguments)...));
}

// ---- numbers -----------------------------------------------------------------------------------------------------

struct BooleanRule : Constraint::Rule {
  std::string name() const override { return "Boolean"; }
  bool is_discrete() const override { return true; }
  Tensor check(const Tensor& value) const override { return (value == 0) | (value == 1); }
};

struct RealRule : Constraint::Rule {
  std::string name() const override { return "Real"; }
  Tensor check(const Tensor& value) const override { return value == value; }  // not NaN
  Transform transform(bool) const override { return identity_transform(); }
};

Tensor at_least(const Tensor& value, const Argument& bound) {
  return bound.visit([&](const auto& low) { return value >= low; });
}
Tensor at_most(const Tensor& value, const Argument& bound) {
  return bound.visit([&](const auto& high) { return value <= high; });
}
Tensor below(const Tensor& value, const Argument& bound) {
  return bound.visit([&](const auto& high) { return value < high; });
}
Tensor above(const Tensor& value, const Argument& bound) {
  return bound.visit([&](const auto& low) { return value > low; });
}
Tensor whole(const Tensor& value) { return value % 1 == 0; }

struct BelowRule : Constraint::Rule {
  explicit BelowRule(Argument upper) : upper(std::move(upper)) {}
  std::string str() const override { return mica::cat(name(), "(upper_bound=", upper.str(), ")"); }
  Argument upper;
};
struct AboveRule : Constraint::Rule {
  explicit AboveRule(Argument lower) : lower(std::move(lower)) {}
  std::string str() const override { return mica::cat(name(), "(lower_bound=", lower.str(), ")"); }
  Argument lower;
};
struct BetweenRule : Constraint::Rule {
  BetweenRule(Argument lower, Argument upper) : lower(std::move(lower)), upper(std::move(upper)) {}
  std::string str() const override {
    return mica::cat(name(), "(lower_bound=", lower.str(), ", upper_bound=", upper.str(), ")");
  }
  Argument lower, upper;
};

struct IntegerIntervalRule : BetweenRule {
  using BetweenRule::BetweenRule;
  std::string name() const override { return "IntegerInterval"; }
  bool is_discrete() const override { return true; }
  Tensor check(const Tensor& value) const override {
    const Tensor inside = at_least(value, lower) & at_most(value, upper);
    return value.is_floating_point() ? whole(value) & inside : inside;
  }
};
struct IntegerGreaterThanRule : AboveRule {  // torch's name; the bound itself is allowed
  using AboveRule::AboveRule;
  std::string name() const override { return "IntegerGreaterThan"; }
  bool is_discrete() const override { return true; }
  Tensor check(const Tensor& value) const override { return whole(value) & at_least(value, lower); }
};

struct GreaterThanRule : AboveRule {
  using AboveRule::AboveRule;
  std::string name() const override { return "GreaterThan"; }
  Tensor check(const Tensor& value) const override { return above(value, lower); }
  Transform transform(bool) const override { return ComposeTransform({ExpTransform(), AffineTransform(lower, 1)}); }
};
struct GreaterThanEqRule : GreaterThanRule {
  using GreaterThanRule::GreaterThanRule;
  std::string name() const override { return "GreaterThanEq"; }
  Tensor check(const Tensor& value) const override { return at_least(value, lower); }
};
struct LessThanRule : BelowRule {
  using BelowRule::BelowRule;
  std::string name() const override { return "LessThan"; }
  Tensor check(const Tensor& value) const override { return below(value, upper); }
  Transform transform(bool) const override { return ComposeTransform({ExpTransform(), AffineTransform(upper, -1)}); }
};

Argument difference(const Argument& a, const Argument& b) {
  if (a.is_number() && b.is_number()) return a.number().to_double() - b.number().to_double();
  if (b.is_number()) return a.tensor() - b.number();
  return a.visit([&](const auto& from) { return from - b.tensor(); });
}

struct IntervalRule : BetweenRule {
  using BetweenRule::BetweenRule;
  std::string name() const override { return "Interval"; }
  Tensor check(const Tensor& value) const override { return at_least(value, lower) & at_most(value, upper); }
  Transform transform(bool) const override {
    if (lower.is_number() && upper.is_number() && lower.number().to_double() == 0 && upper.number().to_double() == 1)
      return SigmoidTransform();
    return ComposeTransform({SigmoidTransform(), AffineTransform(lower, difference(upper, lower))});
  }
};
struct HalfOpenIntervalRule : IntervalRule {
  using IntervalRule::IntervalRule;
  std::string name() const override { return "HalfOpenInterval"; }
  Tensor check(const Tensor& value) const override { return at_least(value, lower) & below(value, upper); }
};

// ---- vectors and matrices ----------------------------------------------------------------------------------------

struct OneHotRule : Constraint::Rule {
  std::string name() const override { return "OneHot"; }
  bool is_discrete() const override { return true; }
  int64_t event_dim() const override { return 1; }
  Tensor check(const Tensor& value) const override {
    return ((value == 0) | (value == 1)).all(-1) & (value.sum({-1}) == 1);
  }
};

struct SimplexRule : Constraint::Rule {
  std::string name() const override { return "Simplex"; }
  int64_t event_dim() const override { return 1; }
  Tensor check(const Tensor& value) const override {
    return (value >= 0).all(-1) & ((value.sum({-1}) - 1).abs() < 1e-6);
  }
  Transform transform(bool one_to_one) const override {
    if (one_to_one) return StickBreakingTransform();
    return SoftmaxTransform();
  }
};

struct MultinomialRule : BelowRule {  // counts that sum to at most a bound
  using BelowRule::BelowRule;
  std::string name() const override { return "Multinomial"; }
  std::string str() const override { return "Multinomial()"; }
  bool is_discrete() const override { return true; }
  int64_t event_dim() const override { return 1; }
  Tensor check(const Tensor& x) const override { return (x >= 0).all(-1) & at_most(x.sum({-1}), upper); }
};

struct MatrixRule : Constraint::Rule {
  int64_t event_dim() const override { return 2; }
};

struct LowerTriangularRule : MatrixRule {
  std::string name() const override { return "LowerTriangular"; }
  Tensor check(const Tensor& value) const override { return (value.tril() == value).flatten(-2).all(-1); }
};
struct LowerCholeskyRule : LowerTriangularRule {  // with a positive diagonal
  std::string name() const override { return "LowerCholesky"; }
  Tensor check(const Tensor& value) const override {
    return LowerTriangularRule::check(value) & (value.diagonal(0, -2, -1) > 0).all(-1);
  }
  Transform transform(bool one_to_one) const override {
    if (one_to_one) return Rule::transform(true);
    return LowerCholeskyTransform();
  }
};
struct CorrCholeskyRule : LowerCholeskyRule {  // of a correlation matrix: rows of length one
  std::string name() const override { return "CorrCholesky"; }
  Tensor check(const Tensor& value) const override {
    const double tolerance = limits_of(value).eps * static_cast<double>(value.size(-1)) * 10;
    const Tensor lengths = linalg_norm(value.detach(), std::nullopt, IntArrayRef{-1});
    return LowerCholeskyRule::check(value) & ((lengths - 1.0).abs() <= tolerance).all(-1);
  }
  Transform transform(bool) const override { return CorrCholeskyTransform(); }
};

struct SquareRule : MatrixRule {
  std::string name() const override { return "Square"; }
  Tensor check(const Tensor& value) const override {
    return full(without_last(value.sizes(), 2), value.size(-2) == value.size(-1), value.options().dtype(DType::Bool));
  }
};
struct SymmetricRule : SquareRule {
  std::string name() const override { return "Symmetric"; }
  Tensor check(const Tensor& value) const override {
    const Tensor square = SquareRule::check(value);
    if (!all_true(square)) return square;
    return isclose(value, value.mT(), 1e-5, 1e-6).flatten(-2).all(-1);
  }
};
struct PositiveSemidefiniteRule : SymmetricRule {
  std::string name() const override { return "PositiveSemidefinite"; }
  Tensor check(const Tensor& value) const override {
    const Tensor symmetric = SymmetricRule::check(value);
    return all_true(symmetric) ? (linalg_eigvalsh(value) >= 0).all(-1) : symmetric;
  }
  Transform transform(bool one_to_one) const override {
    if (one_to_one) return Rule::transform(true);
    return PositiveDefiniteTransform();
  }
};
struct PositiveDefiniteRule : PositiveSemidefiniteRule {
  std::string name() const override { return "PositiveDefinite"; }
  Tensor check(const Tensor& value) const override {
    const Tensor symmetric = SymmetricRule::check(value);
    return all_true(symmetric) ? std::get<1>(linalg_cholesky_ex(value)) == 0 : symmetric;
  }
};

// ---- of constraints ----------------------------------------------------------------------------------------------

struct IndependentRule : Constraint::Rule {
  IndependentRule(Constraint base, int64_t count) : base(std::move(base)), count(count) {}
  std::string name() const override { return "IndependentConstraint"; }
  std::string str() const override { return mica::cat(name(), "(", base.str(), ", ", count, ")"); }
  bool is_discrete() const override { return base.is_discrete(); }
  int64_t event_dim() const override { return base.event_dim() + count; }
  Tensor check(const Tensor& value) const override {
    const Tensor result = base.check(value);
    MICA_CHECK_KIND(result.dim() >= count, Value, "Expected value.dim() >= ", event_dim(), " but got ", value.dim());
    return result.reshape(joined(without_last(result.sizes(), static_cast<size_t>(count)), {-1})).all(-1);
  }
  Transform transform(bool one_to_one) const override {
    return IndependentTransform(base.rule().transform(one_to_one), count);
  }
  Constraint base;
  int64_t count;
};

struct MixtureRule : Constraint::Rule {
  explicit MixtureRule(Constraint base) : base(std::move(base)) {}
  std::string name() const override { return "MixtureSameFamilyConstraint"; }
  std::string str() const override { return mica::cat(name(), "(", base.str(), ")"); }
  bool is_discrete() const override { return base.is_discrete(); }
  int64_t event_dim() const override { return base.event_dim(); }
  Tensor check(const Tensor& value) const override {
    MICA_CHECK_KIND(value.dim() >= event_dim(), Value, "Expected value.dim() >= ", event_dim(), " but got ",
                    value.dim());
    const Tensor result = base.check(value.unsqueeze(-1 - event_dim()));
    return result.reshape(joined(first(result.sizes(), static_cast<size_t>(value.dim() - event_dim())), {-1})).all(-1);
  }
  Constraint base;
};

struct PartsRule : Constraint::Rule {
  PartsRule(std::vector<Constraint> parts, int64_t dim) : parts(std::move(parts)), dim(dim) {}
  bool is_discrete() const override {
    return std::any_of(parts.begin(), parts.end(), [](const Constraint& c) { return c.is_discrete(); });
  }
  int64_t event_dim() const override {
    int64_t most = 0;
    for (const Constraint& c : parts) most = std::max(most, c.event_dim());
    return most;
  }
  void require_dim(const Tensor& value) const {
    MICA_CHECK_KIND(-value.dim() <= dim && dim < value.dim(), Value, "dim ", dim, " out of range for value with ",
                    value.dim(), " dimensions");
  }
  std::vector<Transform> transforms(bool one_to_one) const {
    std::vector<Transform> result;
    for (const Constraint& c : parts) result.push_back(c.rule().transform(one_to_one));
    return result;
  }
  std::vector<Constraint> parts;
  int64_t dim;
};

struct CatRule : PartsRule {
  CatRule(std::vector<Constraint> parts, int64_t dim, std::vector<int64_t> lengths)
      : PartsRule(std::move(parts), dim), lengths(std::move(lengths)) {
    if (this->lengths.empty()) this->lengths.assign(this->parts.size(), 1);
    MICA_CHECK_KIND(this->lengths.size() == this->parts.size(), Value, "lengths (", this->lengths.size(),
                    ") must match cseq (", this->parts.size(), ")");
  }
  std::string name() const override { return "Cat"; }
  Tensor check(const Tensor& value) const override {
    require_dim(value);
    std::vector<Tensor> checks;
    int64_t start = 0;
    for (size_t i = 0; i < parts.size(); start += lengths[i++])
      checks.push_back(parts[i].check(value.narrow(dim, start, lengths[i])));
    return mica::cat(checks, dim);
  }
  Transform transform(bool one_to_one) const override { return CatTransform(transforms(one_to_one), dim, lengths); }
  std::vector<int64_t> lengths;
};

struct StackRule : PartsRule {
  using PartsRule::PartsRule;
  std::string name() const override { return "Stack"; }
  int64_t event_dim() const override {
    const int64_t most = PartsRule::event_dim();
    return dim + most < 0 ? most + 1 : most;
  }
  Tensor check(const Tensor& value) const override {
    require_dim(value);
    const std::vector<Tensor> pieces = value.unbind(dim);
    std::vector<Tensor> checks;
    for (size_t i = 0; i < std::min(parts.size(), pieces.size()); ++i) checks.push_back(parts[i].check(pieces[i]));
    return mica::stack(checks, dim);
  }
  Transform transform(bool one_to_one) const override { return StackTransform(transforms(one_to_one), dim); }
};

}  // namespace

namespace constraints {

// A constraint without arguments is made at its first use.
#define MICA_CONSTRAINT(name, ...)              \
  Constraint name() {                           \
    static const Constraint kept = __VA_ARGS__; \
    return kept;                                \
  }
MICA_CONSTRAINT(boolean, make<BooleanRule>())
MICA_CONSTRAINT(one_hot, make<OneHotRule>())
MICA_CONSTRAINT(nonnegative_integer, make<IntegerGreaterThanRule>(0))
MICA_CONSTRAINT(positive_integer, make<IntegerGreaterThanRule>(1))
MICA_CONSTRAINT(real, make<RealRule>())
MICA_CONSTRAINT(real_vector, independent(real(), 1))
MICA_CONSTRAINT(positive, greater_than(0.0))
MICA_CONSTRAINT(nonnegative, greater_than_eq(0.0))
MICA_CONSTRAINT(unit_interval, interval(0.0, 1.0))
MICA_CONSTRAINT(simplex, make<SimplexRule>())
MICA_CONSTRAINT(lower_triangular, make<LowerTriangularRule>())
MICA_CONSTRAINT(lower_cholesky, make<LowerCholeskyRule>())
MICA_CONSTRAINT(corr_cholesky, make<CorrCholeskyRule>())
MICA_CONSTRAINT(square, make<SquareRule>())
MICA_CONSTRAINT(symmetric, make<SymmetricRule>())
MICA_CONSTRAINT(positive_semidefinite, make<PositiveSemidefiniteRule>())
MICA_CONSTRAINT(positive_definite, make<PositiveDefiniteRule>())
#undef MICA_CONSTRAINT

Constraint integer_interval(Argument lower_bound, Argument upper_bound) {
  return make<IntegerIntervalRule>(std::move(lower_bound), std::move(upper_bound));
}
Constraint greater_than(Argument lower_bound) { return make<GreaterThanRule>(std::move(lower_bound)); }
Constraint greater_than_eq(Argument lower_bound) { return make<GreaterThanEqRule>(std::move(lower_bound)); }
Constraint less_than(Argument upper_bound) { return make<LessThanRule>(std::move(upper_bound)); }
Constraint multinomial(Argument upper_bound) { return make<MultinomialRule>(std::move(upper_bound)); }
Constraint interval(Argument lower_bound, Argument upper_bound) {
  return make<IntervalRule>(std::move(lower_bound), std::move(upper_bound));
}
Constraint half_open_interval(Argument lower_bound, Argument upper_bound) {
  return make<HalfOpenIntervalRule>(std::move(lower_bound), std::move(upper_bound));
}
Constraint independent(Constraint base_constraint, int64_t reinterpreted_batch_ndims) {
  MICA_CHECK_KIND(reinterpreted_batch_ndims >= 0, Value, "reinterpreted_batch_ndims must be >= 0, got ",
                  reinterpreted_batch_ndims);
  return make<IndependentRule>(std::move(base_constraint), reinterpreted_batch_ndims);
}
Constraint mixture_same_family(Constraint base_constraint) { return make<MixtureRule>(std::move(base_constraint)); }
Constraint cat(std::vector<Constraint> parts, int64_t dim, std::vector<int64_t> lengths) {
  return make<CatRule>(std::move(parts), dim, std::move(lengths));
}
Constraint stack(std::vector<Constraint> parts, int64_t dim) { return make<StackRule>(std::move(parts), dim); }

}  // namespace constraints
}  // namespace mica::distributions
