#include "mica/indexing.h"

#include <gtest/gtest.h>

#include "mica/ops.h"

namespace mica {
namespace {

using indexing::Ellipsis;
using indexing::None;
using indexing::Slice;

Tensor counted(IntArrayRef sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return arange(0, n, 1, DType::Float32).view(sizes);
}

std::vector<float> values_of(const Tensor& t) {
  const Tensor flat = t.contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

Tensor integers(std::initializer_list<int64_t> list) {
  const Tensor t = empty(IntArrayRef(static_cast<int64_t>(list.size())), TensorOptions(DType::Int64));
  std::copy(list.begin(), list.end(), t.data_ptr<int64_t>());
  return t;
}

TEST(Indexing, BasicEntriesMakeViews) {
  const Tensor x = counted({2, 3, 4});
  EXPECT_EQ(values_of(x.index({1, 2})), (std::vector<float>{20, 21, 22, 23}));
  EXPECT_EQ(x.index({None, Ellipsis, 0}).sizes(), IntArrayRef({1, 2, 3}));
  EXPECT_EQ(x.index({"...", Slice(1, 3)}).sizes(), IntArrayRef({2, 3, 2}));
  const Tensor back = x.index({0, Slice(None, None, -1), -1});
  EXPECT_EQ(values_of(back), (std::vector<float>{11, 7, 3}));
  EXPECT_EQ(back.storage(), x.storage());
  EXPECT_EQ(values_of(x[1][0]), (std::vector<float>{12, 13, 14, 15}));
}

TEST(Indexing, TensorsGather) {
  const Tensor x = counted({2, 3, 4});
  EXPECT_EQ(values_of(x.index({1, integers({2, 0}), 0})), (std::vector<float>{20, 12}));
  EXPECT_EQ(x.index({integers({0, 1}), Slice(), integers({0, 1})}).sizes(), IntArrayRef({2, 3}));
  EXPECT_EQ(x.index({x > 20}).sizes(), IntArrayRef({3}));
  EXPECT_EQ(x.index({true}).sizes(), IntArrayRef({1, 2, 3, 4}));
  EXPECT_EQ(x[integers({1})].sizes(), IntArrayRef({1, 3, 4}));
}

TEST(Indexing, AssignmentBroadcasts) {
  Tensor x = counted({2, 3});
  x.index_put_({Slice(), 1}, 9);
  EXPECT_EQ(values_of(x), (std::vector<float>{0, 9, 2, 3, 9, 5}));
  x.index_put_({x > 4}, full({}, -1));
  EXPECT_EQ(values_of(x), (std::vector<float>{0, -1, 2, 3, -1, -1}));
  x.index_put_({integers({1, 0}), 0}, counted({2}));
  EXPECT_EQ(values_of(x), (std::vector<float>{1, -1, 2, 0, -1, -1}));
}

TEST(Indexing, WrongIndicesAreNamed) {
  const Tensor x = counted({2, 3});
  try {
    x.index({0, 3});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Index);
    EXPECT_STREQ(e.what(), "index 3 is out of bounds for dimension 1 with size 3. Indices run from -3 to 2.");
  }
  EXPECT_THROW(x.index({0, 0, 0}), Error);
  EXPECT_THROW(x.index({"..", 0}), Error);
  EXPECT_THROW(x.index({integers({int64_t{1} << 62})}), Error);
}

TEST(Indexing, GradientsFlowThroughViewsAndTensors) {
  const Tensor x = counted({2, 3}).requires_grad_();
  const Tensor y = x.index({Slice(None, None, -1), integers({0, 0, 2})});
  y.sum().backward();
  EXPECT_EQ(values_of(x.grad()), (std::vector<float>{2, 0, 1, 2, 0, 1}));
}

}  // namespace
}  // namespace mica
