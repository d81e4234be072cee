// Transforms of vectors and matrices.
#include <cmath>

#include "distributions/shared.h"
#include "distributions/transform_rules.h"
#include "mica/linalg.h"

namespace mica::distributions {

namespace {

void need_dims(IntArrayRef shape, size_t count) {
  MICA_CHECK_KIND(shape.size() >= count, Value, "Too few dimensions on input");
}

struct ReshapeRule : RuleOf<ReshapeRule> {
  ReshapeRule(IntArrayRef from, IntArrayRef to, int64_t cache_size) : RuleOf(cache_size), in(from), out(to) {
    int64_t before = 1, after = 1;
    for (int64_t size : in) before *= size;
    for (int64_t size : out) after *= size;
    MICA_CHECK_KIND(before == after, Value, "in_shape, out_shape have different numbers of elements");
  }
  std::string name() const override { return "ReshapeTransform"; }
  Constraint domain() const override {
    return constraints::independent(constraints::real(), static_cast<int64_t>(in.size()));
  }
  Constraint codomain() const override {
    return constraints::independent(constraints::real(), static_cast<int64_t>(out.size()));
  }
  bool bijective() const override { return true; }
  static IntArrayRef batch(const Tensor& value, const DimVector& event) {
    need_dims(value.sizes(), event.size());
    return without_last(value.sizes(), event.size());
  }
  Tensor forward(const Tensor& x) const override { return x.reshape(joined(batch(x, in), out)); }
  Tensor inverse(const Tensor& y) const override { return y.reshape(joined(batch(y, out), in)); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor&) const override { return x.new_zeros(batch(x, in)); }
  static DimVector changed(IntArrayRef shape, const DimVector& from, const DimVector& to) {
    need_dims(shape, from.size());
    const IntArrayRef event = last(shape, from.size());
    MICA_CHECK_KIND(event == from.ref(), Value, "Shape mismatch: expected ", size_text(event), " but got ",
                    size_text(from));
    return joined(without_last(shape, from.size()), to);
  }
  DimVector forward_shape(IntArrayRef shape) const override { return changed(shape, in, out); }
  DimVector inverse_shape(IntArrayRef shape) const override { return changed(shape, out, in); }
  DimVector in, out;
};

struct SoftmaxRule : Parameterless<SoftmaxRule> {
  using Parameterless::Parameterless;
  std::string name() const override { return "SoftmaxTransform"; }
  Constraint domain() const override { return constraints::real_vector(); }
  Constraint codomain() const override { return constraints::simplex(); }
  Tensor forward(const Tensor& x) const override {
    const Tensor weights = (x - std::get<0>(max(x, -1, true))).exp();
    return weights / weights.sum({-1}, true);
  }
  Tensor inverse(const Tensor& y) const override { return y.log(); }
  DimVector forward_shape(IntArrayRef shape) const override {
    need_dims(shape, 1);
    return shape;
  }
  DimVector inverse_shape(IntArrayRef shape) const override { return forward_shape(shape); }
};

Tensor up_to_n(const Tensor& like, int64_t n) { return like.new_ones({n}).cumsum(-1); }
Tensor cropped(const Tensor& y) { return y.narrow(-1, 0, y.size(-1) - 1); }

struct StickBreakingRule : Parameterless<StickBreakingRule> {
  using Parameterless::Parameterless;
  std::string name() const override { return "StickBreakingTransform"; }
  Constraint domain() const override { return constraints::real_vector(); }
  Constraint codomain() const override { return constraints::simplex(); }
  bool bijective() const override { return true; }
  static Tensor centred(const Tensor& x) { return x - (x.size(-1) + 1 - up_to_n(x, x.size(-1))).log(); }
  Tensor forward(const Tensor& x) const override {
    const Tensor share = clipped_sigmoid(centred(x));
    return pad(share, {0, 1}, "constant", 1) * pad((1 - share).cumprod(-1), {1, 0}, "constant", 1);
  }
  Tensor inverse(const Tensor& y) const override {
    const Tensor crop = cropped(y);
    const Tensor offset = y.size(-1) - up_to_n(y, crop.size(-1));
    const Tensor left = clamp_below(1 - crop.cumsum(-1), limits_of(y).tiny);
    return crop.log() - left.log() + offset.log();
  }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    const Tensor centre = centred(x);
    return (-centre + log_sigmoid(centre) + cropped(y).log()).sum({-1});  // 1 - sigmoid(x) = exp(-x) sigmoid(x)
  }
  DimVector forward_shape(IntArrayRef shape) const override { return grown(shape, 1); }
  DimVector inverse_shape(IntArrayRef shape) const override { return grown(shape, -1); }
  static DimVector grown(IntArrayRef shape, int64_t by) {
    need_dims(shape, 1);
    DimVector result(shape);
    result.back() += by;
    return result;
  }
};

// Each number, through tanh, is the canonical partial correlation of an element below the diagonal; a row is what is
// left of a stick of length one, squared, after its elements.
struct CorrCholeskyRule : RuleOf<CorrCholeskyRule> {
  using RuleOf::RuleOf;
  std::string name() const override { return "CorrCholeskyTransform"; }
  Constraint domain() const override { return constraints::real_vector(); }
  Constraint codomain() const override { return constraints::corr_cholesky(); }
  bool bijective() const override { return true; }
  Tensor forward(const Tensor& x) const override {
    const double eps = limits_of(x).eps;
    const Tensor partial = vec_to_tril_matrix(tanh(x).clamp(Scalar(-1 + eps), Scalar(1 - eps)), -1);
    const Tensor left = (1 - partial.pow(2)).sqrt().cumprod(-1);
    return (partial + eye(partial.size(-1), partial.options())) * pad(cropped(left), {1, 0}, "constant", 1);
  }
  Tensor inverse(const Tensor& y) const override {
    const Tensor left = pad(cropped(1 - cumsum(y * y, -1)), {1, 0}, "constant", 1);
    const Tensor t = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(left, -1).sqrt();
    return (t.log1p() - t.neg().log1p()) / 2;
  }
  // Of x and the elements of y below the diagonal: the matrix has more.
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    const Tensor left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), -2);
    const Tensor slope = -2 * (x + softplus(-2 * x) - std::log(2.0)).sum({-1});
    return 0.5 * left.log().sum({-1}) + slope;
  }
  DimVector forward_shape(IntArrayRef shape) const override {
    need_dims(shape, 1);
    const int64_t count = shape.back();
    const auto side = static_cast<int64_t>(std::nearbyint(std::sqrt(0.25 + 2 * static_cast<double>(count)) + 0.5));
    MICA_CHECK_KIND(side * (side - 1) / 2 == count, Value, "Input is not a flattened lower-diagonal number");
    return joined(without_last(shape), {side, side});
  }
  DimVector inverse_shape(IntArrayRef shape) const override {
    need_dims(shape, 2);
    const int64_t side = shape.back();
    MICA_CHECK_KIND(shape[shape.size() - 2] == side, Value, "Input is not square");
    return joined(without_last(shape, 2), {side * (side - 1) / 2});
  }
};

struct LowerCholeskyRule : Parameterless<LowerCholeskyRule> {
  using Parameterless::Parameterless;
  std::string name() const override { return "LowerCholeskyTransform"; }
  Constraint domain() const override { return constraints::independent(constraints::real(), 2); }
  Constraint codomain() const override { return constraints::lower_cholesky(); }
  static Tensor factor(const Tensor& x) { return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed(); }
  static Tensor back(const Tensor& y) { return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed(); }
  Tensor forward(const Tensor& x) const override { return factor(x); }
  Tensor inverse(const Tensor& y) const override { return back(y); }
};

struct PositiveDefiniteRule : Parameterless<PositiveDefiniteRule> {
  using Parameterless::Parameterless;
  std::string name() const override { return "PositiveDefiniteTransform"; }
  Constraint domain() const override { return constraints::independent(constraints::real(), 2); }
  Constraint codomain() const override { return constraints::positive_definite(); }
  Tensor forward(const Tensor& x) const override {
    const Tensor factor = LowerCholeskyRule::factor(x);
    return matmul(factor, factor.mT());
  }
  Tensor inverse(const Tensor& y) const override { return LowerCholeskyRule::back(linalg_cholesky(y)); }
};

}  // namespace

ReshapeTransform::ReshapeTransform(IntArrayRef in_shape, IntArrayRef out_shape, int64_t cache_size)
    : Transform(make_rule<ReshapeRule>(in_shape, out_shape, cache_size)) {}
SoftmaxTransform::SoftmaxTransform(int64_t cache_size) : Transform(make_rule<SoftmaxRule>(cache_size)) {}
StickBreakingTransform::StickBreakingTransform(int64_t cache_size)
    : Transform(make_rule<StickBreakingRule>(cache_size)) {}
CorrCholeskyTransform::CorrCholeskyTransform(int64_t cache_size) : Transform(make_rule<CorrCholeskyRule>(cache_size)) {}
LowerCholeskyTransform::LowerCholeskyTransform(int64_t cache_size)
    : Transform(make_rule<LowerCholeskyRule>(cache_size)) {}
PositiveDefiniteTransform::PositiveDefiniteTransform(int64_t cache_size)
    : Transform(make_rule<PositiveDefiniteRule>(cache_size)) {}

}  // namespace mica::distributions
