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
  EXPECT_EQ(adam.state_dict().at("0.step").item<float>(), 2);
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

TEST(LrScheduler, StepAndExponential) {
  Tensor p = leaf({1});
  SGD sgd({p}, {.lr = 1});
  StepLR step(sgd, 2, 0.5);
  std::vector<double> seen;
  for (int i = 0; i < 5; ++i, step.step()) seen.push_back(sgd.lr(0));
  EXPECT_EQ(seen, (std::vector<double>{1, 1, 0.5, 0.5, 0.25}));
  sgd.set_lr(0, 1);
  ExponentialLR exponential(sgd, 0.5);
  exponential.step();
  exponential.step();
  EXPECT_EQ(exponential.get_last_lr(), (std::vector<double>{0.25}));
  sgd.set_lr(0, 1);
  MultiStepLR milestones(sgd, {1, 3}, 0.1);
  for (int i = 0; i < 3; ++i) milestones.step();
  EXPECT_DOUBLE_EQ(sgd.lr(0), 0.01);
  sgd.set_lr(0, 1);
  LinearLR linear(sgd, 0.5, 1, 2);
  EXPECT_DOUBLE_EQ(sgd.lr(0), 0.5);
  linear.step();
  EXPECT_DOUBLE_EQ(sgd.lr(0), 0.75);
}

TEST(LrScheduler, CosineIsItsClosedForm) {
  Tensor p = leaf({1});
  SGD sgd({p}, {.lr = 0.1});
  CosineAnnealingLR cosine(sgd, 7, 0.01);
  for (int t = 0; t < 20; ++t, cosine.step())
    EXPECT_NEAR(sgd.lr(0), 0.01 + 0.09 * (1 + std::cos(M_PI * t / 7)) / 2, 1e-12);
  EXPECT_THROW(CosineAnnealingLR(sgd, 0), Error);
}

TEST(LrScheduler, LambdaAndOneCycle) {
  Tensor p = leaf({1});
  Adam adam({p}, {.lr = 0.2});
  LambdaLR lambda(adam, [](int64_t epoch) { return 1.0 / static_cast<double>(1 + epoch); });
  lambda.step();
  EXPECT_DOUBLE_EQ(adam.lr(0), 0.1);
  OneCycleLR cycle(adam, {.max_lr = 1, .total_steps = 10});
  EXPECT_NEAR(adam.lr(0), 0.04, 1e-15);
  EXPECT_DOUBLE_EQ(adam.param_groups()[0].options.betas[0].value(), 0.95);
  cycle.step();
  cycle.step();
  EXPECT_NEAR(adam.lr(0), 1, 1e-15);
  EXPECT_DOUBLE_EQ(adam.param_groups()[0].options.betas[0].value(), 0.85);
  for (int i = 0; i < 8; ++i) cycle.step();
  EXPECT_THROW(cycle.step(), Error);
}

TEST(LrScheduler, PlateauWaitsForProgress) {
  Tensor p = leaf({1});
  SGD sgd({p}, {.lr = 1});
  ReduceLROnPlateau plateau(sgd, {.factor = 0.5, .patience = 1, .cooldown = 1});
  for (double metric : {3.0, 2.0, 2.0, 2.0}) plateau.step(metric);
  EXPECT_DOUBLE_EQ(sgd.lr(0), 0.5);
  for (double metric : {2.0, 2.0, 2.0}) plateau.step(metric);
  EXPECT_DOUBLE_EQ(sgd.lr(0), 0.25);
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
