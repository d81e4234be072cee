// Looking into tensors and watching a program, from C++.
#include "mica/inspect.h"

#include <gtest/gtest.h>

#include "mica/mica.h"
#include "mica/observe.h"

namespace mica {
namespace {

TEST(Explain, Geometry) {
  const Tensor x = arange(12, DType::Float32).reshape({3, 4}).clone();
  const Tensor y = x.t().narrow(0, 1, 3);
  const inspect::Anatomy a = inspect::explain(y);
  EXPECT_EQ(a.storage_bytes, 48);
  EXPECT_EQ(a.reached_bytes, 36);
  EXPECT_EQ(a.hole_bytes, 8);
  EXPECT_EQ(a.storage_users, 2u);
  ASSERT_EQ(a.formats.size(), 1u);
  EXPECT_FALSE(a.formats[0].holds);
  EXPECT_EQ(a.formats[0].dimension, 1);
  ASSERT_EQ(a.steps.size(), 2u);
  EXPECT_EQ(a.steps[0].operation, "[:, 1:]");
  EXPECT_EQ(a.steps[1].operation, "t()");
  const std::string text = inspect::to_text(a);
  EXPECT_NE(text.find("dimension 1 steps by 4 instead of 1"), std::string::npos);
}

TEST(Explain, ReachCountsPlacesOnce) {
  EXPECT_EQ(inspect::reach({1000, 3}, {0, 1}, 0).distinct, 3);
  EXPECT_EQ(inspect::reach({7, 4}, {1, 1}, 0).distinct, 10);
  EXPECT_EQ(inspect::reach({3, 2}, {-4, 2}, 8).lowest, 0);
  EXPECT_EQ(inspect::reach({0, 2}, {2, 1}, 5).distinct, 0);
}

TEST(Explain, PartsOfOtherLayouts) {
  const inspect::Anatomy sparse = inspect::explain(eye(4).to_sparse());
  ASSERT_TRUE(sparse.sparse.has_value());
  ASSERT_EQ(sparse.parts.size(), 2u);
  EXPECT_EQ(sparse.parts[0].bytes, 64);
  EXPECT_EQ(sparse.part_bytes, 80);
  EXPECT_EQ(sparse.dense_bytes, 64);
  EXPECT_EQ(sparse.sparse->break_even, 3);
  EXPECT_NE(inspect::to_text(sparse).find("sparse_coo"), std::string::npos);
  const Tensor values = randn({5, 2}), offsets = tensor({0, 3, 5});
  const inspect::Anatomy nested = inspect::explain_nested(values, offsets, Tensor());
  ASSERT_TRUE(nested.nested.has_value());
  EXPECT_EQ(nested.nested->lengths[1], 2);
  EXPECT_EQ(nested.dense_bytes, 2 * 3 * 2 * 4);
  EXPECT_NE(inspect::to_text(nested).find("(2, j, 2) nested"), std::string::npos);
  EXPECT_THROW(inspect::explain_nested(values, offsets, Tensor(), 3), Error);
}

TEST(Reshape, SaysWhetherItMayCopy) {
  const Tensor x = arange(12, DType::Float32).reshape({3, 4});
  EXPECT_EQ(x.reshape({12}, false).data_ptr(), x.data_ptr());
  EXPECT_NE(x.reshape({12}, true).data_ptr(), x.data_ptr());
  EXPECT_EQ(x.t().reshape({12}, std::nullopt).dim(), 1);
  try {
    x.t().reshape({12}, false);
    FAIL() << "a transpose was reshaped without a copy";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Value);
    EXPECT_NE(std::string(e.what()).find("dimension 0 steps by 1"), std::string::npos);
  }
}

TEST(Copies, HiddenOnesAreRecorded) {
  const Tensor x = randn({30, 40});
  inspect::start_copies();
  x.t().reshape({-1});
  x.t().contiguous();
  x.add(x.to(DType::Float64));
  const std::vector<inspect::Copy> copies = inspect::stop_copies();
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].operation, "reshape");
  EXPECT_EQ(copies[0].reason, inspect::CopyReason::Reshape);
  EXPECT_EQ(copies[0].bytes, 4800);
  EXPECT_EQ(copies[1].reason, inspect::CopyReason::Cast);
  EXPECT_THROW(inspect::stop_copies(), Error);
}

TEST(Memory, BlocksFromBirthToDeath) {
  inspect::start_memory();
  Tensor kept = zeros({1000});
  { const Tensor gone = zeros({2000}); }
  const inspect::MemoryRecord record = inspect::stop_memory();
  ASSERT_EQ(record.blocks.size(), 2u);
  EXPECT_EQ(record.blocks[0].bytes, 4000);
  EXPECT_EQ(record.blocks[0].died, -1);
  EXPECT_EQ(record.blocks[1].bytes, 8000);
  EXPECT_GT(record.blocks[1].died, record.blocks[1].born);
  EXPECT_EQ(record.blocks[1].kind, inspect::MemoryKind::Temporary);
  EXPECT_FALSE(inspect::memory_recording());
}

TEST(Memory, LargeBlocksAreAlwaysKnown) {
  const Tensor big = empty({16 << 20}, TensorOptions(DType::UInt8));
  EXPECT_NE(inspect::who_holds_memory(kCPU, 1).find("16.00 MiB in 1 tensor"), std::string::npos);
}

}  // namespace
}  // namespace mica
