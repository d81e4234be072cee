// Storages whose memory others use: it stays where it is, or outlives a move.
#include "mica/core/storage.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/exported_storage.h"
#include "mica/mapped_memory.h"
#include "mica/mica.h"

namespace mica {
namespace {

Storage filled(size_t nbytes, int value) {
  Storage storage = StorageImpl::allocate(nbytes, kCPU);
  if (nbytes > 0) std::memset(storage->data(), value, nbytes);
  return storage;
}

TEST(Storage, MovesWhenItIsResized) {
  const Storage storage = filled(1000, 7);
  storage->resize(2000);
  EXPECT_TRUE(storage->moved());
  EXPECT_EQ(static_cast<char*>(storage->data())[999], 7);
}

class Exported : public testing::TestWithParam<size_t> {};  // small ones lie within the header's block
INSTANTIATE_TEST_SUITE_P(Storage, Exported, testing::Values(0, 16, 100'000));

TEST_P(Exported, CannotBeResized) {
  const Storage storage = filled(GetParam(), 7);
  const void* data = storage->data();
  keep_in_place(*storage);
  EXPECT_FALSE(storage->resizable());
  EXPECT_FALSE(storage->moved());
  EXPECT_EQ(storage->data(), data);
  EXPECT_THROW(storage->resize(10), Error);
}

TEST_P(Exported, OutlivesAMoveToSharedMemory) {
  Storage storage = filled(GetParam(), 7);
  keep_in_place(*storage);
  const auto* before = static_cast<const char*>(storage->data());
  move_to_shared_memory(*storage);
  EXPECT_TRUE(in_shared_memory(*storage));
  std::vector<Storage> others;
  for (int i = 0; i < 20; ++i) others.push_back(filled(GetParam(), 1));
  for (size_t i = 0; i < GetParam(); i += 97) {
    EXPECT_EQ(before[i], 7);
    EXPECT_EQ(static_cast<char*>(storage->data())[i], 7);
  }
}

TEST(Storage, MovesAwayFromForeignMemoryOnce) {
  static int released = 0;
  std::vector<char> memory(100, 3);
  {
    Storage storage = StorageImpl::wrap(
        memory.data(), memory.size(), kCPU, [](void*, void*, size_t) { ++released; }, nullptr);
    move_to_shared_memory(*storage);
    EXPECT_EQ(released, 0);  // kept, because somebody may have its address
    EXPECT_EQ(static_cast<char*>(storage->data())[99], 3);
  }
  EXPECT_EQ(released, 1);
}

TEST(Storage, PartsKeepTheWhole) {
  Storage whole = filled(1000, 5);
  const Storage part = part_of(whole, 100, 50);
  EXPECT_THROW(whole->resize(10'000), Error);
  whole = {};
  EXPECT_EQ(part->nbytes(), 50u);
  EXPECT_EQ(static_cast<char*>(part->data())[49], 5);
}

}  // namespace
}  // namespace mica
