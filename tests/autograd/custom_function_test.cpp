#include "autograd_testing.h"

namespace mica::testing {
namespace {

using autograd::AutogradContext;
using autograd::Function;

struct Square : Function<Square> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, double factor) {
    ctx->save_for_backward({x});
    ctx->saved_data["factor"] = factor;
    return x * x * factor;
  }
  static TensorVec backward(AutogradContext* ctx, TensorVec grads) {
    return {grads[0] * ctx->saved()[0] * (2 * ctx->saved_data["factor"].toDouble()), Tensor()};
  }
};

struct Reciprocal : Function<Reciprocal> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    Tensor y = reciprocal(x);
    ctx->save_for_backward({y});
    return y;
  }
  static TensorVec backward(AutogradContext* ctx, TensorVec grads) {
    Tensor y = ctx->saved()[0];
    return {neg(grads[0] * y * y)};
  }
};

struct DoubleInPlace : Function<DoubleInPlace> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    Tensor same = x;
    same.mul_(2);
    ctx->mark_dirty({x});
    return x;
  }
  static TensorVec backward(AutogradContext*, TensorVec grads) { return {grads[0] * 2}; }
};

struct TwoOutputs : Function<TwoOutputs> {
  static TensorVec forward(AutogradContext* ctx, const Tensor& x) {
    Tensor mask = x > 0;
    ctx->mark_non_differentiable({mask});
    return {x * 2, x * 3, mask};
  }
  static TensorVec backward(AutogradContext*, TensorVec grads) {
    EXPECT_EQ(grads.size(), 3u);
    EXPECT_TRUE(grads[0].defined() && grads[1].defined());
    return {grads[0] * 2 + grads[1] * 3};
  }
};

struct Identity : Function<Identity> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x; }
  static TensorVec backward(AutogradContext*, TensorVec grads) { return {grads[0] * 10}; }
};

TEST(CustomFunction, ForwardAndBackward) {
  Tensor a = leaf({1, 2});
  Tensor y = Square::apply(a, 3.0);
  EXPECT_EQ(list(y), (Values{3, 12}));
  y.sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{6, 12}));
  EXPECT_STARTS_WITH(error_of([&] { y.sum().backward(); }), "Trying to backward through the graph a second time");
  EXPECT_FALSE(Square::apply(values({1}), 1.0).requires_grad());
}

TEST(CustomFunction, SavedOutputKeepsNoCycle) {
  Tensor a = leaf({2});
  Tensor y = Reciprocal::apply(a);
  const Node* node = y.grad_fn();
  EXPECT_EQ(node->use_count(), 1u);
  Tensor g = autograd::grad({y.sum()}, {a}, {}, {}, true)[0];
  EXPECT_EQ(list(g), (Values{-0.25}));
  EXPECT_EQ(list(autograd::grad({g.sum()}, {a})[0]), (Values{0.25}));
}

TEST(CustomFunction, InPlace) {
  Tensor a = leaf({1, 2});
  Tensor b = a * 1;
  Tensor c = DoubleInPlace::apply(b);
  EXPECT_TRUE(c.is_same(b));
  EXPECT_EQ(b.version(), 2u);  // the operation inside, and the mark
  b.sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{2, 2}));
  EXPECT_STARTS_WITH(error_of([&] {
                       NoGradGuard inner;
                       EnableGradGuard grad;
                       DoubleInPlace::apply(a);
                     }),
                     "a leaf Variable that requires grad is being used in an in-place operation.");
}

TEST(CustomFunction, InPlaceOnAView) {
  Tensor a = leaf({1, 2});
  Tensor b = a * 1;
  DoubleInPlace::apply(b.select(0, 0));
  b.sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{2, 1}));
}

TEST(CustomFunction, SeveralOutputs) {
  Tensor a = leaf({1});
  TensorVec y = TwoOutputs::apply(a);
  EXPECT_FALSE(y[2].requires_grad());
  y[1].sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{3}));
}

TEST(CustomFunction, ReturnsItsInput) {
  Tensor a = leaf({1});
  Tensor b = a * 1;
  Tensor y = Identity::apply(b);
  EXPECT_FALSE(y.is_same(b));
  EXPECT_STARTS_WITH(
      error_of([&] { y.mul_(2); }),
      "Output 0 of CppFunction is a view and is being modified inplace. This view was created inside a custom "
      "Function");
  y.sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{10}));
}

TEST(SavedTensorHooks, PackAndUnpack) {
  Tensor a = leaf({3});
  int packed = 0, unpacked = 0;
  auto hooks = std::make_shared<SavedTensorHooks>();
  hooks->pack = [&](const Tensor& t) {
    ++packed;
    return std::make_shared<Tensor>(clone(t));
  };
  hooks->unpack = [&](const std::shared_ptr<void>& p) {
    ++unpacked;
    return *std::static_pointer_cast<Tensor>(p);
  };
  autograd::push_saved_tensor_hooks(hooks);
  Tensor y = a * a;
  Tensor z = reciprocal(y);
  autograd::pop_saved_tensor_hooks();
  EXPECT_EQ(packed, 3);
  Tensor g = autograd::grad({z.sum()}, {a}, {}, {}, true)[0];  // -2 / a^3
  EXPECT_EQ(unpacked, 3);
  EXPECT_DOUBLE_EQ(list(g)[0], -2.0 / 27);
  EXPECT_NEAR(list(autograd::grad({g.sum()}, {a})[0])[0], 6.0 / 81, 1e-15);
}

TEST(SavedTensorHooks, Disabled) {
  autograd::disable_saved_tensor_hooks("not here");
  EXPECT_EQ(error_of([] { autograd::push_saved_tensor_hooks(std::make_shared<SavedTensorHooks>()); }), "not here");
  EXPECT_EQ(autograd::disable_saved_tensor_hooks(std::nullopt), "not here");
}

}  // namespace
}  // namespace mica::testing
