// Transforms made of transforms: one after the other, side by side, or over wider events.
#include <algorithm>

#include "distributions/shared.h"
#include "distributions/transform_rules.h"

namespace mica::distributions {

namespace {

std::vector<Transform> cached(std::vector<Transform> parts, int64_t cache_size) {
  if (cache_size)
    for (Transform& part : parts) part = part.with_cache(cache_size);
  return parts;
}

Constraint of_event_dim(const Constraint& constraint, int64_t event_dim) {
  const int64_t extra = event_dim - constraint.event_dim();
  MICA_CHECK_KIND(extra >= 0, Value, "event_dim ", event_dim, " must be >= event_dim ", constraint.event_dim(), " of ",
                  constraint.str());
  return extra ? constraints::independent(constraint, extra) : constraint;
}

Argument product(const Argument& a, const Argument& b) {
  if (a.is_number() && b.is_number()) return a.number().to_int() * b.number().to_int();
  if (b.is_number()) return a.tensor() * b.number();
  return a.visit([&](const auto& left) { return left * b.tensor(); });
}

struct ComposeRule : Transform::Rule {
  ComposeRule(std::vector<Transform> parts, int64_t cache_size)
      : Rule(cache_size), parts(cached(std::move(parts), cache_size)) {}
  std::string name() const override { return "ComposeTransform"; }
  std::string str() const override {
    std::string text = "ComposeTransform(\n    ";
    for (size_t i = 0; i < parts.size(); ++i) text += (i ? ",\n    " : "") + parts[i].str();
    return text + "\n)";
  }
  Constraint domain() const override {
    if (parts.empty()) return constraints::real();
    int64_t event_dim = parts.back().codomain().event_dim();
    for (size_t i = parts.size(); i-- > 0;) {
      const int64_t before = parts[i].domain().event_dim();
      event_dim = std::max(event_dim + before - parts[i].codomain().event_dim(), before);
    }
    return of_event_dim(parts.front().domain(), event_dim);
  }
  Constraint codomain() const override {
    if (parts.empty()) return constraints::real();
    int64_t event_dim = parts.front().domain().event_dim();
    for (const Transform& part : parts) {
      const int64_t after = part.codomain().event_dim();
      event_dim = std::max(event_dim + after - part.domain().event_dim(), after);
    }
    return of_event_dim(parts.back().codomain(), event_dim);
  }
  bool bijective() const override {
    return std::all_of(parts.begin(), parts.end(), [](const Transform& t) { return t.bijective(); });
  }
  Argument sign() const override {
    Argument sign = 1;
    for (const Transform& part : parts) sign = product(sign, part.sign());
    return sign;
  }
  Tensor forward(const Tensor& x) const override {
    Tensor y = x;
    for (const Transform& part : parts) y = part(y);
    return y;
  }
  Tensor inverse(const Tensor& y) const override {
    Tensor x = y;
    for (size_t i = parts.size(); i-- > 0;) x = parts[i].inv()(x);
    return x;
  }
  // The parts have caches of their own.
  Tensor call(const Tensor& x) const override { return forward(x); }
  Tensor call_inverse(const Tensor& y) const override { return inverse(y); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    if (parts.empty()) return zeros_like(x);
    Tensor total, before = x;
    int64_t event_dim = domain().event_dim();
    for (size_t i = 0; i < parts.size(); ++i) {
      const Tensor after = i + 1 == parts.size() ? y : parts[i](before);
      const int64_t own = parts[i].domain().event_dim();
      const Tensor term = sum_rightmost(parts[i].log_abs_det_jacobian(before, after), event_dim - own);
      total = total.defined() ? total + term : term;
      event_dim += parts[i].codomain().event_dim() - own;
      before = after;
    }
    return total;
  }
  DimVector forward_shape(IntArrayRef shape) const override {
    DimVector result(shape);
    for (const Transform& part : parts) result = part.forward_shape(result);
    return result;
  }
  DimVector inverse_shape(IntArrayRef shape) const override {
    DimVector result(shape);
    for (size_t i = parts.size(); i-- > 0;) result = parts[i].inverse_shape(result);
    return result;
  }
  Transform with_cache(int64_t cache_size) const override { return ComposeTransform(parts, cache_size); }
  Transform inv() const override {
    std::vector<Transform> back;
    for (size_t i = parts.size(); i-- > 0;) back.push_back(parts[i].inv());
    return ComposeTransform(std::move(back));
  }
  bool equals(const Rule& other) const override {
    const auto* compose = dynamic_cast<const ComposeRule*>(&other);
    return compose && compose->parts == parts;
  }
  std::vector<Transform> parts;
};

struct IndependentTransformRule : Transform::Rule {
  IndependentTransformRule(const Transform& of, int64_t count, int64_t cache_size)
      : Rule(cache_size), base(of.with_cache(cache_size)), count(count) {}
  std::string name() const override { return "IndependentTransform"; }
  std::string str() const override { return mica::cat(name(), "(", base.str(), ", ", count, ")"); }
  Constraint domain() const override { return constraints::independent(base.domain(), count); }
  Constraint codomain() const override { return constraints::independent(base.codomain(), count); }
  bool bijective() const override { return base.bijective(); }
  Argument sign() const override { return base.sign(); }
  Tensor forward(const Tensor& x) const override {
    MICA_CHECK_KIND(x.dim() >= domain().event_dim(), Value, "Too few dimensions on input");
    return base(x);
  }
  Tensor inverse(const Tensor& y) const override {
    MICA_CHECK_KIND(y.dim() >= codomain().event_dim(), Value, "Too few dimensions on input");
    return base.inv()(y);
  }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    return sum_rightmost(base.log_abs_det_jacobian(x, y), count);
  }
  DimVector forward_shape(IntArrayRef shape) const override { return base.forward_shape(shape); }
  DimVector inverse_shape(IntArrayRef shape) const override { return base.inverse_shape(shape); }
  Transform with_cache(int64_t cache_size) const override { return IndependentTransform(base, count, cache_size); }
  Transform base;
  int64_t count;
};

// Several transforms, each of a part of the values.
struct PartsRule : Transform::Rule {
  PartsRule(std::vector<Transform> parts, int64_t dim, int64_t cache_size)
      : Rule(cache_size), parts(cached(std::move(parts), cache_size)), dim(dim) {}
  bool bijective() const override {
    return std::all_of(parts.begin(), parts.end(), [](const Transform& t) { return t.bijective(); });
  }
  std::vector<Constraint> domains() const {
    std::vector<Constraint> result;
    for (const Transform& part : parts) result.push_back(part.domain());
    return result;
  }
  std::vector<Constraint> codomains() const {
    std::vector<Constraint> result;
    for (const Transform& part : parts) result.push_back(part.codomain());
    return result;
  }
  void require(const Tensor& value, int64_t size, const char* name, const char* size_name) const {
    MICA_CHECK_KIND(-value.dim() <= dim && dim < value.dim(), Value, "dim ", dim, " out of range for tensor with ",
                    value.dim(), " dimensions");
    MICA_CHECK_KIND(value.size(dim) == size, Value, name, ".size(", dim, ") = ", value.size(dim), " must equal ",
                    size_name, " ", size);
  }
  std::vector<Transform> parts;
  int64_t dim;
};

struct CatTransformRule : PartsRule {
  CatTransformRule(std::vector<Transform> parts, int64_t dim, std::vector<int64_t> given, int64_t cache_size)
      : PartsRule(std::move(parts), dim, cache_size), lengths(std::move(given)) {
    if (lengths.empty()) lengths.assign(this->parts.size(), 1);
    MICA_CHECK_KIND(lengths.size() == this->parts.size(), Value, "lengths (", lengths.size(),
                    ") must match transforms (", this->parts.size(), ")");
  }
  std::string name() const override { return "CatTransform"; }
  Constraint domain() const override { return constraints::cat(domains(), dim, lengths); }
  Constraint codomain() const override { return constraints::cat(codomains(), dim, lengths); }
  int64_t event_dim() const override {
    int64_t most = 0;
    for (const Transform& part : parts) most = std::max(most, part.event_dim());
    return most;
  }
  std::vector<Tensor> pieces(const Tensor& value, const char* name) const {
    int64_t length = 0;
    for (int64_t n : lengths) length += n;
    require(value, length, name, "length");
    return value.split_with_sizes(lengths, dim);
  }
  Tensor forward(const Tensor& x) const override {
    std::vector<Tensor> values = pieces(x, "x");
    for (size_t i = 0; i < parts.size(); ++i) values[i] = parts[i](values[i]);
    return mica::cat(values, dim);
  }
  Tensor inverse(const Tensor& y) const override {
    std::vector<Tensor> values = pieces(y, "y");
    for (size_t i = 0; i < parts.size(); ++i) values[i] = parts[i].inv()(values[i]);
    return mica::cat(values, dim);
  }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    const std::vector<Tensor> before = pieces(x, "x"), after = pieces(y, "y");
    const int64_t most = event_dim(), place = (dim >= 0 ? dim - x.dim() : dim) + most;
    std::vector<Tensor> terms;
    for (size_t i = 0; i < parts.size(); ++i)
      terms.push_back(sum_rightmost(parts[i].log_abs_det_jacobian(before[i], after[i]),
                                    std::max<int64_t>(most - parts[i].event_dim(), 0)));
    if (place < 0) return mica::cat(terms, place);
    Tensor total = terms[0];  // summed where the dimension belongs to the event
    for (size_t i = 1; i < terms.size(); ++i) total = total + terms[i];
    return total;
  }
  Transform with_cache(int64_t cache_size) const override { return CatTransform(parts, dim, lengths, cache_size); }
  std::vector<int64_t> lengths;
};

struct StackTransformRule : PartsRule {
  using PartsRule::PartsRule;
  std::string name() const override { return "StackTransform"; }
  Constraint domain() const override { return constraints::stack(domains(), dim); }
  Constraint codomain() const override { return constraints::stack(codomains(), dim); }
  std::vector<Tensor> pieces(const Tensor& value, const char* name) const {
    require(value, static_cast<int64_t>(parts.size()), name, "len(transforms)");
    return value.unbind(dim);
  }
  Tensor forward(const Tensor& x) const override {
    std::vector<Tensor> values = pieces(x, "x");
    for (size_t i = 0; i < parts.size(); ++i) values[i] = parts[i](values[i]);
    return mica::stack(values, dim);
  }
  Tensor inverse(const Tensor& y) const override {
    std::vector<Tensor> values = pieces(y, "y");
    for (size_t i = 0; i < parts.size(); ++i) values[i] = parts[i].inv()(values[i]);
    return mica::stack(values, dim);
  }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    std::vector<Tensor> before = pieces(x, "x"), after = pieces(y, "y");
    for (size_t i = 0; i < parts.size(); ++i) before[i] = parts[i].log_abs_det_jacobian(before[i], after[i]);
    return mica::stack(before, dim);
  }
  Transform with_cache(int64_t cache_size) const override { return StackTransform(parts, dim, cache_size); }
};

}  // namespace

ComposeTransform::ComposeTransform(std::vector<Transform> parts, int64_t cache_size)
    : Transform(make_rule<ComposeRule>(std::move(parts), cache_size)) {}
IndependentTransform::IndependentTransform(const Transform& base_transform, int64_t reinterpreted_batch_ndims,
                                           int64_t cache_size)
    : Transform(make_rule<IndependentTransformRule>(base_transform, reinterpreted_batch_ndims, cache_size)) {}
CatTransform::CatTransform(std::vector<Transform> transforms, int64_t dim, std::vector<int64_t> lengths,
                           int64_t cache_size)
    : Transform(make_rule<CatTransformRule>(std::move(transforms), dim, std::move(lengths), cache_size)) {}
StackTransform::StackTransform(std::vector<Transform> transforms, int64_t dim, int64_t cache_size)
    : Transform(make_rule<StackTransformRule>(std::move(transforms), dim, cache_size)) {}

}  // namespace mica::distributions
