#include "core/memory_limits.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace mica::detail {
namespace {

class MemoryLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mica-groups-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::vector<MemoryGroup> find(const std::string& membership) {
    write("membership", membership);
    return find_memory_groups((root_ / "membership").string(), (root_ / "tree").string());
  }

  std::filesystem::path root_;
};

TEST_F(MemoryLimits, EveryGroupAroundTheProcessCounts) {
  write("tree/a/memory.max", "3000000\n");
  write("tree/a/memory.swap.max", "0\n");
  write("tree/a/b/memory.max", "max\n");
  write("tree/a/b/c/memory.max", "1000000\n");
  write("tree/a/b/c/memory.current", "900000\n");
  write("tree/a/b/c/memory.stat", "anon 500000\ninactive_file 300000\nactive_file 1\n");
  const auto groups = find("0::/a/b/c\n");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].limit, 1000000u);
  EXPECT_EQ(groups[0].used(), 600000u);  // pages that were read from files are given up first
  EXPECT_EQ(groups[1].limit, 3000000u);
  EXPECT_EQ(groups[1].swap_limit, 0u);
}

TEST_F(MemoryLimits, TheTreeMayBeginAtTheGroupItself) {
  write("tree/memory.max", "5000000\n");
  EXPECT_EQ(find("0::/\n").size(), 1u);
  EXPECT_EQ(find("0::/not/mounted/here\n").size(), 1u);
}

TEST_F(MemoryLimits, TheFirstVersion) {
  write("tree/memory/docker/memory.limit_in_bytes", "2000000\n");
  write("tree/memory/docker/memory.memsw.limit_in_bytes", "2500000\n");
  write("tree/memory/docker/memory.usage_in_bytes", "1500000\n");
  write("tree/memory/docker/memory.stat", "cache 5\ntotal_inactive_file 500000\n");
  write("tree/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const auto groups = find("3:cpu,cpuacct:/docker\n2:memory:/docker\n1:name=systemd:/docker\n");
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].limit, 2000000u);
  EXPECT_EQ(groups[0].swap_limit, 500000u);
  EXPECT_EQ(groups[0].used(), 1000000u);
}

TEST_F(MemoryLimits, WithoutLimitsThereAreNoGroups) {
  EXPECT_TRUE(find("").empty());
  EXPECT_TRUE(find("0::/a\nnonsense\n::\n").empty());
}

}  // namespace
}  // namespace mica::detail
