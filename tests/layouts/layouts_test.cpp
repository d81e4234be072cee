// Sparse, named and quantized tensors from C++.
#include <gtest/gtest.h>
#include <mica/mica.h>

#include "mica/layers.h"
#include "mica/names.h"

namespace {

using namespace mica;

TEST(Sparse, CooThroughTheMachine) {
  const Tensor i = tensor({{0, 1, 1}, {2, 0, 2}}), v = tensor({3.0, 4.0, 5.0});
  v.requires_grad_();
  const Tensor s = _sparse_coo_tensor_unsafe(i, v, {2, 3});
  EXPECT_EQ(s.layout(), Layout::SparseCoo);
  EXPECT_EQ(s._nnz(), 3);
  EXPECT_TRUE(equal(s.to_dense(), tensor({{0.0, 0.0, 3.0}, {4.0, 0.0, 5.0}})));
  const Tensor x = ones({3, 2}, v.options());
  mm(s, x).sum().backward();
  EXPECT_TRUE(equal(v.grad(), tensor({2.0, 2.0, 2.0})));
  EXPECT_TRUE(equal((s + s).to_dense(), s.to_dense() * 2));
  EXPECT_TRUE(equal(s.to_dense().to_sparse_csr().to_dense(), s.to_dense()));
}

TEST(Sparse, RefusesWhatItDoesNotHave) {
  const Tensor s = ones({2, 2}).to_sparse();
  EXPECT_THROW(s.cos(), Error);
  EXPECT_THROW(s.data_ptr(), Error);
  EXPECT_THROW(_validate_sparse_coo_tensor_args(tensor({{7}}), tensor({1.0}), {3}), Error);
}

TEST(Named, NamesFollowOperations) {
  const Tensor x = ones({2, 3}).rename({"N", "C"});
  EXPECT_EQ(x.sum(1).names(), DimNames({"N"}));
  EXPECT_EQ((x + ones({3}).rename({"C"})).names(), DimNames({"N", "C"}));
  EXPECT_THROW(x + ones({3}).rename({"H"}), Error);
  EXPECT_EQ(x.align_to({"C", "N"}).sizes(), IntArrayRef({3, 2}));
  EXPECT_FALSE(x.rename({}).has_names());
}

TEST(Quantized, PerTensor) {
  const Tensor x = tensor({-1.0, 0.0, 0.55, 1.0}).to(DType::Float32);
  const Tensor q = quantize_per_tensor(x, 0.01, 128, DType::UInt8);
  EXPECT_TRUE(q.is_quantized());
  EXPECT_EQ(q.q_zero_point(), 128);
  EXPECT_TRUE(equal(q.int_repr(), tensor({28, 128, 183, 228}).to(DType::UInt8)));
  EXPECT_TRUE(allclose(q.dequantize(), x, 0, 1e-6));
  EXPECT_TRUE(slice(q, 0, 1, 3).is_quantized());
}

TEST(RareFacts, CostPlainTensorsNothing) { EXPECT_EQ(ones({2}).impl()->rare, nullptr); }

}  // namespace
