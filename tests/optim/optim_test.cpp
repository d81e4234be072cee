#include "mica/optim.h"

#include <cmath>

#include "tests/autograd/autograd_testing.h"

namespace mica::optim {
namespace {

using mica::testing::leaf;
using mica::testing::list;
using mica::testing::values;

void set_gradient(const Tensor& p, std::vector<double> g) { p.set_grad(values(std::move(g))); }

// The square of the distance to (3, -1), minimised from the origin.
template <class Optimizer>
std::vector<double> minimum(Optimizer& optimizer, const Tensor& p, int steps) {
  const Tensor goal = values({3, -1});
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    (p - goal).pow(2).sum().backward();
    optimizer.step();
  }
  return list(p);
}

TEST(Optim, SgdIsGradientDescent) {
  Tensor p = leaf({1, 2});
  SGD sgd({p}, {.lr = 0.1, .momentum = 0.5});
  set_gradient(p, {1, -1});
  sgd.step();
  sgd.step();
  const auto now = list(p);
  EXPECT_DOUBLE_EQ(now[0], 1 - 0.1 - 0.15);
  EXPECT_DOUBLE_EQ(now[1], 2 + 0.1 + 0.15);
}

TEST(Optim, FirstStepOfAdamHasTheSizeOfTheRate) {
  Tensor p = leaf({1, 2});
  Adam adam({p}, {.lr = 0.01});
  set_gradient(p, {100, -1e-3});
  adam.step();
  const auto now = list(p);
  EXPECT_NEAR(now[0], 0.99, 1e-9);
  EXPECT_NEAR(now[1], 2.01, 1e-6);
}

TEST(Optim, AdamWShrinksTheParameter) {
  Tensor p = leaf({2});
  AdamW adamw({p}, {.lr = 0.1, .weight_decay = 0.5});
  set_gradient(p, {0});
  adamw.step();
  EXPECT_DOUBLE_EQ(list(p)[0], 2 * (1 - 0.1 * 0.5));
}

template <class Optimizer>
void expect_minimum(typename Optimizer::Options options, int steps) {
  Tensor p = leaf({0, 0});
  Optimizer optimizer({p}, options);
  const auto found = minimum(optimizer, p, steps);
  EXPECT_NEAR(found[0], 3, 0.05);
  EXPECT_NEAR(found[1], -1, 0.05);
}

TEST(Optim, AllFindAMinimum) {
  expect_minimum<SGD>({.lr = 0.1}, 100);
  expect_minimum<Adam>({.lr = 0.1}, 500);
  expect_minimum<AdamW>({.lr = 0.1, .weight_decay = 0}, 500);
  expect_minimum<Adamax>({.lr = 0.2}, 500);
  expect_minimum<NAdam>({.lr = 0.1}, 500);
  expect_minimum<RAdam>({.lr = 0.1}, 500);
  expect_minimum<RMSprop>({.lr = 0.01}, 1000);
  expect_minimum<Adagrad>({.lr = 1}, 500);
  expect_minimum<Adadelta>({.lr = 20}, 1000);
  expect_minimum<Rprop>({.lr = 0.1}, 200);
  expect_minimum<ASGD>({.lr = 0.1, .lambd = 0}, 200);
}

TEST(Optim, MatricesHaveOptimizersOfTheirOwn) {
  Tensor p = zeros({4, 3}).requires_grad_();
  const Tensor goal = arange(0, 12, 1, DType::Float32).reshape({4, 3}) / 10;
  const auto distance = [&] { return (p.detach() - goal).norm().item<float>(); };
  for (int kind = 0; kind < 2; ++kind) {
    {
      NoGradGuard no_grad;
      p.zero_();
    }
    std::unique_ptr<Optimizer> optimizer;
    if (kind == 0) {
      optimizer = std::make_unique<Muon>(std::vector<Tensor>{p}, MuonOptions{.lr = 0.02, .weight_decay = 0});
    } else {
      optimizer = std::make_unique<Adafactor>(std::vector<Tensor>{p}, AdafactorOptions{.lr = 0.5});
    }
    const float before = distance();
    for (int i = 0; i < 100; ++i) {
      optimizer->zero_grad();
      (p - goal).pow(2).sum().backward();
      optimizer->step();
    }
    EXPECT_LT(distance(), before / 2);
  }
}

TEST(Optim, LbfgsCallsTheClosure) {
  Tensor p = leaf({-1.2, 1});
  LBFGS lbfgs({p}, {.max_iter = 60, .strong_wolfe = true});
  int calls = 0;
  const auto closure = [&] {
    ++calls;
    lbfgs.zero_grad();
    Tensor loss = (1 - p[0]).pow(2) + 100 * (p[1] - p[0] * p[0]).pow(2);
    loss.backward();
    return loss;
  };
  const Tensor first = lbfgs.step(closure);
  EXPECT_NEAR(first.item<double>(), 24.2, 1e-9);
  EXPECT_NEAR(list(p)[0], 1, 1e-4);
  EXPECT_GT(calls, 10);
  EXPECT_THROW(lbfgs.step(nullptr), Error);
}

TEST(Optim, GroupsHaveOptionsOfTheirOwn) {
  Tensor a = leaf({1}), b = leaf({1});
  SGD sgd(std::vector<SGD::Group>{{{a}, {.lr = 0.1}}, {{b}, {.lr = 0.5}}});
  set_gradient(a, {1});
  set_gradient(b, {1});
  sgd.step();
  EXPECT_DOUBLE_EQ(list(a)[0], 0.9);
  EXPECT_DOUBLE_EQ(list(b)[0], 0.5);
  sgd.param_groups()[1].options.lr = 0;
  sgd.step();
  EXPECT_DOUBLE_EQ(list(b)[0], 0.5);
  EXPECT_THROW(sgd.add_param_group({a}), Error);
  sgd.zero_grad(false);
  EXPECT_EQ(list(a.grad()), (std::vector<double>{0}));
  sgd.zero_grad();
  EXPECT_FALSE(a.grad().defined());
}

TEST(Optim, GoesOnFromASavedState) {
  Tensor p = leaf({1, 2, 3});
  Adam adam({p}, {.amsgrad = true});
  set_gradient(p, {1, 2, 3});
  adam.step();
  Tensor q = values(list(p), true);
  Adam other({q}, {.amsgrad = true});
  other.load_state_dict(adam.state_dict());
  set_gradient(q, {1, 2, 3});
  adam.step();
  other.step();
  EXPECT_EQ(list(p), list(q));
  EXPECT_EQ(adam.state_dict().at("state").at(0).at("step").as_tensor().item<float>(), 2);
  EXPECT_TRUE(Adam({q}).state_dict().at("state").size() == 0);
}

TEST(Optim, StatesCarryOptionsAndGroups) {
  Tensor a = leaf({1}), b = leaf({1, 2}), c = leaf({3});
  AdamW adamw(
      std::vector<AdamW::Group>{{{a, b}, {.lr = 0.1}}, {{c}, {.lr = 0.2, .betas = {0.5, 0.6}, .amsgrad = true}}});
  set_gradient(b, {1, 2});
  set_gradient(c, {1});
  adamw.step();
  const Value state = adamw.state_dict();
  const Value& group = state.at("param_groups")[1];
  EXPECT_EQ(group.at("lr").as_double(), 0.2);
  EXPECT_EQ(group.at("betas")[0].as_double(), 0.5);
  EXPECT_EQ(group.at("params")[0].as_int(), 2);
  EXPECT_TRUE(group.at("fused").is_none() && group.at("foreach").is_none());
  EXPECT_EQ(state.at("state").find(0), nullptr);
  EXPECT_EQ(list(state.at("state").at(1).at("exp_avg").as_tensor()).size(), 2u);
  EXPECT_NE(state.at("state").at(2).find("max_exp_avg_sq"), nullptr);

  Tensor p = leaf({1}), q = leaf({1, 2}), r = leaf({3});
  AdamW other(std::vector<AdamW::Group>{{{p, q}, {}}, {{r}, {}}});
  other.load_state_dict(state);
  EXPECT_EQ(other.lr(1), 0.2);
  EXPECT_TRUE(other.param_groups()[1].options.amsgrad);
  EXPECT_THROW(AdamW({a}).load_state_dict(state), Error);
  EXPECT_THROW(AdamW(std::vector<AdamW::Group>{{{p}, {}}, {{q, r}, {}}}).load_state_dict(state), Error);
}

template <class Optimizer>
void expect_resumes(typename Optimizer::Options options) {
  const auto gradient = [](const Tensor& p) { p.set_grad((p.detach() * 3 - 1).sin()); };
  Tensor p = values({0.5, -1, 2, 0.25}).reshape({2, 2}).requires_grad_();
  Optimizer first({p}, options);
  for (int i = 0; i < 3; ++i) {
    gradient(p);
    first.step();
  }
  Tensor q = p.detach().clone().requires_grad_();
  Optimizer second({q});
  const std::string path = ::testing::TempDir() + "mica_optimizer.pt";
  first.save(path);
  second.load(path);
  std::remove(path.c_str());
  for (int i = 0; i < 3; ++i) {
    gradient(p);
    gradient(q);
    first.step();
    second.step();
  }
  EXPECT_EQ(list(p), list(q)) << typeid(Optimizer).name();
}

TEST(Optim, AllGoOnFromAFile) {
  expect_resumes<SGD>({.lr = 0.1, .momentum = 0.9, .nesterov = true});
  expect_resumes<Adam>({.lr = 0.1, .weight_decay = 0.1, .amsgrad = true});
  expect_resumes<AdamW>({.lr = 0.1});
  expect_resumes<Adamax>({.lr = 0.1});
  expect_resumes<NAdam>({.lr = 0.1, .decoupled_weight_decay = true});
  expect_resumes<RAdam>({.lr = 0.1});
  expect_resumes<RMSprop>({.lr = 0.1, .momentum = 0.5, .centered = true});
  expect_resumes<Adagrad>({.lr = 0.1, .lr_decay = 0.1});
  expect_resumes<Adadelta>({.lr = 0.5, .rho = 0.8});
  expect_resumes<Rprop>({.lr = 0.1, .etas = {0.4, 1.3}});
  expect_resumes<ASGD>({.lr = 0.1, .t0 = 2});
  expect_resumes<Adafactor>({.lr = 0.1, .eps1 = 1e-5});
  expect_resumes<Muon>({.lr = 0.1, .adjust_lr_fn = "match_rms_adamw"});
}

TEST(Optim, LbfgsGoesOnFromAState) {
  const auto closure_of = [](LBFGS& lbfgs, const Tensor& p) {
    return [&lbfgs, p] {
      lbfgs.zero_grad();
      Tensor loss = (1 - p[0]).pow(2) + 100 * (p[1] - p[0] * p[0]).pow(2);
      loss.backward();
      return loss;
    };
  };
  Tensor p = leaf({-1.2, 1});
  LBFGS first({p}, {.max_iter = 5, .history_size = 4, .strong_wolfe = true});
  first.step(closure_of(first, p));
  Tensor q = p.detach().clone().requires_grad_();
  LBFGS second({q});
  second.load_state_dict(first.state_dict());
  first.step(closure_of(first, p));
  second.step(closure_of(second, q));
  EXPECT_EQ(list(p), list(q));
}

TEST(Optim, RefusesWhatMakesNoSense) {
  Tensor p = leaf({1});
  EXPECT_THROW(SGD({p}, {.lr = -1}), Error);
  EXPECT_THROW(SGD({p}, {.nesterov = true}), Error);
  EXPECT_THROW(Adam({p}, {.betas = {1.0, 0.9}}), Error);
  EXPECT_THROW(SGD(std::vector<Tensor>{}), Error);
  EXPECT_THROW(SGD({p * 2}), Error);
  EXPECT_THROW(RMSprop({p}, {.lr = std::nan("")}), Error);
}

TEST(LossScale, ChecksAndFollows) {
  const Tensor grad = ones({70000}), found = zeros({}), scale = full({}, 8.0, DType::Float32);
  const Tensor tracker = zeros({}, DType::Int32), inverse = full({}, 0.125, DType::Float32);
  unscale_gradients(std::vector<Tensor>{grad}, found, inverse);
  EXPECT_EQ(grad[69999].item<float>(), 0.125f);
  EXPECT_EQ(found.item<float>(), 0);
  update_scale(scale, tracker, found, 2, 0.5, 1);
  EXPECT_EQ(scale.item<float>(), 16);
  grad[69999].fill_(INFINITY);
  unscale_gradients(std::vector<Tensor>{grad}, found, inverse);
  EXPECT_EQ(found.item<float>(), 1);
  update_scale(scale, tracker, found, 2, 0.5, 1);
  EXPECT_EQ(scale.item<float>(), 8);
}

}  // namespace
}  // namespace mica::optim
