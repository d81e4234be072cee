// A recorded call that fails while a recording runs: nobody sees memory that was never written.
#include <gtest/gtest.h>

#include <new>
#include <string>
#include <thread>

#include "core/recorded_rows.h"
#include "mica/core/recording.h"
#include "mica/error.h"
#include "mica/ops.h"
#include "mica/tensor.h"

namespace mica::recording::unfinished_test {

bool fails = false;

// Adds one to each row, or finds no memory.
struct AddOne {
  void operator()(const TensorView* views, int) const {
    if (fails) throw std::bad_alloc();
    const auto* from = static_cast<const float*>(views[1].data);
    auto* to = static_cast<float*>(views[0].data);
    for (int64_t i = 0; i < views[0].numel; ++i) to[i] = from[i] + 1;
  }
};

class Unfinished : public ::testing::Test {
 protected:
  void SetUp() override { least_elements.store(1); }
  void TearDown() override {
    fails = false;
    least_elements.store(least_);
  }
  static void add_one(const Tensor& out, const Tensor& in) {
    ASSERT_TRUE(put_off("add_one", {&out}, {&in}, 1, AddOne{}));
  }
  static float first(const Tensor& t) { return *static_cast<const float*>(t.storage()->data()); }
  static float last(const Tensor& t) { return static_cast<const float*>(t.storage()->data())[t.numel() - 1]; }
  static std::string error_of(const Tensor& t) {
    try {
      first(t);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  static bool is_lost(const Tensor& t) { return error_of(t).find("never computed") != std::string::npos; }

 private:
  int64_t least_ = least_elements.load();
};

TEST_F(Unfinished, CallsThatCanRunAgainStayRecorded) {
  const Tensor a = ones({64, 1024});
  Scope scope;
  const Tensor twice = a * 2, sum = a * 7;
  add_one(sum, twice);
  const Tensor result = sum * 3;
  fails = true;
  EXPECT_THROW(scope.end(), std::bad_alloc);
  EXPECT_THROW(first(result), std::bad_alloc);  // and again
  fails = false;
  EXPECT_EQ(first(result), 9);
  EXPECT_EQ(last(result), 9);
  EXPECT_EQ(first(sum), 3);
  EXPECT_EQ(first(twice), 2);
}

TEST_F(Unfinished, CallsOfACaptureThatFailedAreForgotten) {
  const Tensor state = ones({64, 1024}), a = ones({64, 1024});
  Scope scope;
  const Tensor twice = a * 2;
  add_one(state, twice);
  abandon("there is no graph");
  EXPECT_FALSE(pending());
  scope.end();
  EXPECT_EQ(first(state), 1);
  EXPECT_EQ(last(state), 1);
  EXPECT_TRUE(is_lost(twice));
  EXPECT_NE(error_of(twice).find("there is no graph"), std::string::npos);
}

TEST_F(Unfinished, WhatNobodyKnowsIsNotTriedAgain) {
  const Tensor a = ones({64, 1024});
  {
    Scope scope;
    Tensor twice = a * 2;
    Tensor sum = twice * 1;
    add_one(sum, twice);
    Tensor result = sum * 3;
    fails = true;
    EXPECT_THROW(flush(), std::bad_alloc);
    twice = sum = result = Tensor();
    EXPECT_NO_THROW(flush());
    EXPECT_FALSE(pending());
  }
}

TEST_F(Unfinished, MemoryThatWasChangedInPartSaysSo) {
  const Tensor x = ones({64, 1024}), other = ones({7, 33});
  const Tensor sum = empty({64, 1024});
  Scope scope;
  Tensor changed = x;
  changed.add_(1);
  add_one(sum, x);
  const Tensor result = sum * 3, apart = other * 5;
  fails = true;
  EXPECT_THROW(scope.end(), std::bad_alloc);
  fails = false;
  EXPECT_TRUE(is_lost(x)) << error_of(x);
  EXPECT_NE(error_of(x).find("bad_alloc"), std::string::npos);
  EXPECT_TRUE(is_lost(sum)) << error_of(sum);
  EXPECT_TRUE(is_lost(result)) << error_of(result);
  EXPECT_EQ(first(apart), 5);
  {
    Scope again;
    EXPECT_THROW(result * 2, Error);  // at once, and not when somebody asks for it
    EXPECT_EQ(first(other * 2), 2);
  }
  EXPECT_THROW(result * 2, Error);
}

TEST_F(Unfinished, ASingleCallLeavesWhatItWouldLeaveWithoutARecording) {
  const Tensor x = ones({64, 1024});
  Scope scope;
  add_one(x, x);
  fails = true;
  EXPECT_THROW(flush(), std::bad_alloc);
  fails = false;
  EXPECT_EQ(first(x), 1);
  EXPECT_FALSE(pending());
}

// What depends on a call that failed is not computed from old values.
TEST_F(Unfinished, CallsBehindItDoNotRunWithoutIt) {
  const Tensor x = ones({64, 1024}), mean = ones({1024});
  Scope scope;
  const Tensor row = x.select(0, 0);
  add_one(x, x);
  Tensor(mean).add_(row);
  const Tensor after = mean * 2;
  fails = true;
  EXPECT_THROW(scope.end(), std::bad_alloc);
  fails = false;
  EXPECT_TRUE(is_lost(after)) << error_of(after);
  EXPECT_EQ(first(x), 1);
  EXPECT_EQ(first(mean), 1);  // as where the program ends at the call that failed
}

TEST_F(Unfinished, WhoWasNotToldIsTold) {
  const Tensor x = ones({64, 1024});
  {
    const Scope scope;
    add_one(x, x);
    fails = true;
  }
  fails = false;
  EXPECT_TRUE(is_lost(x)) << error_of(x);
}

TEST_F(Unfinished, AnotherThreadAndTheEndOfAThread) {
  const Tensor x = ones({64, 1024}), y = ones({64, 1024});
  Tensor result;
  std::thread([&] {
    least_elements.store(1);
    const Scope scope;
    add_one(x, x);
    fails = true;
    std::thread([&] { EXPECT_THROW(first(x), std::bad_alloc); }).join();
    EXPECT_TRUE(is_lost(x)) << error_of(x);
    fails = false;
    result = y * 2;
    add_one(y, result);
    fails = true;
  }).join();
  fails = false;
  EXPECT_TRUE(is_lost(y)) << error_of(y);
}

}  // namespace mica::recording::unfinished_test
