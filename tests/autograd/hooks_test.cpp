#include "autograd_testing.h"

namespace mica::testing {
namespace {

TEST(Hooks, ReplaceGradientsAndAreRemoved) {
  Tensor a = leaf({1});
  Tensor y = a * 2;
  HookHandle handle = autograd::register_hook(y, [](const Tensor& g) { return g * 10; });
  Tensor z = (y * 3).sum();
  z.backward({}, true);
  EXPECT_EQ(list(a.grad()), (Values{60}));
  handle.remove();
  a.set_grad({});
  z.backward();
  EXPECT_EQ(list(a.grad()), (Values{6}));
}

TEST(Hooks, OnLeaves) {
  Tensor a = leaf({1});
  int seen = 0;
  autograd::register_hook(a, [&](const Tensor& g) {
    ++seen;
    return g * 7;
  });
  EXPECT_EQ(list(autograd::grad({(a * 2).sum()}, {a})[0]), (Values{14}));
  (a * 2 + a).sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{21}));
  EXPECT_EQ(seen, 2);
}

// torch captures before the hooks when the node runs anyway, and after them when it does not.
TEST(Hooks, CapturedGradients) {
  Tensor a = leaf({1});
  Tensor y = a * 2;
  autograd::register_hook(y, [](const Tensor& g) { return g * 10; });
  Tensor z = (y * 3).sum();
  EXPECT_EQ(list(autograd::grad({z}, {y}, {}, true)[0]), (Values{30}));
  TensorVec both = autograd::grad({z}, {y, a}, {}, true);
  EXPECT_EQ(list(both[0]), (Values{3}));
  EXPECT_EQ(list(both[1]), (Values{60}));
}

TEST(Hooks, Checked) {
  EXPECT_STARTS_WITH(error_of([] { autograd::register_hook(values({1}), [](const Tensor& g) { return g; }); }),
                     "cannot register a hook on a tensor that doesn't require gradient");
  Tensor a = leaf({1, 2});
  Tensor y = a * 1;
  autograd::register_hook(
      y,
      [](const Tensor&) {
        return values({1, 2, 3});
      },
      "<lambda>");
  EXPECT_STARTS_WITH(error_of([&] { y.sum().backward(); }), "hook '<lambda>' has changed the size of value");
  Tensor z = a * 1;
  autograd::register_hook(
      z, [](const Tensor& g) { return g.to(DType::Float32); }, "<lambda>");
  EXPECT_STARTS_WITH(error_of([&] { z.sum().backward(); }),
                     "hook '<lambda>' has changed the type of value (was torch.DoubleTensor got torch.FloatTensor)");
}

TEST(Hooks, RetainGrad) {
  Tensor a = leaf({1});
  Tensor y = a * 2;
  y.retain_grad();
  autograd::register_hook(y, [](const Tensor& g) { return g * 10; });
  EXPECT_TRUE(y.retains_grad());
  Tensor z = (y * 3).sum();
  z.backward({}, true);
  EXPECT_EQ(list(y.grad()), (Values{30}));
  z.backward({}, true);
  EXPECT_EQ(list(y.grad()), (Values{60}));
  y = {};  // the graph outlives the tensor that wanted its gradient
  z.backward();
  EXPECT_EQ(list(a.grad()), (Values{180}));
  EXPECT_STARTS_WITH(error_of([] { values({1}).retain_grad(); }),
                     "can't retain_grad on Tensor that has requires_grad=False");
}

TEST(Hooks, RetainGradFollowsInPlaceChanges) {
  Tensor a = leaf({1});
  Tensor y = a * 2;
  y.retain_grad();
  y.mul_(5);
  y.sum().backward();
  EXPECT_EQ(list(y.grad()), (Values{1}));
  EXPECT_EQ(list(a.grad()), (Values{10}));
}

TEST(Hooks, OnNodes) {
  Tensor a = leaf({1});
  Tensor y = a * 2;
  autograd::register_prehook(*y.grad_fn(), [](TensorVec& grads) { grads[0] = grads[0] * 5; });
  Values in, out;
  autograd::register_posthook(*y.grad_fn(), [&](TensorVec& grad_inputs, const TensorVec& grad_outputs) {
    in = list(grad_inputs[0]);
    out = list(grad_outputs[0]);
    grad_inputs[0] = grad_inputs[0] + 1;
  });
  (y * 3).sum().backward();
  EXPECT_EQ(out, (Values{15}));
  EXPECT_EQ(in, (Values{30}));
  EXPECT_EQ(list(a.grad()), (Values{31}));
}

TEST(Hooks, PostAccumulate) {
  Tensor a = leaf({1});
  Values seen;
  autograd::register_post_accumulate_grad_hook(a, [&](const Tensor& p) {
    seen = list(p.grad());
    p.set_grad({});
  });
  autograd::grad({(a * 2).sum()}, {a});
  EXPECT_TRUE(seen.empty());
  (a * 2).sum().backward();
  EXPECT_EQ(seen, (Values{2}));
  EXPECT_FALSE(a.grad().defined());
  EXPECT_EQ(error_of([&] { autograd::register_post_accumulate_grad_hook(a * 2, [](const Tensor&) {}); }),
            "post accumulate grad hooks cannot be registered on non-leaf tensors");
}

}  // namespace
}  // namespace mica::testing
