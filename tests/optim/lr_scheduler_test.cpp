#include "mica/optim/lr_scheduler.h"

#include <cmath>

#include "mica/optim.h"
#include "tests/autograd/autograd_testing.h"

namespace mica::optim {
namespace {

using mica::testing::leaf;

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

std::vector<double> rates_of(SGD& sgd, LRScheduler& schedule, int steps) {
  std::vector<double> seen{sgd.lr(0)};
  for (int i = 1; i < steps; ++i) {
    schedule.step();
    seen.push_back(sgd.lr(0));
  }
  return seen;
}
void expect_rates(const std::vector<double>& seen, const std::vector<double>& expected) {
  ASSERT_EQ(seen.size(), expected.size());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], expected[i], 1e-12) << i;
}

// What torch's schedules set for a rate of 1.
TEST(LrScheduler, AsTorch) {
  const Tensor p = leaf({1});
  {
    SGD sgd({p}, {.lr = 1});
    ConstantLR constant(sgd, 0.25, 3);
    expect_rates(rates_of(sgd, constant, 5), {0.25, 0.25, 0.25, 1, 1});
  }
  {
    SGD sgd({p}, {.lr = 1});
    PolynomialLR polynomial(sgd, 4, 2);
    expect_rates(rates_of(sgd, polynomial, 6), {1, 0.5625, 0.25, 0.0625, 0, 0});
  }
  {
    SGD sgd({p}, {.lr = 1});
    MultiplicativeLR halved(sgd, [](int64_t) { return 0.5; });
    expect_rates(rates_of(sgd, halved, 3), {1, 0.5, 0.25});
  }
  {
    SGD sgd({p}, {.lr = 1});
    CosineAnnealingWarmRestarts restarts(sgd, 2, 2, 0.1);
    const double r = std::sqrt(0.5);
    expect_rates(rates_of(sgd, restarts, 8), {1, 0.55, 1, 0.1 + 0.45 * (1 + r), 0.55, 0.1 + 0.45 * (1 - r), 1,
                                              0.1 + 0.45 * (1 + std::cos(M_PI / 8))});
    restarts.step(0.5);
    EXPECT_NEAR(sgd.lr(0), 0.1 + 0.45 * (1 + r), 1e-12);
    restarts.step(4.0);
    EXPECT_NEAR(sgd.lr(0), 0.55, 1e-12);
  }
  {
    SGD sgd({p}, {.lr = 1, .momentum = 0.5});
    CyclicLR cyclic(sgd, {.base_lr = 0.1, .max_lr = 0.5, .step_size_up = 2, .mode = "triangular2"});
    expect_rates(rates_of(sgd, cyclic, 8), {0.1, 0.3, 0.5, 0.3, 0.1, 0.2, 0.3, 0.2});
    EXPECT_NEAR(sgd.param_groups()[0].options.momentum, 0.875, 1e-12);
    EXPECT_THROW(CyclicLR(sgd, {.mode = "round"}), Error);
  }
  {
    SGD sgd({p}, {.lr = 1});
    LinearLR warmup(sgd, 0.5, 1, 2);
    ExponentialLR decay(sgd, 0.9);
    SequentialLR schedule(sgd, {warmup, decay}, {3});
    expect_rates(rates_of(sgd, schedule, 6), {0.5, 0.75, 1, 1, 0.9, 0.81});
    EXPECT_THROW(SequentialLR(sgd, {warmup, decay}, {}), Error);
  }
  {
    SGD sgd({p}, {.lr = 1});
    ConstantLR constant(sgd, 0.1, 2);
    ExponentialLR decay(sgd, 0.9);
    ChainedScheduler both({constant, decay});
    expect_rates(rates_of(sgd, both, 4), {0.1, 0.09, 0.81, 0.729});
  }
}

TEST(LrScheduler, GoesOnFromAState) {
  const Tensor p = leaf({1});
  SGD sgd({p}, {.lr = 1}), other({p}, {.lr = 0.3});
  LinearLR warmup(sgd, 0.5, 1, 2), warmup_too(other, 0.1);
  CosineAnnealingLR cosine(sgd, 5), cosine_too(other, 9);
  SequentialLR schedule(sgd, {warmup, cosine}, {3}), schedule_too(other, {warmup_too, cosine_too}, {3});
  for (int i = 0; i < 4; ++i) schedule.step();
  other.load_state_dict(sgd.state_dict());
  schedule_too.load_state_dict(schedule.state_dict());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(sgd.lr(0), other.lr(0));
    schedule.step();
    schedule_too.step();
  }
  EXPECT_EQ(schedule.state_dict().at("last_epoch").as_int(), 8);
  EXPECT_EQ(cosine_too.state_dict().at("T_max").as_int(), 5);

  ReduceLROnPlateau plateau(sgd, {.factor = 0.5, .patience = 1}), plateau_too(other);
  plateau.step(1);
  plateau.step(2);
  plateau_too.load_state_dict(plateau.state_dict());
  sgd.set_lr(0, 1);
  other.set_lr(0, 1);
  plateau.step(3);
  plateau_too.step(3);
  EXPECT_EQ(sgd.lr(0), 0.5);
  EXPECT_EQ(other.lr(0), 0.5);
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

}  // namespace
}  // namespace mica::optim
