// mica::func and mica::forward_ad: derivatives of functions, as functions.
#include "mica/func.h"

#include "autograd_testing.h"

namespace mica::testing {
namespace {

const auto cubes = [](const Tensor& x) { return (x * x * x).sum(); };

TEST(Func, Gradient) {
  const Tensor x = values({1, 2, 3});
  EXPECT_EQ(list(func::grad(cubes)(x)), (Values{3, 12, 27}));
  const auto [gradient, value] = func::grad_and_value(cubes)(x);
  EXPECT_EQ(list(value), (Values{36}));
  EXPECT_EQ(list(gradient), (Values{3, 12, 27}));
  EXPECT_FALSE(x.requires_grad());
  EXPECT_FALSE(gradient.requires_grad() || value.requires_grad());
}

TEST(Func, GradientOfSeveralArguments) {
  const auto f = [](const Tensor& a, const Tensor& b) { return (a * a * b).sum(); };
  const Tensor a = values({1, 2}), b = values({3, 4});
  EXPECT_EQ(list(func::grad(f, 1)(a, b)), (Values{1, 4}));
  EXPECT_EQ(list(func::grad(f, -2)(a, b)), (Values{6, 16}));
  const TensorVec both = func::grad(f, {0, 1})(a, b);
  EXPECT_EQ(list(both.at(0)), (Values{6, 16}));
  EXPECT_EQ(list(both.at(1)), (Values{1, 4}));
  const auto ignores = [](const Tensor& p, const Tensor&) { return p.sum(); };
  EXPECT_EQ(list(func::grad(ignores, 1)(a, b)), (Values{0, 0}));
}

TEST(Func, GradientsNest) {
  const Tensor x = values({2, 3});
  const auto slope = [](const Tensor& t) { return func::grad(cubes)(t).sum(); };
  EXPECT_EQ(list(func::grad(slope)(x)), (Values{12, 18}));
  const auto again = [&](const Tensor& t) { return func::grad(slope)(t).sum(); };
  EXPECT_EQ(list(func::grad(again)(x)), (Values{6, 6}));
  NoGradGuard no_grad;  // the functions record for themselves
  EXPECT_EQ(list(func::grad(slope)(x)), (Values{12, 18}));
}

TEST(Func, GradientsAreDifferentiableOutside) {
  const Tensor x = leaf({2, 3});
  func::grad(cubes)(x).sum().backward();
  EXPECT_EQ(list(x.grad()), (Values{12, 18}));
}

TEST(Func, VectorTimesJacobian) {
  const auto f = [](const Tensor& a, const Tensor& b) { return std::pair(a * b, a.sum()); };
  const Tensor a = values({1, 2}), b = values({3, 4});
  const auto [value, pull] = func::vjp(f, a, b);
  EXPECT_EQ(list(value.first), (Values{3, 8}));
  EXPECT_EQ(list(value.second), (Values{3}));
  const TensorVec pulled = pull(values({1, 10}), values({100}).reshape({}));
  EXPECT_EQ(list(pulled.at(0)), (Values{103, 140}));
  EXPECT_EQ(list(pulled.at(1)), (Values{1, 20}));
  EXPECT_EQ(list(pull(values({0, 0}), values({1}).reshape({})).at(0)), (Values{1, 1}));  // a second time
}

TEST(Func, JacobianTimesVector) {
  const auto f = [](const Tensor& a, const Tensor& b) { return a * a * b; };
  const Tensor a = values({1, 2}), b = values({3, 4}), ta = values({1, 0}), tb = values({1, 1});
  const auto [value, tangent] = func::jvp(f, {a, b}, {ta, tb});
  EXPECT_EQ(list(value), (Values{3, 16}));
  EXPECT_EQ(list(tangent), (Values{7, 4}));
  const auto [linear_value, push] = func::linearize(f, a, b);
  EXPECT_EQ(list(linear_value), (Values{3, 16}));
  EXPECT_EQ(list(push(ta, tb)), (Values{7, 4}));
  EXPECT_EQ(list(push(values({0, 1}), values({0, 0}))), (Values{0, 16}));
  const auto constant = [](const Tensor& x) { return ones_like(x); };
  EXPECT_EQ(list(func::jvp(constant, {a}, {ta}).second), (Values{0, 0}));
}

TEST(Func, ForwardsOverBackwards) {
  const Tensor x = values({2, 3}), t = values({1, 1});
  EXPECT_EQ(list(func::jvp(func::grad(cubes), {x}, {t}).second), (Values{12, 18}));
  const auto directional = [&](const Tensor& p) { return func::jvp(cubes, {p}, {t}).second; };
  EXPECT_EQ(list(func::grad(directional)(x)), (Values{12, 18}));
}

TEST(Func, Jacobians) {
  const auto f = [](const Tensor& x) { return stack({x.sum(), (x * x).sum(), x.prod()}); };
  const Tensor x = values({2, 3});
  for (const Tensor& j : {func::jacrev(f)(x), func::jacfwd(f)(x)}) {
    EXPECT_EQ(j.sizes(), IntArrayRef({3, 2}));
    EXPECT_EQ(list(j), (Values{1, 1, 4, 6, 3, 2}));
  }
  const auto two = [](const Tensor& a, const Tensor& b) { return std::pair(a * b, b.sum()); };
  const auto blocks = func::jacfwd(two, {0, 1})(x, values({5, 7}));
  EXPECT_EQ(list(blocks[0][0]), (Values{5, 0, 0, 7}));
  EXPECT_EQ(list(blocks[0][1]), (Values{2, 0, 0, 3}));
  EXPECT_EQ(list(blocks[1][0]), (Values{0, 0}));
  EXPECT_EQ(list(blocks[1][1]), (Values{1, 1}));
  const auto by_b = func::jacrev(two, 1)(x, values({5, 7}));
  EXPECT_EQ(list(by_b.first), (Values{2, 0, 0, 3}));
  EXPECT_EQ(func::jacrev(f)(empty({0}, DType::Float64)).sizes(), IntArrayRef({3, 0}));
}

TEST(Func, Hessian) {
  const Tensor h = func::hessian(cubes)(values({1, 2}));
  EXPECT_EQ(list(h), (Values{6, 0, 0, 12}));
  const auto product = [](const Tensor& x) { return x.prod(); };
  EXPECT_EQ(list(func::hessian(product)(values({2, 3, 5}))), (Values{0, 5, 3, 5, 0, 2, 3, 2, 0}));
}

TEST(Func, Examples) {
  const auto dot = [](const Tensor& a, const Tensor& b) { return (a * b).sum(); };
  const Tensor a = values({1, 2, 3, 4}).reshape({2, 2}), b = values({1, 10});
  EXPECT_EQ(list(func::vmap(dot, {0, std::nullopt})(a, b)), (Values{21, 43}));
  EXPECT_EQ(list(func::vmap(dot, {1, std::nullopt})(a, b)), (Values{31, 42}));
  EXPECT_EQ(list(func::vmap(dot)(a, a)), (Values{5, 25}));
  const auto twice = [](const Tensor& x) { return x * 2; };
  EXPECT_EQ(func::vmap(twice, 0, 1)(zeros({3, 5})).sizes(), IntArrayRef({5, 3}));
  EXPECT_EQ(func::vmap(twice)(zeros({0, 5})).sizes(), IntArrayRef({0, 5}));
  // A gradient for each example.
  EXPECT_EQ(list(func::vmap(func::grad(cubes))(a)), (Values{3, 12, 27, 48}));
  const Tensor weights = leaf({1, 1});
  func::vmap(dot, {0, std::nullopt})(a, weights).sum().backward();
  EXPECT_EQ(list(weights.grad()), (Values{4, 6}));
}

TEST(Func, WhatIsRefused) {
  const Tensor x = values({1, 2});
  const auto square = [](const Tensor& t) { return t * t; };
  EXPECT_STARTS_WITH(error_of([&] { func::grad(square)(x); }),
                     "Expected the function given to grad to return a scalar");
  EXPECT_STARTS_WITH(error_of([&] { func::grad(cubes, 1)(x); }), "Got argnum=1, but only 1 positional inputs");
  EXPECT_STARTS_WITH(error_of([&] { func::grad(cubes)(ones({2}, DType::Int64)); }),
                     "only Tensors of floating point dtype can require gradients");
  EXPECT_STARTS_WITH(error_of([&] { func::jvp(square, {x}, {values({1})}); }),
                     "jvp(f, primals, tangents): Expected tensor `tangent` to have the same shape as `primal`");
  EXPECT_STARTS_WITH(error_of([&] { func::vjp(square, x).second(values({1})); }), "Mismatch in shape: grad_output[0]");
  EXPECT_STARTS_WITH(error_of([&] { func::vmap(square, 2)(x); }), "vmap: Got in_dim=2 for an input");
  const auto sum = [](const Tensor& a, const Tensor& b) { return a + b; };
  EXPECT_STARTS_WITH(error_of([&] { func::vmap(sum)(x, values({1})); }),
                     "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes 2 and 1");
}

TEST(ForwardMode, DualTensors) {
  const Tensor x = values({1, 2}), t = values({1, 10});
  EXPECT_STARTS_WITH(error_of([&] { forward_ad::make_dual(x, t); }), "Trying to create a dual Tensor for forward AD");
  {
    const forward_ad::DualLevel level;
    const Tensor dual = forward_ad::make_dual(x, t);
    EXPECT_EQ(dual.data_ptr(), x.data_ptr());
    const auto [value, tangent] = forward_ad::unpack_dual(dual * dual);
    EXPECT_EQ(list(value), (Values{1, 4}));
    EXPECT_EQ(list(tangent), (Values{2, 40}));
    EXPECT_FALSE(value.requires_grad() || tangent.requires_grad());
    EXPECT_EQ(list(forward_ad::unpack_dual(dual).tangent), (Values{1, 10}));
    EXPECT_FALSE(forward_ad::unpack_dual(x * 2).tangent.defined());
    EXPECT_FALSE(forward_ad::unpack_dual(leaf({1}) * 2).tangent.defined());
    EXPECT_STARTS_WITH(error_of([] { const forward_ad::DualLevel inner; }), "Nested forward mode AD is not supported");
    EXPECT_STARTS_WITH(error_of([&] { forward_ad::make_dual(x, values({1})); }),
                       "Trying to set a forward gradient that has a different size");
  }
  EXPECT_FALSE(forward_ad::unpack_dual(leaf({1}) * 2).tangent.defined());
  const Tensor weight = leaf({3, 4});
  {
    const forward_ad::DualLevel level;  // backwards through a derivative forwards
    const Tensor dual = forward_ad::make_dual(x, t);
    forward_ad::unpack_dual(dual * dual * weight).tangent.sum().backward();
  }
  EXPECT_EQ(list(weight.grad()), (Values{2, 40}));
}

}  // namespace
}  // namespace mica::testing
