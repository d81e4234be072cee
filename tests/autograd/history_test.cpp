#include "autograd_testing.h"

namespace mica::testing {
namespace {

TEST(Leaves, Gradients) {
  Tensor a = leaf({1, 2});
  EXPECT_TRUE(a.is_leaf());
  EXPECT_EQ(error_of([&] {
              a.set_grad(values({1, 2, 3}));
            }),
            "attempting to assign a gradient of size '[3]' to a tensor of size '[2]'. Please ensure that the gradient "
            "and the "
            "tensor are the same size");
  EXPECT_EQ(error_of([&] { a.set_grad(a); }), "can't assign Variable as its own grad");
  EXPECT_STARTS_WITH(error_of([&] {
                       a.set_grad(values({1, 2}).to(DType::Float32));
                     }),
                     "attempting to assign a gradient");
  EXPECT_STARTS_WITH(error_of([] { zeros({2}, DType::Int64).requires_grad_(); }),
                     "only Tensors of floating point dtype can require gradients");
  EXPECT_STARTS_WITH(error_of([&] { (a * 2).requires_grad_(false); }),
                     "you can only change requires_grad flags of leaf variables.");
}

// A gradient that somebody else can see is copied, so that later accumulation does not change it.
TEST(Leaves, OwnTheirGradients) {
  Tensor x = ones({2, 3}, DType::Float64).requires_grad_();
  Tensor g = ones({6}, DType::Float64);
  x.view({6}).backward(g);
  EXPECT_NE(x.grad().data_ptr(), g.data_ptr());
  Tensor p = ones({2, 3}, DType::Float64).requires_grad_(), q = ones({2, 3}, DType::Float64).requires_grad_();
  (p.view({6}) + q.view({6})).backward(g);
  EXPECT_NE(p.grad().data_ptr(), q.grad().data_ptr());
  EXPECT_FALSE(p.grad().is_view());
}

TEST(Leaves, GradientsHaveTheirLayout) {
  Tensor x = ones({3, 4}, DType::Float64).t().detach().requires_grad_();
  (x * 2).sum().backward();
  EXPECT_EQ(x.grad().strides(), x.strides());
  Tensor y = ones({4, 3}, DType::Float64).requires_grad_();
  y.t().backward(ones({3, 4}, DType::Float64));
  EXPECT_EQ(y.grad().strides(), y.strides());
}

TEST(InPlace, Tracked) {
  Tensor a = leaf({1, 2});
  Tensor b = a * 3;
  b.mul_(a);
  EXPECT_EQ(list(b), (Values{3, 12}));
  b.sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{6, 12}));
}

TEST(InPlace, MakesALeafAResult) {
  Tensor w = leaf({2, 3}), z = zeros({2}, DType::Float64);
  z.add_(w);
  EXPECT_FALSE(z.is_leaf());
  z.sum().backward();
  EXPECT_EQ(list(w.grad()), (Values{1, 1}));
}

TEST(InPlace, Errors) {
  Tensor a = leaf({1, 2});
  EXPECT_STARTS_WITH(error_of([&] { a.add_(1); }),
                     "a leaf Variable that requires grad is being used in an in-place operation.");
  EXPECT_EQ(error_of([&] { a.select(0, 0).add_(1); }),
            "a view of a leaf Variable that requires grad is being used in an in-place operation. Change it under "
            "torch.no_grad(), as an optimizer does.");
  Tensor b = a * 1;
  Tensor v;
  {
    NoGradGuard no_grad;
    v = b.select(0, 0);
  }
  EXPECT_TRUE(v.requires_grad());
  EXPECT_STARTS_WITH(error_of([&] { v.mul_(2); }),
                     "A view was created in no_grad mode and is being modified inplace with grad mode enabled.");
  std::vector<Tensor> parts = b.unbind(0);
  EXPECT_STARTS_WITH(
      error_of([&] { parts[0].mul_(2); }),
      "Output 0 of Unbind is a view and is being modified inplace. This view is the output of a function that "
      "returns multiple views.");
  b.mul_(2);
  EXPECT_STARTS_WITH(
      error_of([&] { parts[1].grad_fn(); }),
      "Output 1 of Unbind is a view and its base or another view of its base has been modified inplace.");
}

TEST(InPlace, SavedTensorsAreGuarded) {
  Tensor a = leaf({1, 2});
  Tensor b = a * 1;
  Tensor c = b * b;
  b.add_(1);
  const std::string text = error_of([&] { c.sum().backward(); });
  EXPECT_STARTS_WITH(
      text,
      "one of the variables needed for gradient computation has been modified by an inplace operation: "
      "[torch.DoubleTensor [2]], which is output 0 of Add, is at version 1; expected version 0 instead. Hint: "
      "enable anomaly detection to find the operation that failed to compute its gradient, with "
      "torch.autograd.set_detect_anomaly(True, check_nan=False).");
}

TEST(Views, ChangedThroughAView) {
  Tensor a = leaf({1, 2, 3});
  Tensor b = a * 2;
  Tensor v = b.select(0, 1);
  v.mul_(10);
  EXPECT_STREQ(b.grad_fn()->name(), "CopySlices");
  EXPECT_EQ(list(b), (Values{2, 40, 6}));
  b.sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{2, 20, 2}));
}

TEST(Views, SeeTheChangeOfTheirBase) {
  Tensor a = leaf({1, 2, 3});
  Tensor b = a * 2;
  Tensor v = b.select(0, 1);
  b.mul_(a);
  EXPECT_EQ(v.item<double>(), 8);
  EXPECT_EQ(v.grad_fn()->name(), std::string("AsStridedBackward0"));
  v.backward();
  EXPECT_EQ(list(a.grad()), (Values{0, 8, 0}));
}

TEST(Views, OfAPlainTensorJoinTheGraphLater) {
  Tensor w = leaf({2, 3}), z = ones({2, 2}, DType::Float64);
  Tensor first = z.select(0, 0), second = z.select(0, 1);
  first.mul_(w);
  EXPECT_TRUE(z.requires_grad());
  EXPECT_TRUE(second.requires_grad());
  EXPECT_FALSE(second.is_leaf());
  second.mul_(5);
  (z * z).sum().backward();
  EXPECT_EQ(list(w.grad()), (Values{4, 6}));
}

TEST(Views, ChainOfViewsAndChanges) {
  Tensor a = ones({2, 3, 2}, DType::Float64).requires_grad_();
  Tensor b = a * 1;
  Tensor v = b.transpose(0, 2).select(0, 1);  // [3, 2]
  EXPECT_TRUE(v.base().is_same(b));
  v.mul_(2);
  v.select(0, 0).mul_(3);
  b.sum().backward();
  Values expected(12, 1);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) expected[(i * 3 + j) * 2 + 1] = j == 0 ? 6 : 2;
  EXPECT_EQ(list(a.grad()), expected);
}

TEST(Views, SecondDerivativeThroughAChangedView) {
  Tensor a = leaf({2, 3});
  Tensor b = a * 1;
  b.select(0, 0).mul_(a.select(0, 1));
  Tensor y = (b * b).sum();  // (a0 a1)^2 + a1^2
  Tensor g = autograd::grad({y}, {a}, {}, {}, true)[0];
  EXPECT_EQ(list(g), (Values{2 * 2 * 9, 2 * 4 * 3 + 6}));
  Tensor h = autograd::grad({g.sum()}, {a})[0];
  EXPECT_EQ(list(h), (Values{2 * 9 + 4 * 2 * 3, 4 * 2 * 3 + 2 * 4 + 2}));
}

TEST(Views, SecondDerivativeOfAnOutputSavedInAView) {
  Tensor a = leaf({2, 4});
  Tensor b = a * 1;
  b.select(0, 0).reciprocal_();
  Tensor g = autograd::grad({b.sum()}, {a}, {}, {}, true)[0];
  EXPECT_EQ(list(g), (Values{-0.25, 1}));
  EXPECT_EQ(list(autograd::grad({g.sum()}, {a})[0]), (Values{0.25, 0}));
}

// A view of another dtype cannot be made again by as_strided: it is replayed, and so are views of it.
TEST(Views, OfAnotherDtype) {
  Tensor c = full({2}, complex128(1, 2), DType::Complex128).requires_grad_();
  Tensor d = c * 1;
  Tensor real_parts = view_as_real(d).select(1, 0);
  real_parts.mul_(3);
  EXPECT_TRUE(real_parts.base().is_same(d));
  view_as_real(d).sum().backward();
  EXPECT_EQ(list(view_as_real(c.grad())), (Values{3, 1, 3, 1}));

  Tensor e = c * 1;
  Tensor imaginary = view_as_real(e).select(1, 1);
  e.mul_(2);
  autograd::backward({imaginary}, {values({1, 10})});
  EXPECT_EQ(list(view_as_real(c.grad())), (Values{3, 3, 3, 21}));
}

TEST(Modes, NoGradAndInference) {
  Tensor a = leaf({1});
  {
    NoGradGuard no_grad;
    EXPECT_FALSE((a * 2).requires_grad());
    EnableGradGuard grad;
    EXPECT_TRUE((a * 2).requires_grad());
  }
  Tensor made;
  {
    InferenceModeGuard inference;
    made = zeros({1}, DType::Float64);
    EXPECT_FALSE((a * 2).requires_grad());
    made.add_(1);
  }
  EXPECT_TRUE(made.is_inference());
  EXPECT_STARTS_WITH(error_of([&] { made.add_(1); }),
                     "Inplace update to inference tensor outside InferenceMode is not allowed.");
  EXPECT_STARTS_WITH(error_of([&] { a* made; }), "Inference tensors cannot be saved for backward.");
}

TEST(Data, CountsItsOwnVersions) {
  Tensor a = leaf({1});
  Tensor y = a * a;
  a.tensor_data().add_(1);
  EXPECT_EQ(a.version(), 0u);
  y.sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{4}));
}

TEST(Data, IsAssigned) {
  Tensor a = leaf({1, 2});
  autograd::set_data(a, values({4, 5, 6}));
  EXPECT_TRUE(a.requires_grad());
  (a * a).sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{8, 10, 12}));
}

}  // namespace
}  // namespace mica::testing
