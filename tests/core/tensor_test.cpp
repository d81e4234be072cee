// The C++ API as a user meets it: factories, arithmetic, views, promotion, errors, gradients.
#include <gtest/gtest.h>
#include <mica/mica.h>

namespace {

using namespace mica;

std::vector<double> values_of(const Tensor& t) {
  const Tensor flat = t.detach().to(DType::Float64).contiguous().view({-1});
  const auto* p = flat.data_ptr<double>();
  return {p, p + flat.numel()};
}
using V = std::vector<double>;

TEST(Tensor, FactoriesAndGeometry) {
  const Tensor x = arange(0, 12, 1).reshape({3, 4});
  EXPECT_EQ(x.dtype(), DType::Int64);
  EXPECT_EQ(x.strides(), IntArrayRef({4, 1}));
  EXPECT_EQ(x.size(-1), 4);
  EXPECT_TRUE(x.is_contiguous());
  const Tensor t = x.t();
  EXPECT_EQ(t.strides(), IntArrayRef({1, 4}));
  EXPECT_FALSE(t.is_contiguous());
  EXPECT_EQ(t.data_ptr(), x.data_ptr());
  EXPECT_EQ(x[2][1].item<int64_t>(), 9);
}

TEST(Tensor, ArithmeticBroadcastsAndPromotes) {
  const Tensor a = ones({3, 1}), b = arange(0, 4, 1);
  EXPECT_EQ(values_of(a + b), (V{0 + 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}));
  EXPECT_EQ((b + 1.5).dtype(), DType::Float32);
  EXPECT_EQ((b + 1).dtype(), DType::Int64);
  EXPECT_EQ((b / 2).dtype(), DType::Float32);
  EXPECT_EQ((b > 1).dtype(), DType::Bool);
  EXPECT_EQ(values_of(1 - b), (V{1, 0, -1, -2}));
  EXPECT_THROW(ones({3}) + ones({4}), Error);
}

TEST(Tensor, NegativeStepsAreViews) {
  const Tensor x = arange(0, 5, 1);
  const Tensor r = slice(x, 0, std::nullopt, std::nullopt, -1);
  EXPECT_EQ(r.strides()[0], -1);
  EXPECT_EQ(values_of(r), (V{4, 3, 2, 1, 0}));
  EXPECT_EQ(values_of(r + r), (V{8, 6, 4, 2, 0}));
  r.fill_(7);
  EXPECT_EQ(values_of(x), (V{7, 7, 7, 7, 7}));
}

TEST(Tensor, InPlaceKeepsMemoryAndRefusesWhatDoesNotFit) {
  Tensor x = ones({2, 3});
  const void* p = x.data_ptr();
  x += 1;
  x.mul_(3);
  EXPECT_EQ(x.data_ptr(), p);
  EXPECT_EQ(values_of(x), V(6, 6.0));
  Tensor i = arange(0, 3, 1);
  EXPECT_THROW(i.add_(0.5), Error);
  EXPECT_EQ(values_of(i), (V{0, 1, 2}));
  EXPECT_THROW(ones({1}).expand({3}).add_(1), Error);
}

TEST(Tensor, OverlappingOutputsAreRefused) {
  const Tensor x = arange(0, 5, 1).to(DType::Float32);
  EXPECT_THROW(slice(x, 0, 1, 5).copy_(slice(x, 0, 0, 4)), Error);
  EXPECT_EQ(values_of(x), (V{0, 1, 2, 3, 4}));
}

TEST(Tensor, MetaComputesShapesOnly) {
  const Tensor x = empty({1000000, 1000000}, TensorOptions(kMeta));
  const Tensor y = x.matmul(x).sum(0);
  EXPECT_EQ(y.sizes(), IntArrayRef({1000000}));
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.data_ptr(), nullptr);
}

TEST(Tensor, ConjugationIsLazy) {
  const Tensor z = complex(arange(0, 2, 1).to(DType::Float32), ones({2}));
  const Tensor c = z.conj();
  EXPECT_TRUE(c.is_conj());
  EXPECT_EQ(c.data_ptr(), z.data_ptr());
  EXPECT_EQ(values_of(imag(c.resolve_conj())), (V{-1, -1}));
  EXPECT_EQ(values_of(imag(c + 0)), (V{-1, -1}));
  EXPECT_EQ(values_of(imag(c)), (V{-1, -1}));
}

TEST(Tensor, GradientsFlow) {
  const Tensor w = ones({3}).requires_grad_();
  const Tensor y = (w * w * 2.0 + 1).sum();
  y.backward();
  EXPECT_EQ(values_of(w.grad()), (V{4, 4, 4}));
  EXPECT_THROW(y.backward(), Error);
}

TEST(Tensor, ErrorsNameTheOperationAndTheShapes) {
  try {
    ones({2, 3}).matmul(ones({2, 3}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("(2x3 and 2x3)"), std::string::npos);
  }
  EXPECT_THROW(ones({2}).select(0, 5), Error);
  EXPECT_THROW(empty({int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW(ones({4}).as_strided({3}, {2}, 0), Error);
}

}  // namespace
