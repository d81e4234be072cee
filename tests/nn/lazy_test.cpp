// Modules that take their size from the first input.
#include <gtest/gtest.h>

#include "mica/backend.h"
#include "mica/nn.h"
#include "mica/optim.h"

namespace mica::testing {
namespace {

// The lazy module draws at its first call what the other one draws when it is made.
template <class LazyModule, class Module>
void expect_same(const LazyModule& lazy, const std::function<Module()>& make, const Tensor& x) {
  const std::string name = lazy->name();
  EXPECT_TRUE(name.starts_with("Lazy")) << name;
  manual_seed(7);
  const Tensor y = lazy(x);
  manual_seed(7);
  const Module usual = make();
  EXPECT_EQ(lazy->repr(), usual->repr());
  EXPECT_FALSE(lazy->has_uninitialized_params());
  EXPECT_TRUE(equal(y, usual(x))) << name;
  const NamedTensors a = lazy->state_dict(), b = usual->state_dict();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(equal(a[i].second, b[i].second)) << name << " " << a[i].first;
  }
}

TEST(LazyModules, DrawWhatTheOthersDraw) {
  expect_same<nn::LazyLinear, nn::Linear>(
      nn::LazyLinear(3), [] { return nn::Linear(5, 3); }, ones({2, 5}));
  expect_same<nn::LazyConv1d, nn::Conv1d>(
      nn::LazyConv1d(4, 3), [] { return nn::Conv1d(2, 4, 3); }, ones({1, 2, 7}));
  expect_same<nn::LazyConv2d, nn::Conv2d>(
      nn::LazyConv2d(4, {3, 1}, {.groups = 2, .bias = false}),
      [] {
        return nn::Conv2d(6, 4, {3, 1}, {.groups = 2, .bias = false});
      },
      ones({6, 5, 5}));
  expect_same<nn::LazyConv3d, nn::Conv3d>(
      nn::LazyConv3d(2, 2, {.stride = 2}), [] { return nn::Conv3d(3, 2, 2, {.stride = 2}); }, ones({1, 3, 4, 4, 4}));
  expect_same<nn::LazyConvTranspose1d, nn::ConvTranspose1d>(
      nn::LazyConvTranspose1d(4, 3), [] { return nn::ConvTranspose1d(2, 4, 3); }, ones({1, 2, 7}));
  expect_same<nn::LazyConvTranspose2d, nn::ConvTranspose2d>(
      nn::LazyConvTranspose2d(4, 2, {.stride = 2}), [] { return nn::ConvTranspose2d(3, 4, 2, {.stride = 2}); },
      ones({1, 3, 4, 4}));
  expect_same<nn::LazyConvTranspose3d, nn::ConvTranspose3d>(
      nn::LazyConvTranspose3d(2, 2), [] { return nn::ConvTranspose3d(3, 2, 2); }, ones({1, 3, 2, 2, 2}));
  expect_same<nn::LazyBatchNorm1d, nn::BatchNorm1d>(
      nn::LazyBatchNorm1d(), [] { return nn::BatchNorm1d(3); }, randn({4, 3}));
  expect_same<nn::LazyBatchNorm2d, nn::BatchNorm2d>(
      nn::LazyBatchNorm2d({.eps = 1e-3, .bias = false}),
      [] { return nn::BatchNorm2d(3, {.eps = 1e-3, .bias = false}); }, randn({4, 3, 2, 2}));
  expect_same<nn::LazyBatchNorm3d, nn::BatchNorm3d>(
      nn::LazyBatchNorm3d(), [] { return nn::BatchNorm3d(3); }, randn({4, 3, 2, 2, 2}));
  expect_same<nn::LazyInstanceNorm1d, nn::InstanceNorm1d>(
      nn::LazyInstanceNorm1d({.affine = true}), [] { return nn::InstanceNorm1d(3, {.affine = true}); },
      randn({4, 3, 5}));
  expect_same<nn::LazyInstanceNorm2d, nn::InstanceNorm2d>(
      nn::LazyInstanceNorm2d({.track_running_stats = true}),
      [] { return nn::InstanceNorm2d(3, {.track_running_stats = true}); }, randn({4, 3, 5, 2}));
  expect_same<nn::LazyInstanceNorm3d, nn::InstanceNorm3d>(
      nn::LazyInstanceNorm3d(), [] { return nn::InstanceNorm3d(3); }, randn({4, 3, 5, 2, 2}));
}

TEST(LazyModules, BeforeTheFirstCall) {
  const nn::Sequential net{nn::LazyConv2d(8, 3), nn::LazyBatchNorm2d(), nn::ReLU(), nn::Flatten(), nn::LazyLinear(2)};
  EXPECT_EQ((*net)[4]->repr(), "LazyLinear(in_features=0, out_features=2, bias=True)");
  EXPECT_TRUE((*net)[0]->has_uninitialized_params());
  const std::vector<Tensor> parameters = net->parameters();
  EXPECT_EQ(parameters.size(), 6u);
  EXPECT_THROW(net->state_dict(), Error);
  net->to(DType::Float64);
  optim::SGD sgd(parameters, {.lr = 0.1});
  net(ones({2, 3, 5, 5}).to(DType::Float64)).sum().backward();
  EXPECT_EQ(parameters[0].sizes().vec(), (std::vector<int64_t>{8, 3, 3, 3}));  // the tensors are the same ones
  EXPECT_EQ(parameters[0].dtype(), DType::Float64);
  const Tensor before = parameters[5].detach().clone();
  sgd.step();
  EXPECT_FALSE(equal(parameters[5], before));
  EXPECT_THROW(nn::LazyConv2d(8, 3)(ones({5, 5})), Error);
  EXPECT_THROW(nn::LazyConv2d(8, 3, {.groups = 2})(ones({3, 5, 5})), Error);
}

TEST(LazyModules, TakeShapesFromAState) {
  const nn::Sequential usual{nn::Conv2d(4, 6, 3, {.groups = 2}), nn::BatchNorm2d(6)};
  const nn::Sequential lazy{nn::LazyConv2d(6, 3, {.groups = 2}), nn::LazyBatchNorm2d()};
  const nn::Sequential copy_of_lazy = nn::clone(lazy);
  const Tensor x = randn({2, 4, 5, 5});
  usual(x);
  lazy->load_state_dict(usual->state_dict());
  EXPECT_EQ(lazy->repr(), usual->repr());
  const nn::Sequential copy = nn::clone(lazy);
  EXPECT_EQ(copy->repr(), usual->repr());
  for (const nn::Sequential& each : {lazy, copy, usual}) each->eval();
  EXPECT_TRUE(equal(lazy(x), usual(x)));
  EXPECT_TRUE(equal(copy(x), usual(x)));
  EXPECT_TRUE((*copy_of_lazy)[0]->has_uninitialized_params());
  copy_of_lazy(x);
}

}  // namespace
}  // namespace mica::testing
