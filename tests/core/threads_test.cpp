// Objects that are made when they are first needed, and objects that several threads use at once. `make
// sanitize-threads` looks for races in it; here the results are compared with those of one thread.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "mica/autograd.h"
#include "mica/layers.h"
#include "mica/linalg.h"
#include "mica/nn.h"
#include "mica/print.h"
#include "mica/values.h"
#include "mica/warning.h"

namespace mica::testing {
namespace {

constexpr int kThreads = 4;

// Calls body(t) on every thread at the same time.
template <class Body>
void at_once(const Body& body) {
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      body(t);
    });
  }
  for (auto& thread : threads) thread.join();
}

Tensor numbers(IntArrayRef sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return sin(arange(count, DType::Float32)).reshape(sizes);
}

// Plans, tables, libraries and pools of memory that are made at their first use.
TensorVec first_uses() {
  const Tensor x = numbers({6, 6}), signal = numbers({2, 3 * 5 * 7 * 11});
  const Tensor image = numbers({1, 3, 9, 9}), weight = numbers({4, 3, 3, 3});
  return {matmul(numbers({40, 70}), numbers({70, 50})),
          view_as_real(fft_fft(signal)),
          fft_irfft(fft_rfft(numbers({1009}))),
          linalg_solve(x + eye(6) * 5, numbers({6, 2})),
          conv2d(image, weight),
          std::get<0>(sort(signal)),
          softmax(signal, 1),
          cumsum(signal, 1),
          einsum("ij,kj->ik", {x, x}),
          randn({64}, Generator(7))};
}

TEST(Threads, WhatIsMadeAtItsFirstUse) {
  TensorVec found[kThreads];
  at_once([&](int t) { found[t] = first_uses(); });
  const TensorVec expected = first_uses();
  for (const TensorVec& each : found) {
    ASSERT_EQ(each.size(), expected.size());
    for (size_t i = 0; i < each.size(); ++i) EXPECT_TRUE(allclose(each[i], expected[i], 1e-5, 1e-6)) << i;
  }
}

TEST(Threads, OneTensorForAll) {
  const Tensor shared = numbers({30, 40}), alias = shared.t();
  const auto holders = shared.storage()->use_count();
  at_once([&](int t) {
    for (int i = 0; i < 50; ++i) {
      const Tensor copy = shared, column = alias.select(0, i % 40), dense = alias.contiguous();
      EXPECT_EQ(dense.size(0), 40);
      EXPECT_TRUE(equal(column.sum(), shared.select(1, i % 40).sum()));
      EXPECT_FALSE(print(copy.narrow(0, t, 2), "tensor").empty());
    }
  });
  EXPECT_EQ(shared.storage()->use_count(), holders);
}

TEST(Threads, OneModuleForAll) {
  nn::Sequential net(nn::Linear(5, 8), nn::LayerNorm(8), nn::Linear(8, 3));
  const Tensor x = numbers({7, 5});
  const TensorVec parameters = net->parameters();
  const Tensor wanted = net->forward(x);
  const TensorVec gradients = autograd::grad({wanted.sum()}, parameters);
  at_once([&](int) {
    for (int i = 0; i < 20; ++i) {
      const Tensor y = net->forward(x);
      EXPECT_TRUE(equal(y, wanted));
      EXPECT_TRUE(equal(autograd::grad({y.sum()}, parameters, {}, true)[0], gradients[0]));
      y.mean().backward();  // adds to what all share
    }
  });
  for (const Tensor& p : parameters) EXPECT_TRUE(p.grad().defined());
}

// The history of a view is computed again after its base has changed, by the thread that asks first.
TEST(Threads, OneViewOfAChangedBase) {
  for (int round = 0; round < 20; ++round) {
    const Tensor base = numbers({4, 4}).requires_grad_() * 1, view = base.select(0, 1);
    base.mul_(2);
    Tensor results[kThreads];
    at_once([&](int t) { results[t] = (view * 2).sum(); });
    for (const Tensor& result : results) EXPECT_TRUE(result.requires_grad());
  }
}

std::atomic<int> warnings{0};

TEST(Threads, AWarningIsGivenOnce) {
  const WarningHandler before = set_warning_handler([](std::string_view) { ++warnings; });
  at_once([](int) {
    for (int i = 0; i < 100; ++i) MICA_WARN_ONCE("said by threads");
  });
  set_warning_handler(before);
  EXPECT_EQ(warnings, 1);
}

}  // namespace
}  // namespace mica::testing
