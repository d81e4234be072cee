// Behaviour that recorded results cannot show: errors, distributions that a program defines, registries, caches.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "mica/autograd.h"
#include "mica/backend.h"
#include "mica/distributions.h"
#include "mica/values.h"

namespace mica::testing {

using namespace mica::distributions;

static std::string words_of(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(DistributionBehaviour, BadArgumentsAreRefusedInTorchsWords) {
  const std::vector<std::pair<std::function<void()>, std::string>> refused{
      {[] { Normal(0.0, -1.0); },
       "Expected parameter scale (Tensor of shape ()) of distribution Normal(loc: 0.0, scale: -1.0) to satisfy the "
       "constraint GreaterThan(lower_bound=0.0), but found invalid values:"},
      {[] {
         Normal(zeros({2}), tensor({1.0, 0.0}));
       },
       "of distribution Normal(loc: torch.Size([2])"},
      {[] { Normal(zeros({2}), zeros({3})); }, "The size of tensor"},
      {[] { Normal(Tensor(), 1.0); }, "Input arguments must all be instances of Number"},
      {[] { Bernoulli({.probs = 0.5, .logits = 0.5}); }, "Either `probs` or `logits` must be specified, but not both."},
      {[] { Bernoulli(OddsOptions{}); }, "Either `probs` or `logits` must be specified, but not both."},
      {[] { Categorical(tensor(0.5)); }, "`probs` parameter must be at least one-dimensional."},
      {[] { Categorical({.logits = 0.5}); }, "`logits` parameter must be at least one-dimensional."},
      {[] { Dirichlet(tensor(0.5)); }, "`concentration` parameter must be at least one-dimensional."},
      {[] { Uniform(1.0, 0.0); }, "Expected parameter low"},
      {[] { Chi2(-1.0); }, "Expected parameter df (Tensor of shape ()) of distribution Chi2()"},
      {[] {
         Geometric(tensor({0.0, 0.5}));
       },
       "to be positive but found invalid values:\ntensor([0.])"},
      {[] { Normal(0.0, 1.0).log_prob(Tensor()); }, "The value argument to log_prob must be a Tensor"},
      {[] { Normal(zeros({2}), 1.0).log_prob(zeros({3})); },
       "Value is not broadcastable with batch_shape+event_shape: torch.Size([3]) vs torch.Size([2])."},
      {[] { Dirichlet(ones({3})).log_prob(ones({2}) / 2); },
       "The right-most size of value must match event_shape: torch.Size([2]) vs torch.Size([3])."},
      {[] { Exponential(1.0).log_prob(tensor(-1.0)); },
       "to be within the support (GreaterThanEq(lower_bound=0.0)) of the distribution Exponential(rate: 1.0)"},
      {[] { LKJCholesky(1); }, "Expected dim to be an integer greater than or equal to 2. Found dim=1."},
      {[] { Independent(Normal(0.0, 1.0), 1); },
       "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual 1 vs 0"},
      {[] { MultivariateNormal(zeros({3}), CovarianceOptions{}); },
       "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."},
      {[] { MultivariateNormal(zeros({2}), -eye(2)); }, "Expected parameter covariance_matrix"},
      {[] { MixtureSameFamily(Categorical(ones({3})), Normal(zeros({2}), 1.0)); },
       "`mixture_distribution component` (3) does not equal `component_distribution.batch_shape[-1]` (2)"},
      {[] { MixtureSameFamily(Categorical(ones({1})), Normal(0.0, 1.0)); }, "must have a last dimension"},
      {[] { TransformedDistribution(Normal(0.0, 1.0), StickBreakingTransform()); },
       "base_distribution needs to have shape with size at least 1, but got torch.Size([])."},
      {[] { ExpTransform(2); }, "cache_size must be 0 or 1"},
      {[] { vec_to_tril_matrix(ones({4})); }, "cannot be expressed as the lower triangular part"},
  };
  for (const auto& [call, words] : refused) {
    const ErrorKind kind = words == "The size of tensor" ? ErrorKind::Runtime : ErrorKind::Value;
    const std::string said = words_of(call, kind);
    EXPECT_NE(said.find(words), std::string::npos) << said << "\n  instead of: " << words;
  }
  EXPECT_EQ(words_of([] { VonMises(0.0, 1.0).entropy(); }, ErrorKind::NotImplemented),
            "VonMises does not implement entropy");
}

TEST(DistributionBehaviour, ValidationCanBeTurnedOff) {
  const Options unchecked{.validate_args = false};
  EXPECT_FALSE(Normal(0.0, -1.0, unchecked).expand({3}).validates());
  Distribution::set_default_validate_args(false);
  EXPECT_NO_THROW(Normal(0.0, -1.0));
  Distribution::set_default_validate_args(true);
  EXPECT_THROW(Normal(0.0, -1.0), Error);
  // Parameters that make no distribution must not keep a sampler waiting for ever.
  const Tensor odd = tensor({std::numeric_limits<double>::quiet_NaN(), -1.0, 0.0, 2.0});
  EXPECT_TRUE(
      equal(VonMises(zeros({4}), odd, unchecked).sample({3}).isnan().all(0), tensor({true, true, true, false})));
}

TEST(DistributionBehaviour, NumbersTakeTheDtypeOfTensors) {
  const Normal normal(zeros({2, 1}, kFloat64), 2);
  EXPECT_EQ(normal.scale().dtype(), kFloat64);
  EXPECT_EQ(normal.expand({4, 2, 3}).rsample({5}).sizes().vec(), (std::vector<int64_t>{5, 4, 2, 3}));
  EXPECT_EQ(Normal(0, 1).sample().dtype(), kFloat32);
  EXPECT_EQ(Normal(zeros({0}), 1.0).sample({2}).sizes().vec(), (std::vector<int64_t>{2, 0}));
  const auto constraints = normal.arg_constraints();
  ASSERT_EQ(constraints.size(), 2u);
  EXPECT_EQ(constraints[1].first, "scale");
  EXPECT_EQ(constraints[1].second.str(), "GreaterThan(lower_bound=0.0)");
}

// |x| is a triangle of a given width.
class Triangle : public Family<Triangle, Distribution> {
 public:
  static constexpr const char* kName = "Triangle";
  explicit Triangle(const Argument& width, const Options& options = {}) {
    const Tensor value = broadcast_all({width})[0];
    add("width", constraints::positive(), value);
    finish(value.sizes(), {}, options);
  }
  const Tensor& width() const { return parameter(0); }
  bool has_rsample() const override { return true; }
  Constraint support() const override { return constraints::interval(-width(), width()); }
  Tensor rsample(IntArrayRef sample_shape = {}) const override {
    const Tensor u = rand(extended_shape(sample_shape), width().options());
    return (1 - sqrt(u)) * width();
  }
  Tensor log_prob(const Tensor& value) const override {
    check(value);
    return log(1 - value.abs() / width()) - log(width());
  }
};
class Isosceles : public Family<Isosceles, Triangle> {
 public:
  static constexpr const char* kName = "Isosceles";
  Isosceles() : Family(2.0) {}
};

TEST(DistributionBehaviour, AProgramsOwnDistributionIsOneLikeTheOthers) {
  const Triangle triangle(tensor({1.0, 2.0}).requires_grad_());
  EXPECT_EQ(triangle.str(), "Triangle(width: torch.Size([2]))");
  const Independent both(triangle.expand({3, 2}), 1);
  EXPECT_EQ(both.str(), "Independent(Triangle(width: torch.Size([3, 2])), 1)");
  const Tensor drawn = both.rsample({4});
  EXPECT_EQ(both.log_prob(drawn.detach()).sizes().vec(), (std::vector<int64_t>{4, 3}));
  drawn.sum().backward();
  EXPECT_TRUE(triangle.width().grad().defined());
  EXPECT_NE(words_of([] { Triangle(0.0); }, ErrorKind::Value).find("Expected parameter width"), std::string::npos);
  EXPECT_NE(words_of([&] { kl_divergence(triangle, triangle); }, ErrorKind::NotImplemented)
                .find("No KL(p || q) is implemented for p type Triangle and q type Triangle"),
            std::string::npos);
  register_kl<Triangle, Triangle>([](const Triangle& p, const Triangle& q) { return log(q.width() / p.width()); });
  EXPECT_FLOAT_EQ(kl_divergence(Isosceles(), Triangle(4.0)).item<float>(), std::log(2.0f));
  register_kl<Isosceles, Triangle>([](const Isosceles&, const Triangle&) { return tensor(17.0); });
  EXPECT_EQ(kl_divergence(Isosceles(), Triangle(4.0)).item<float>(), 17.0f);
  EXPECT_FLOAT_EQ(kl_divergence(Triangle(2.0), Isosceles()).item<float>(), 0.0f);
}

TEST(DistributionBehaviour, AnExponentialFamilyKnowsItsEntropy) {
  const Gamma gamma(tensor({2.0, 0.5}), 1.5);
  EXPECT_TRUE(allclose(gamma.ExponentialFamily::entropy(), gamma.entropy()));
  // No entry for Chi2 itself: it is a Gamma.
  EXPECT_TRUE(allclose(kl_divergence(Chi2(3.0), Chi2(4.0)), kl_divergence(Gamma(1.5, 0.5), Gamma(2.0, 0.5))));
}

TEST(DistributionBehaviour, TransformsReachTheirConstraint) {
  namespace c = constraints;
  const Tensor low = tensor({1.0, -2.0, 0.5});
  manual_seed(2);
  const Tensor x = randn({5, 3});
  for (const Constraint& constraint :
       {c::real(), c::positive(), c::nonnegative(), c::greater_than(low), c::greater_than_eq(low), c::less_than(low),
        c::interval(low, low + 2), c::unit_interval(), c::half_open_interval(low, low + 2), c::simplex(),
        c::corr_cholesky(), c::independent(c::positive(), 1), c::cat({c::positive(), c::unit_interval()}, -1, {1, 2}),
        c::stack({c::real(), c::positive(), c::unit_interval()}, -1)}) {
    const Transform one_to_one = biject_to(constraint);
    EXPECT_TRUE(constraint.check(one_to_one(x)).all().item<bool>()) << constraint.str();
    EXPECT_TRUE(constraint.check(transform_to(constraint)(x)).all().item<bool>()) << constraint.str();
    EXPECT_TRUE(allclose(one_to_one.inv()(one_to_one(x)), x, 1e-3, 1e-3)) << constraint.str();
  }
  const Tensor square = randn({2, 3, 3});
  EXPECT_TRUE(c::lower_cholesky().check(transform_to(c::lower_cholesky())(square)).all().item<bool>());
  EXPECT_TRUE(c::positive_definite().check(transform_to(c::positive_definite())(square)).all().item<bool>());
  EXPECT_EQ(words_of([] { biject_to(constraints::boolean()); }, ErrorKind::NotImplemented),
            "Cannot transform _Boolean constraints");
  EXPECT_EQ(words_of([] { biject_to(constraints::lower_cholesky()); }, ErrorKind::NotImplemented),
            "Cannot transform _LowerCholesky constraints");
}

TEST(DistributionBehaviour, ACacheOfOneGivesBackTheValueItself) {
  const TanhTransform transform(1);
  const Tensor x = tensor({50.0});
  EXPECT_TRUE(transform.inv()(transform(x)).is_same(x));
  EXPECT_TRUE(transform.inv().with_cache(0).inv().rule().cache_size() == 0);
  const ComposeTransform composed({ExpTransform(), TanhTransform()}, 1);
  EXPECT_TRUE(composed.inv()(composed(x)).is_same(x));
  EXPECT_TRUE(TanhTransform() == TanhTransform());
  EXPECT_TRUE(AffineTransform(1.0, 2.0) != AffineTransform(1.0, 3.0));
  EXPECT_TRUE(AffineTransform(tensor({1.0, 1.0}), 2.0) == AffineTransform(1.0, tensor({2.0, 2.0})));
  EXPECT_TRUE(ExpTransform().inv() != Transform(ExpTransform()));
}

TEST(DistributionBehaviour, OneCanBeUsedByManyThreads) {
  const Categorical categorical({.logits = randn({64})});
  std::vector<std::thread> threads;
  std::vector<Tensor> found(4);
  for (size_t i = 0; i < found.size(); ++i)
    threads.emplace_back([&, i] { found[i] = Categorical(categorical).probs(); });
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& probs : found) EXPECT_TRUE(probs.is_same(found[0]));
}

TEST(DistributionBehaviour, TrianglesThereAndBack) {
  const Tensor matrix = arange(9.0).view({3, 3}).tril(-1);
  EXPECT_TRUE(equal(vec_to_tril_matrix(tril_matrix_to_vec(matrix, -1), -1), matrix));
}

}  // namespace mica::testing
