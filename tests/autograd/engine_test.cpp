#include <atomic>
#include <thread>

#include "autograd_testing.h"

namespace mica::testing {
namespace {

TEST(Engine, ProductRule) {
  Tensor a = leaf({1, 2, 3}), b = leaf({4, 5, 6});
  (a * b).sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{4, 5, 6}));
  EXPECT_EQ(list(b.grad()), (Values{1, 2, 3}));
}

TEST(Engine, SumsOverAllPaths) {
  Tensor a = leaf({3});
  Tensor b = a * a;
  Tensor c = b * b + b * a + a;
  c.sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{4 * 27 + 3 * 9 + 1}));
}

TEST(Engine, AccumulatesIntoLeaves) {
  Tensor a = leaf({1, 2});
  (a * 2).sum().backward();
  Tensor first = a.grad();
  (a * 3).sum().backward();
  EXPECT_TRUE(first.is_same(a.grad()));
  EXPECT_EQ(list(a.grad()), (Values{5, 5}));
}

TEST(Engine, BroadcastGradientsAreSummed) {
  Tensor a = leaf({2}), b = leaf({1, 2, 3});
  (a * b).sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{6}));
  EXPECT_EQ(list(b.grad()), (Values{2, 2, 2}));
}

TEST(Engine, RootsThatDependOnEachOther) {
  Tensor a = leaf({2});
  Tensor b = a * 3, c = b * b;
  autograd::backward({c.sum(), b.sum(), b.sum()});
  EXPECT_EQ(list(a.grad()), (Values{2 * 6 * 3 + 3 + 3}));
}

TEST(Engine, LeafAsRoot) {
  Tensor a = leaf({2}), g = values({7});
  a.backward(g);
  EXPECT_EQ(list(a.grad()), (Values{7}));
  EXPECT_NE(a.grad().data_ptr(), g.data_ptr());
}

TEST(Engine, GradReturnsAndLeavesLeavesAlone) {
  Tensor a = leaf({2}), b = leaf({5});
  Tensor y = a * b;
  TensorVec g = autograd::grad({y.sum()}, {a, y}, {}, true);
  EXPECT_EQ(list(g[0]), (Values{5}));
  EXPECT_EQ(list(g[1]), (Values{1}));
  EXPECT_FALSE(a.grad().defined());
  EXPECT_FALSE(b.grad().defined());
}

TEST(Engine, OnlyWhatLeadsToAnInputRuns) {
  Tensor a = leaf({2}), b = leaf({3});
  bool ran = false;
  Tensor side = through(b, [&](TensorVec& grads, TensorVec& out) {
    ran = true;
    out[0] = grads[0];
  });
  Tensor y = (a * side).sum();
  EXPECT_EQ(list(autograd::grad({y}, {a}, {}, true)[0]), (Values{3}));
  EXPECT_FALSE(ran);
  EXPECT_EQ(list(autograd::grad({y}, {b})[0]), (Values{2}));
  EXPECT_TRUE(ran);
}

TEST(Engine, BackwardIntoGivenInputsOnly) {
  Tensor a = leaf({2}), b = leaf({3});
  Tensor m = a * b;
  autograd::backward({(m * a).sum()}, {}, {}, false, {b, m});
  EXPECT_FALSE(a.grad().defined());
  EXPECT_EQ(list(b.grad()), (Values{4}));
  EXPECT_EQ(list(m.grad()), (Values{2}));
}

TEST(Engine, UnusedInputs) {
  Tensor a = leaf({2}), b = leaf({3});
  EXPECT_EQ(error_of([&] {
              autograd::grad({(a * 2).sum()}, {a, b});
            }),
            "The differentiated Tensor at index 1 appears to not have been used in the graph. Set allow_unused=True if "
            "this is "
            "the desired behavior.");
  TensorVec g = autograd::grad({(a * 2).sum()}, {a, b}, {}, {}, false, true);
  EXPECT_TRUE(g[0].defined());
  EXPECT_FALSE(g[1].defined());
  EXPECT_EQ(error_of([&] { autograd::grad({(a * 2).sum()}, {values({1})}); }),
            "One of the differentiated Tensors does not require grad");
}

TEST(Engine, RootErrors) {
  Tensor a = leaf({2, 3});
  EXPECT_STARTS_WITH(error_of([&] { values({1}).sum().backward(); }),
                     "element 0 of tensors does not require grad and does not have a grad_fn");
  EXPECT_STARTS_WITH(error_of([&] { (a * 2).backward(); }), "grad can be implicitly created only for scalar outputs");
  EXPECT_EQ(
      error_of([&] {
        (a * 2).backward(values({1, 2, 3}));
      }),
      "Mismatch in shape: grad_output[0] has a shape of torch.Size([3]) and output[0] has a shape of torch.Size([2]).");
  EXPECT_EQ(error_of([&] { autograd::backward({a * 2, a * 3}, {values({1, 1})}); }), "got 2 tensors and 1 gradients");
}

TEST(Engine, SecondBackwardNeedsRetainGraph) {
  Tensor a = leaf({2});
  Tensor y = (a * a).sum();
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(list(a.grad()), (Values{8}));
  EXPECT_STARTS_WITH(
      error_of([&] { y.backward(); }),
      "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
      "been freed).");
}

TEST(Engine, HigherDerivatives) {
  Tensor a = leaf({2});
  Tensor y = (a * a * a).sum();
  Tensor g1 = autograd::grad({y}, {a}, {}, {}, true)[0];
  EXPECT_EQ(list(g1), (Values{12}));
  Tensor g2 = autograd::grad({g1.sum()}, {a}, {}, {}, true)[0];
  EXPECT_EQ(list(g2), (Values{12}));
  Tensor g3 = autograd::grad({g2.sum()}, {a})[0];
  EXPECT_EQ(list(g3), (Values{6}));
}

TEST(Engine, SavedOutputsInHigherDerivatives) {
  Tensor a = leaf({2});
  Tensor g1 = autograd::grad({reciprocal(a).sum()}, {a}, {}, {}, true)[0];
  EXPECT_EQ(list(g1), (Values{-0.25}));
  EXPECT_EQ(list(autograd::grad({g1.sum()}, {a})[0]), (Values{0.25}));
}

TEST(Engine, InvalidGradients) {
  Tensor a = leaf({2, 3});
  Tensor y = through(a, [](TensorVec&, TensorVec& out) { out[0] = values({1, 2, 3}); });
  EXPECT_EQ(error_of([&] { y.sum().backward(); }),
            "Function TestBackward0 returned an invalid gradient at index 0 - got [3] but expected shape compatible "
            "with [2]");
  Tensor z = through(a, [](TensorVec& grads, TensorVec& out) { out[0] = grads[0].to(kMeta); });
  EXPECT_EQ(error_of([&] { z.sum().backward(); }),
            "Function TestBackward0 returned an invalid gradient at index 0 - expected device cpu but got meta");
  Tensor w = through(a, [](TensorVec& grads, TensorVec& out) { out = {grads[0], grads[0]}; });
  EXPECT_EQ(error_of([&] { w.sum().backward(); }),
            "Function TestBackward0 returned an invalid number of gradients - expected 1, but got 2");
}

TEST(Engine, GradientsAreCastAndReduced) {
  Tensor a = leaf({1});
  through(a, [](TensorVec&, TensorVec& out) { out[0] = ones({4, 3, 1}, DType::Float32); }).sum().backward();
  EXPECT_EQ(a.grad().dtype(), DType::Float64);
  EXPECT_EQ(list(a.grad()), (Values{12}));
}

TEST(Engine, ErrorsNameTheFunction) {
  Tensor a = leaf({1});
  Tensor y = through(a, [](TensorVec&, TensorVec&) { fail(ErrorKind::Value, "no luck"); });
  try {
    y.sum().backward();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Value);
    EXPECT_STARTS_WITH(std::string(e.what()), "no luck\n");
    EXPECT_NE(std::string(e.what()).find("TestBackward0"), std::string::npos);
  }
  // A failed pass leaves nothing behind.
  y = through(a, [](TensorVec& grads, TensorVec& out) { out[0] = grads[0]; });
  y.sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{1}));
}

TEST(Engine, LongChain) {
  Tensor a = leaf({1});
  Tensor y = a;
  for (int i = 0; i < 1000000; ++i) y = y + 1;
  y.sum().backward();
  EXPECT_EQ(list(a.grad()), (Values{1}));
  y = {};  // destroyed without recursion
}

TEST(Engine, ReentrantOnTheSameGraph) {
  Tensor a = leaf({3});
  Tensor inner = a * a;
  Values seen;
  Tensor y = through(inner, [&](TensorVec& grads, TensorVec& out) {
    EnableGradGuard record;
    seen = list(autograd::grad({inner.sum()}, {a}, {}, true)[0]);
    out[0] = grads[0];
  });
  y.sum().backward();
  EXPECT_EQ(seen, (Values{6}));
  EXPECT_EQ(list(a.grad()), (Values{6}));
}

// Runs a backward pass inside the backward pass of a pass..., `levels` deep.
void nest(int levels, const Tensor& a, int& reached) {
  Tensor y = through(a, [&, levels](TensorVec& grads, TensorVec& out) {
    ++reached;
    if (levels > 1) {
      EnableGradGuard record;
      nest(levels - 1, a, reached);
    }
    out[0] = grads[0];
  });
  y.sum().backward();
}

TEST(Engine, DeeplyReentrant) {
  Tensor a = leaf({1});
  int reached = 0;
  nest(3000, a, reached);
  EXPECT_EQ(reached, 3000);
  EXPECT_EQ(list(a.grad()), (Values{3000}));
}

TEST(Engine, ErrorFromDeepInside) {
  Tensor a = leaf({1});
  int reached = 0;
  std::function<void(int)> dive = [&](int levels) {
    Tensor y = through(a, [&, levels](TensorVec&, TensorVec&) {
      ++reached;
      if (levels == 0) fail("bottom");
      EnableGradGuard record;
      dive(levels - 1);
    });
    y.sum().backward();
  };
  EXPECT_STARTS_WITH(error_of([&] { dive(150); }), "bottom\n");
  EXPECT_EQ(reached, 151);
}

TEST(Engine, ThreadsShareAGraph) {
  Tensor a = leaf({2});
  Tensor m = a * a;
  Tensor y = (m * m).sum();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) y.backward({}, true);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(list(a.grad()), (Values{4 * 8 * 800}));
}

TEST(Engine, ThreadsBuildGraphsOnOneLeaf) {
  Tensor a = leaf({2});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) (a * 3).sum().backward();
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(list(a.grad()), (Values{6000}));
}

TEST(Engine, GradientsAreReadAndClearedMeanwhile) {
  Tensor a = leaf({2, 3});
  const Tensor b = a * 2;
  b.retain_grad();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!stop) {
        for (const Tensor& seen : {a.grad(), b.grad()}) {
          if (seen.defined()) {
            EXPECT_EQ(seen.numel(), 2);
          }
        }
        a.set_grad({});
      }
    });
  for (int i = 0; i < 300; ++i) {
    b.sum().backward({}, true);
    (a * a).sum().backward({}, true, true);
  }
  stop = true;
  for (auto& t : threads) t.join();
  a.set_grad({});
  b.sum().backward({}, true);
  EXPECT_EQ(list(a.grad()), (Values{2, 2}));
}

TEST(Engine, CallbacksRunAtTheEnd) {
  Tensor a = leaf({1});
  bool called = false;
  Tensor y = through(a, [&](TensorVec& grads, TensorVec& out) {
    EXPECT_STREQ(autograd::current_node()->name(), "TestBackward0");
    autograd::queue_callback([&] {
      called = true;
      EXPECT_TRUE(a.grad().defined());
    });
    out[0] = grads[0];
  });
  y.sum().backward();
  EXPECT_TRUE(called);
  EXPECT_EQ(autograd::current_node(), nullptr);
  EXPECT_EQ(error_of([] { autograd::queue_callback([] {}); }),
            "Final callbacks can only be installed during backward pass.");
}

TEST(Engine, LaterOperationsRunFirst) {
  Tensor a = leaf({1});
  std::vector<int> order;
  const auto step = [&](const Tensor& x, int id) {
    return through(x, [&order, id](TensorVec& grads, TensorVec& out) {
      order.push_back(id);
      out[0] = grads[0];
    });
  };
  Tensor p = step(a, 1), q = step(a, 2), r = step(p, 3);
  (r + q).sum().backward();
  EXPECT_EQ(order, (std::vector<int>{3, 2, 1}));
}

TEST(Anomaly, NanIsReported) {
  Tensor a = leaf({0});
  AnomalyGuard anomaly;
  Tensor y = through(a, [](TensorVec&, TensorVec& out) { out[0] = values({0.0 / 0.0}); });
  EXPECT_STARTS_WITH(error_of([&] { y.sum().backward(); }),
                     "Function 'TestBackward0' returned nan values in its 0th output.");
}

}  // namespace
}  // namespace mica::testing
