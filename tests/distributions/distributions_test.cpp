// Every distribution, divergence and transform gives what torch gave: samples of one seed, densities, moments,
// gradients, texts. The cases are those of distribution_cases.py.
#include "mica/distributions.h"

#include <functional>
#include <regex>

#include "mica/autograd.h"
#include "mica/backend.h"
#include "mica/values.h"
#include "mica/warning.h"
#include "recorded.h"

namespace mica::testing {

using namespace mica::distributions;

using List = std::vector<double>;
static const List P{0.3, 0.9, 2.5}, Q{0.7, 1.6, 0.4}, U{0.2, 0.5, 0.85};
static const List kPQ{0.3, 0.9, 2.5, 0.7, 1.6, 0.4}, kQP{0.7, 1.6, 0.4, 0.3, 0.9, 2.5};
static const List kMatrix{2.0, 0.3, 0.1, 0.3, 1.5, -0.2, 0.1, -0.2, 0.8};
static const List kFactors{1.2, 0.0, 0.0, 0.4, 0.9, 0.0, -0.3, 0.2, 0.7, 1.2, 0.0, 0.0, 0.4, 0.9, 0.0, -0.3, 0.2, 0.7};
static const List kShares{0.2, 0.3, 0.5, 3.0, 1.0, 2.0};

// Makes tensors that require grad, and remembers them.
struct Numbers {
  std::vector<Tensor> made;
  Tensor operator()(const List& values, IntArrayRef shape) {
    made.push_back(tensor(values).reshape(shape).detach().requires_grad_());
    return made.back();
  }
  Tensor operator()(const List& values) { return (*this)(values, {static_cast<int64_t>(values.size())}); }
};

// The braces matter: they evaluate their tensors from left to right, as Python does.
static const std::vector<std::pair<std::string, std::function<DistributionPtr(Numbers&)>>>& cases() {
#define CASE(name, ...)                       \
  {                                           \
    name, [](Numbers& n) -> DistributionPtr { \
      (void)n;                                \
      return (__VA_ARGS__).clone();           \
    }                                         \
  }
  static const std::vector<std::pair<std::string, std::function<DistributionPtr(Numbers&)>>> all{
      CASE("Bernoulli", Bernoulli{n(U)}),
      CASE("Bernoulli logits", Bernoulli{OddsOptions{.logits = n({-1.0, 0.0, 2.0})}}),
      CASE("Bernoulli number", Bernoulli{0.3}),
      CASE("Beta", Beta{n(P), n(Q)}),
      CASE("Beta number", Beta{0.5, 2.0}),
      CASE("Binomial", Binomial{12, n(U)}),
      CASE("Binomial counts",
           Binomial{tensor(List{3.0, 40.0}).reshape({2, 1}), OddsOptions{.logits = n({-1.0, 0.5, 2.0})}}),
      CASE("Categorical", Categorical{n(kShares, {2, 3})}),
      CASE("Categorical logits", Categorical{OddsOptions{.logits = n({0.1, -2.0, 1.5, 0.0})}}),
      CASE("Cauchy", Cauchy{n(P), n(Q)}),
      CASE("Chi2", Chi2{n({0.5, 3.0, 10.0})}),
      CASE("ContinuousBernoulli", ContinuousBernoulli{n({0.1, 0.5, 0.9})}),
      CASE("ContinuousBernoulli logits", ContinuousBernoulli{OddsOptions{.logits = n({-3.0, 0.001, 2.0})}}),
      CASE("Dirichlet", Dirichlet{n({0.5, 1.5, 3.0, 2.0, 2.0, 0.2}, {2, 3})}),
      CASE("Exponential", Exponential{n(P)}),
      CASE("Exponential number", Exponential{2.0}),
      CASE("FisherSnedecor", FisherSnedecor{n({3.0, 5.0, 8.0}), n({2.0, 6.0, 9.0})}),
      CASE("Gamma", Gamma{n(P), n(Q)}),
      CASE("GeneralizedPareto", GeneralizedPareto{n(P), n(Q), n({0.0, 0.3, -0.4})}),
      CASE("Geometric", Geometric{n(U)}),
      CASE("Geometric logits", Geometric{OddsOptions{.logits = n({-1.0, 0.0, 2.0})}}),
      CASE("Gumbel", Gumbel{n(P), n(Q)}),
      CASE("HalfCauchy", HalfCauchy{n(P)}),
      CASE("HalfNormal", HalfNormal{n(P)}),
      CASE("Independent", Independent{Normal{n(kPQ, {2, 3}), n(kQP, {2, 3})}, 1}),
      CASE("InverseGamma", InverseGamma{n({0.8, 1.5, 4.0}), n(Q)}),
      CASE("Kumaraswamy", Kumaraswamy{n(P), n(Q)}),
      CASE("LKJCholesky", LKJCholesky{3, n({0.5, 2.0})}),
      CASE("Laplace", Laplace{n(P), n(Q)}),
      CASE("LogNormal", LogNormal{n(P), n(Q)}),
      CASE("LogisticNormal", LogisticNormal{n(kPQ, {2, 3}), n(kQP, {2, 3})}),
      CASE("LowRankMultivariateNormal", LowRankMultivariateNormal{n(P), n({1.0, 0.5, -0.2}, {3, 1}), n(Q)}),
      CASE("MixtureSameFamily", MixtureSameFamily{Categorical{n(U)}, Normal{n(P), n(Q)}}),
      CASE("MixtureSameFamily vectors",
           MixtureSameFamily{Categorical{n({0.4, 0.6})}, Independent{Normal{n(kPQ, {2, 3}), n(kQP, {2, 3})}, 1}}),
      CASE("Multinomial", Multinomial{7, n({0.2, 0.3, 0.5, 0.6, 0.3, 0.1}, {2, 3})}),
      CASE("MultivariateNormal", MultivariateNormal{n(kPQ, {2, 3}), n(kMatrix, {3, 3})}),
      CASE("MultivariateNormal precision",
           MultivariateNormal{n(P), CovarianceOptions{.precision_matrix = n(kMatrix, {3, 3})}}),
      CASE("MultivariateNormal factor",
           MultivariateNormal{n(P), CovarianceOptions{.scale_tril = n(kFactors, {2, 3, 3})}}),
      CASE("NegativeBinomial", NegativeBinomial{5, n(U)}),
      CASE("NegativeBinomial logits", NegativeBinomial{n({1.0, 3.5, 0.2}), OddsOptions{.logits = n(P)}}),
      CASE("Normal", Normal{n(P), n(Q)}),
      CASE("Normal numbers", Normal{0.5, 2.0}),
      CASE("OneHotCategorical", OneHotCategorical{n(kShares, {2, 3})}),
      CASE("OneHotCategoricalStraightThrough", OneHotCategoricalStraightThrough{OddsOptions{.logits = n(P)}}),
      CASE("Pareto", Pareto{n(Q), n({0.8, 1.6, 3.5})}),
      CASE("Poisson", Poisson{n({0.5, 4.0, 30.0})}),
      CASE("RelaxedBernoulli", RelaxedBernoulli{tensor(List{0.7}), n(U)}),
      CASE("RelaxedOneHotCategorical", RelaxedOneHotCategorical{tensor(0.7), OddsOptions{.logits = n(kPQ, {2, 3})}}),
      CASE("StudentT", StudentT{n({0.8, 1.5, 6.0}), n(P), n(Q)}),
      CASE("TransformedDistribution",
           TransformedDistribution{Normal{n(P), n(Q)}, {AffineTransform(1.0, -2.0), SigmoidTransform()}}),
      CASE("Uniform", Uniform{n({0.0, -1.0, 2.0}), n({1.0, 3.0, 2.5})}),
      CASE("VonMises", VonMises{n(P), n({0.01, 1.0, 8.0})}),
      CASE("Weibull", Weibull{n(P), n(Q)}),
      CASE("Wishart", Wishart{n({5.5}, {}), n(kMatrix, {3, 3})}),
  };
#undef CASE
  return all;
}

static DistributionPtr make(const std::string& name, Numbers& n) {
  for (const auto& [known, maker] : cases())
    if (known == name) return maker(n);
  throw std::out_of_range(name);
}

// Silences warnings, which torch gives too in these cases.
struct Quiet {
  WarningHandler before = set_warning_handler([](std::string_view) {});
  ~Quiet() { set_warning_handler(before); }
};

static std::string kind_of(const Error& e) {
  return e.kind() == ErrorKind::NotImplemented ? "NotImplementedError"
         : e.kind() == ErrorKind::Value        ? "ValueError"
                                               : "RuntimeError";
}

// Compares the result of a call with the recorded one: a tensor, or the type of an error.
static void expect_result(const std::function<Tensor()>& call, const Recorded& theirs, double tolerance,
                          const std::string& what) {
  try {
    const Tensor ours = call();
    EXPECT_NE(theirs.kind, Recorded::Kind::Text) << what << ": no " << theirs.text;
    if (theirs.kind != Recorded::Kind::Text) expect_recorded(ours, theirs, tolerance, what);
  } catch (const Error& e) {
    EXPECT_EQ(kind_of(e), theirs.text) << what << ": " << e.what();
  }
}

static std::string unnumbered(const std::string& text) {
  static const std::regex node("Backward\\d");
  return std::regex_replace(text, node, "Backward");
}

TEST(Distributions, GiveWhatTorchGave) {
  Quiet quiet;
  const Recorded& recorded = recorded_distributions().at("distributions");
  EXPECT_EQ(cases().size(), recorded.entries.size());
  for (const auto& [name, facts] : recorded.entries) {
    SCOPED_TRACE(name);
    Numbers n;
    const DistributionPtr d = make(name, n);
    EXPECT_EQ(d->str(), facts.at("repr").text);
    manual_seed(11);
    const Tensor sample = d->sample({2}), probability = tensor(List{0.3, 0.8}).reshape({2, 1});
    EXPECT_FALSE(sample.requires_grad());
    expect_recorded(sample, facts.at("sample"), 3e-5, "sample");
    expect_recorded(d->log_prob(sample), facts.at("log_prob"), 3e-5, "log_prob");
    expect_result([&] { return d->cdf(sample); }, facts.at("cdf"), 3e-5, "cdf");
    expect_result([&] { return d->icdf(probability); }, facts.at("icdf"), 3e-5, "icdf");
    expect_result([&] { return d->mean(); }, facts.at("mean"), 3e-5, "mean");
    expect_result([&] { return d->mode(); }, facts.at("mode"), 3e-5, "mode");
    expect_result([&] { return d->variance(); }, facts.at("variance"), 3e-5, "variance");
    expect_result([&] { return d->stddev(); }, facts.at("stddev"), 3e-5, "stddev");
    expect_result([&] { return d->entropy(); }, facts.at("entropy"), 3e-5, "entropy");
    expect_result([&] { return d->perplexity(); }, facts.at("perplexity"), 3e-5, "perplexity");
    expect_result([&] { return d->enumerate_support(); }, facts.at("enumerated"), 3e-5, "enumerate_support");
    EXPECT_EQ(unnumbered(d->support().str()), facts.at("support").text);
    EXPECT_EQ(d->has_rsample(), facts.at("has").items[0].number != 0);
    EXPECT_EQ(d->has_enumerate_support(), facts.at("has").items[1].number != 0);

    std::vector<int64_t> wider = d->batch_shape().vec();
    wider.insert(wider.begin(), 2);
    const auto wide = d->expand(wider);
    EXPECT_EQ(wide->batch_shape().vec(), wider);
    EXPECT_EQ(wide->event_shape().vec(), d->event_shape().vec());
    manual_seed(12);
    const Tensor drawn = wide->sample();
    expect_recorded(drawn, facts.at("expanded").items[0], 3e-5, "expanded sample");
    expect_recorded(wide->log_prob(drawn), facts.at("expanded").items[1], 3e-5, "expanded log_prob");
    EXPECT_EQ(wide->str(), facts.at("expanded").items[2].text);
  }
}

static void expect_gradients(const std::vector<Tensor>& made, const Recorded& theirs, double tolerance,
                             const std::string& what) {
  ASSERT_EQ(made.size(), theirs.items.size()) << what;
  for (size_t i = 0; i < made.size(); ++i) {
    const Tensor grad = made[i].grad();
    EXPECT_EQ(grad.defined(), theirs.items[i].kind != Recorded::Kind::Null) << what << i;
    if (grad.defined()) expect_recorded(grad, theirs.items[i], tolerance, what + std::to_string(i));
  }
}

TEST(Distributions, HaveTheGradientsOfTorch) {
  Quiet quiet;
  // The derivative of a gamma or Dirichlet sample is an approximation in torch, within a thousandth; here it is exact.
  const std::vector<std::string> rough{"Beta",  "Chi2",         "Dirichlet", "FisherSnedecor",
                                       "Gamma", "InverseGamma", "StudentT",  "Wishart"};
  for (const auto& [name, facts] : recorded_distributions().at("gradients").entries) {
    SCOPED_TRACE(name);
    Numbers n;
    DistributionPtr d = make(name, n);
    manual_seed(13);
    const Tensor scored = d->log_prob(d->sample());
    EXPECT_EQ(!n.made.empty() && scored.requires_grad(), facts.find("log_prob") != nullptr);
    if (facts.find("log_prob")) {
      scored.sum().backward();
      expect_gradients(n.made, facts.at("log_prob"), 1e-4, "log_prob");
    }
    EXPECT_EQ(d->has_rsample() && !n.made.empty(), facts.find("rsample") != nullptr);
    if (!facts.find("rsample")) continue;
    Numbers fresh;
    d = make(name, fresh);
    manual_seed(14);
    const Tensor drawn = d->rsample();
    (drawn * linspace(0.5, 1.5, drawn.numel()).reshape(drawn.sizes())).sum().backward();
    const bool is_rough = std::find(rough.begin(), rough.end(), name) != rough.end();
    expect_gradients(fresh.made, facts.at("rsample"), is_rough ? 2e-3 : 1e-4, "rsample");
  }
}

TEST(Distributions, DivergeAsInTorch) {
  Quiet quiet;
  const std::vector<std::string> names{"Bernoulli",
                                       "Beta",
                                       "Binomial",
                                       "Categorical logits",
                                       "Cauchy",
                                       "ContinuousBernoulli",
                                       "Dirichlet",
                                       "Exponential",
                                       "Gamma",
                                       "Geometric",
                                       "Gumbel",
                                       "HalfNormal",
                                       "Laplace",
                                       "Independent",
                                       "Normal",
                                       "OneHotCategorical",
                                       "Pareto",
                                       "LowRankMultivariateNormal",
                                       "Poisson",
                                       "Uniform",
                                       "MultivariateNormal",
                                       "TransformedDistribution"};
  const Recorded& recorded = recorded_distributions().at("divergences");
  size_t found = 0;
  for (const std::string& first : names) {
    for (const std::string& second : names) {
      Numbers n;
      const DistributionPtr p = make(first, n), q = make(second, n);
      const Recorded* theirs = recorded.find(first + " | " + second);
      Recorded none;
      none.kind = Recorded::Kind::Text;
      none.text = "NotImplementedError";
      expect_result([&] { return kl_divergence(*p, *q); }, theirs ? *theirs : none, 3e-5, first + " | " + second);
      found += theirs != nullptr;
    }
  }
  EXPECT_EQ(found, recorded.entries.size());
}

TEST(Distributions, TransformAsTorchDoes) {
  const List vector{-1.2, 0.3, 2.1};
  const auto of = [](const List& values) { return tensor(values); };
  const std::vector<std::tuple<std::string, Transform, Tensor>> transforms{
      {"Abs", AbsTransform(), of(vector)},
      {"Affine", AffineTransform(1.0, -2.0), of(vector)},
      {"Affine events", AffineTransform(of(P), of(Q), 1), of({-1.2, 0.3, 2.1, 0.3, 0.9, 2.5}).reshape({2, 3})},
      {"Cat", CatTransform({ExpTransform(), AffineTransform(1.0, 3.0)}, -1, {1, 2}), of(vector)},
      {"Compose", ComposeTransform({ExpTransform(), AffineTransform(-1.0, 2.0)}), of(vector)},
      {"CorrCholesky", CorrCholeskyTransform(), of(vector)},
      {"CumulativeDistribution", CumulativeDistributionTransform(Normal(0.5, 2.0)), of(vector)},
      {"Exp", ExpTransform(), of(vector)},
      {"Independent", IndependentTransform(ExpTransform(), 1), of(vector)},
      {"LowerCholesky", LowerCholeskyTransform(), of(kMatrix).reshape({3, 3})},
      {"Power", PowerTransform(2.5), of(P)},
      {"Reshape", ReshapeTransform({3}, {3, 1}), of(vector)},
      {"Sigmoid", SigmoidTransform(), of(vector)},
      {"Softmax", SoftmaxTransform(), of(vector)},
      {"Softplus", SoftplusTransform(), of(vector)},
      {"Stack", StackTransform({ExpTransform(), TanhTransform(), SigmoidTransform()}, -1), of(vector)},
      {"StickBreaking", StickBreakingTransform(), of(vector)},
      {"Tanh", TanhTransform(), of({-1.2, 0.3, 0.9})},
  };
  const Recorded& recorded = recorded_distributions().at("transforms");
  EXPECT_EQ(transforms.size(), recorded.entries.size());
  const auto sizes = [](const Recorded& list) {
    std::vector<int64_t> result;
    for (const Recorded& size : list.items) result.push_back(static_cast<int64_t>(size.number));
    return result;
  };
  for (const auto& [name, t, x] : transforms) {
    SCOPED_TRACE(name);
    const Recorded& facts = recorded.at(name);
    const Tensor value = x, y = t(x);
    const Transform transform = t;
    expect_recorded(y, facts.at("there"), 1e-5, "there");
    expect_recorded(t.inv()(y), facts.at("back"), 1e-5, "back");
    expect_result([&] { return transform.log_abs_det_jacobian(value, y); }, facts.at("jacobian"), 1e-5, "jacobian");
    expect_result([&] { return transform.inv().log_abs_det_jacobian(y, value); }, facts.at("inverse"), 1e-5, "inverse");
    EXPECT_EQ(t.str(), facts.at("repr").items[0].text);
    EXPECT_EQ(t.inv().str(), facts.at("repr").items[1].text);
    EXPECT_EQ(IntArrayRef(t.forward_shape(x.sizes())).vec(), sizes(facts.at("shapes").items[0]));
    EXPECT_EQ(IntArrayRef(t.inverse_shape(y.sizes())).vec(), sizes(facts.at("shapes").items[1]));
    EXPECT_EQ(t.domain().str(), facts.at("domains").items[0].text);
    EXPECT_EQ(t.codomain().str(), facts.at("domains").items[1].text);
    EXPECT_EQ(t.bijective(), facts.at("bijective").number != 0);
    std::string sign;
    try {
      const Argument found = t.sign();
      sign = found.is_number() ? found.str() : found.tensor().str();
    } catch (const Error& e) {
      sign = kind_of(e);
    }
    EXPECT_EQ(sign, facts.at("sign").text);
    EXPECT_TRUE(t.inv().inv() == t);
  }
}

}  // namespace mica::testing
