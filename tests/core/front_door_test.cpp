// What a program in C++ writes first: values, indices, assignments, gradients, text. The results are Python's.
#include <gtest/gtest.h>

#include <sstream>

#include "mica/mica.h"

namespace mica {
namespace {

using indexing::None;
using indexing::Slice;

std::string text(const auto& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TEST(FrontDoor, MakesTensorsOfValues) {
  EXPECT_EQ(text(tensor(1.5)), "tensor(1.5000)");
  EXPECT_EQ(tensor(true).dtype(), DType::Bool);
  EXPECT_EQ(tensor(3).dim(), 0);
  EXPECT_EQ(text(tensor({{1, 2, 3}, {4, 5, 6}})), "tensor([[1, 2, 3],\n        [4, 5, 6]])");
  EXPECT_EQ(tensor({{true, false}}).dtype(), DType::Bool);
  EXPECT_EQ(tensor({{1.f}, {2.f}}, DType::Float64).dtype(), DType::Float64);
  EXPECT_TRUE(tensor({1.0, 2.0}, TensorOptions().requires_grad(true)).requires_grad());
}

TEST(FrontDoor, RefusesRowsOfDifferentLengths) { EXPECT_THROW(tensor({{1, 2}, {3}}), Error); }

TEST(FrontDoor, MakesRangesAndRandomNumbersWithoutNamingAGenerator) {
  EXPECT_EQ(text(arange(3)), "tensor([0, 1, 2])");
  EXPECT_EQ(arange(1, 3, DType::Float32).dtype(), DType::Float32);
  manual_seed(7);
  const Tensor first = randn({4}, DType::Float64);
  manual_seed(7);
  EXPECT_TRUE(equal(randn({4}, DType::Float64), first));
  EXPECT_TRUE(equal(randn({4}, Generator(7), DType::Float64), first));
  EXPECT_EQ(randint(0, 5, {2, 2}).dtype(), DType::Int64);
}

TEST(FrontDoor, WritesThroughAnIndexAndRebindsAVariable) {
  Tensor x = zeros({2, 3});
  x[0] = 1;
  x[1][2] = tensor(5.0);
  x.index({Slice(), 1}) = -1;
  EXPECT_EQ(text(x), "tensor([[ 1., -1.,  1.],\n        [ 0., -1.,  5.]])");
  const Tensor before = x;
  x = ones({1});
  EXPECT_EQ(before.numel(), 6);
  EXPECT_EQ(x.numel(), 1);
}

TEST(FrontDoor, AFailedAssignmentChangesNothing) {
  Tensor x = zeros({2, 3});
  EXPECT_THROW(x[0] = ones({2}), Error);
  EXPECT_TRUE(equal(x, zeros({2, 3})));
}

TEST(FrontDoor, HasPythonsOperators) {
  const Tensor x = arange(5);
  EXPECT_TRUE(equal(x % 3, tensor({0, 1, 2, 0, 1})));
  EXPECT_TRUE(equal((x & 1) | 4, tensor({4, 5, 4, 5, 4})));
  EXPECT_TRUE(equal(x ^ 1, tensor({1, 0, 3, 2, 5})));
  EXPECT_EQ(x.index({None, Slice(None, None, 2)}).sizes(), IntArrayRef({1, 3}));
}

TEST(FrontDoor, HooksSeeAndChangeGradients) {
  const Tensor x = ones({2}).requires_grad_();
  int seen = 0;
  HookHandle look = x.register_hook([&](const Tensor&) { ++seen; });
  HookHandle twice = x.register_hook([](const Tensor& grad) { return grad * 2; });
  (x * 3).sum().backward();
  EXPECT_TRUE(equal(x.grad(), full({2}, 6.0)));
  twice.remove();
  look.remove();
  x.set_grad({});
  (x * 3).sum().backward();
  EXPECT_TRUE(equal(x.grad(), full({2}, 3.0)));
  EXPECT_EQ(seen, 1);
}

TEST(FrontDoor, SharesMemoryOfTheProgram) {
  float values[6] = {1, 2, 3, 4, 5, 6};
  int freed = 0;
  {
    const Tensor x = from_blob(values, {2, 3}, [&](void* memory) { freed += memory == values; });
    x[1] = 0;
    const Tensor view = x.t();
    EXPECT_EQ(freed, 0);
  }
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(values[3], 0.f);
  EXPECT_EQ(values[2], 3.f);
  EXPECT_TRUE(equal(from_blob(values, {3}, IntArrayRef{1}), tensor({1.f, 2.f, 3.f})));
  EXPECT_TRUE(equal(from_blob(values + 2, {3}, IntArrayRef{-1}), tensor({3.f, 2.f, 1.f})));
  EXPECT_THROW(from_blob(values, {2, 3}, IntArrayRef{1}), Error);
  EXPECT_THROW(from_blob(nullptr, {2}), Error);
}

TEST(FrontDoor, PrintsWhatATensorIs) {
  const Tensor x = zeros({2, 3}, DType::Int16);
  EXPECT_EQ(text(x.dtype()), "int16");
  EXPECT_EQ(text(x.device()), "cpu");
  EXPECT_EQ(text(x.sizes()), "[2, 3]");
}

}  // namespace
}  // namespace mica
