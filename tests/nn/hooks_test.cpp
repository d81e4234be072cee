// Hooks around the calls of modules, and around the states that they write and load.
#include <gtest/gtest.h>

#include "mica/autograd.h"
#include "mica/nn.h"
#include "mica/values.h"

namespace mica::testing {
namespace {

using Log = std::vector<std::string>;

struct Doubled : nn::Module {
  nn::Linear linear = register_module("linear", nn::Linear(2, 2));
  Tensor forward(const Tensor& x) { return linear(x) * 2; }
};

struct FailingImpl : nn::Module {
  Tensor forward(const Tensor&) { throw std::runtime_error("broken"); }
};
using Failing = nn::ModuleHolder<FailingImpl>;

// Two results of two arguments with a number between them.
struct TwoImpl : nn::Module {
  std::tuple<Tensor, Tensor> forward(const Tensor& a, double k, const Tensor& b) { return {a * k, b + a}; }
};
using Two = nn::ModuleHolder<TwoImpl>;

TEST(Hooks, InOrderAndWhatTheyReplace) {
  const nn::Linear net(2, 2);
  Log log;
  net->register_forward_pre_hook([&](nn::Module& m, TensorVec&) { log.push_back("pre of " + m.name()); });
  net->register_forward_pre_hook([](nn::Module&, TensorVec& x) { x[0] = x[0] * 2; }, {.prepend = true});
  net->register_forward_pre_hook([](nn::Module&, TensorVec& x) { x[0] = x[0] + 1; });
  net->register_forward_hook([&](nn::Module&, const TensorVec& x, TensorVec&) {
    log.push_back("saw " + std::to_string(x[0].sum().item<int64_t>()));
  });
  HookHandle zero = net->register_forward_hook([](nn::Module&, const TensorVec&, TensorVec& y) { y[0] = y[0] * 0; },
                                               {.prepend = true});
  EXPECT_FALSE(net(ones({1, 2})).any().item<bool>());
  EXPECT_EQ(log, (Log{"pre of Linear", "saw 6"}));
  zero.remove();
  EXPECT_TRUE(equal(net(ones({1, 2})), linear(full({1, 2}, 3.0), net->weight, net->bias)));
  const Tensor plain = net->forward(ones({1, 2}));  // forward by itself runs none
  EXPECT_TRUE(equal(plain, linear(ones({1, 2}), net->weight, net->bias)));
  EXPECT_EQ(log.size(), 4u);
  EXPECT_THROW(net->register_forward_hook(nullptr), Error);
}

TEST(Hooks, RunWhereverModulesAreCalled) {
  Log log;
  const auto note = [&](nn::Module& m, const TensorVec&, TensorVec&) { log.push_back(m.name()); };
  const nn::Sequential inner{nn::ReLU()};
  const nn::Sequential net({{"project", nn::Linear(2, 2)}, {"inner", inner}});
  for (nn::Module* m : net->modules()) m->register_forward_hook(note);
  net(ones({1, 2}));
  EXPECT_EQ(log, (Log{"Linear", "ReLU", "Sequential", "Sequential"}));

  log.clear();
  Doubled doubled;
  doubled.register_forward_hook(note);
  doubled.linear->register_forward_hook(note);
  doubled.forward(ones({1, 2}));
  EXPECT_EQ(log, (Log{"Linear"}));
  const Tensor y = nn::call(doubled, ones({1, 2}));
  EXPECT_EQ(log, (Log{"Linear", "Linear", "Doubled"}));
  EXPECT_TRUE(equal(y, doubled.forward(ones({1, 2}))));
}

TEST(Hooks, SeeTensorsInContainers) {
  const nn::LSTM lstm(3, 4);
  const Tensor x = randn({5, 1, 3});
  size_t inputs = 0, outputs = 0;
  bool has_state = true;
  HookHandle hook = lstm->register_forward_hook([&](nn::Module&, const TensorVec& in, TensorVec& out) {
    inputs = in.size();
    outputs = out.size();
    has_state = in.size() > 1 && in[1].defined();
    out[2] = zeros({1, 1, 4});
  });
  auto [y, state] = lstm(x);
  EXPECT_EQ(inputs, 1u);
  EXPECT_EQ(outputs, 3u);  // the output, the hidden state and the cell state
  EXPECT_FALSE(std::get<1>(state).any().item<bool>());
  lstm(x, nn::LSTMImpl::State{});
  EXPECT_EQ(inputs, 3u);
  EXPECT_FALSE(has_state);
  lstm(nn::utils::rnn::pack_sequence({ones({2, 3})}));
  EXPECT_EQ(inputs, 1u);

  const Two two;
  two->register_forward_hook([&](nn::Module&, const TensorVec& in, TensorVec&) { inputs = in.size(); });
  two(ones({2}), 3, ones({2}));
  EXPECT_EQ(inputs, 2u);
}

TEST(Hooks, AreCalledWhereForwardFails) {
  const Failing net;
  Log log;
  net->register_forward_hook([&](nn::Module&, const TensorVec&, TensorVec&) { log.push_back("plain"); });
  net->register_forward_hook(
      [&](nn::Module&, const TensorVec&, TensorVec& y) { log.push_back(std::to_string(y.size())); },
      {.always_call = true});
  EXPECT_THROW(net(ones({1})), std::runtime_error);
  EXPECT_EQ(log, (Log{"0"}));
  nn::ReLU relu;
  relu->register_forward_hook([](nn::Module&, const TensorVec&, TensorVec& y) { y.clear(); });
  EXPECT_THROW(relu(ones({1})), Error);
}

// ---- gradients

TEST(Hooks, SeeAndChangeGradients) {
  const nn::Linear net(2, 3);
  const Tensor x = ones({4, 2}).requires_grad_();
  TensorVec seen_in, seen_out;
  net->register_full_backward_hook([&](nn::Module&, TensorVec& in, const TensorVec& out) {
    seen_in = in;
    seen_out = out;
  });
  net(x).sum().backward();
  EXPECT_TRUE(equal(seen_out.at(0), ones({4, 3})));
  EXPECT_TRUE(equal(seen_in.at(0), x.grad()));
  x.set_grad({});
  HookHandle zero =
      net->register_full_backward_hook([](nn::Module&, TensorVec& in, const TensorVec&) { in[0] = in[0] * 0; });
  net(x).sum().backward();
  EXPECT_FALSE(x.grad().any().item<bool>());
  zero.remove();

  const nn::Linear before(2, 3);
  const Tensor y = ones({4, 2}).requires_grad_();
  before->register_full_backward_pre_hook([](nn::Module&, TensorVec& out) { out[0] = out[0] * 2; });
  before(y).sum().backward();
  EXPECT_TRUE(equal(before->bias.grad(), full({3}, 8.0)));
  EXPECT_TRUE(allclose(y.grad(), 2 * before->weight.sum(0).expand({4, 2})));
}

TEST(Hooks, GradientsOfSeveralTensors) {
  const Two net;
  TensorVec in, out;
  net->register_full_backward_hook([&](nn::Module&, TensorVec& grad_in, const TensorVec& grad_out) {
    in = grad_in;
    out = grad_out;
  });
  const Tensor a = ones({2}).requires_grad_(), b = ones({2});
  {
    const auto [first, last] = net(a, 3, b);
    (first.sum() + last.sum()).backward();
  }
  EXPECT_TRUE(equal(in.at(0), full({2}, 4.0)));
  EXPECT_FALSE(in.at(1).defined());
  EXPECT_TRUE(equal(out.at(1), ones({2})));
  std::get<0>(net(a, 3, b)).sum().backward();
  EXPECT_FALSE(out.at(1).defined());
}

TEST(Hooks, GradientsWhereNoInputNeedsOne) {
  const nn::Linear net(2, 3);
  int calls = 0;
  HookHandle hook = net->register_full_backward_hook([&](nn::Module&, TensorVec& in, const TensorVec& out) {
    ++calls;
    EXPECT_FALSE(in.at(0).defined());
    EXPECT_TRUE(equal(out.at(0), ones({1, 3})));
  });
  net(ones({1, 2})).sum().backward();
  EXPECT_EQ(calls, 1);
  hook.remove();
  net->register_full_backward_hook([](nn::Module&, TensorVec& in, const TensorVec&) { in.clear(); });
  EXPECT_THROW(net(ones({1, 2}).requires_grad_()).sum().backward(), Error);
}

TEST(Hooks, OfAModuleThatIsGone) {
  const Tensor x = ones({1, 2}).requires_grad_();
  Tensor y;
  {
    const nn::Linear net(2, 1);
    net->register_full_backward_hook([](nn::Module&, TensorVec&, const TensorVec&) { ADD_FAILURE(); });
    y = net(x);
  }
  y.sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(Hooks, OfAllModules) {
  Log log;
  std::vector<HookHandle> handles{
      nn::register_module_forward_pre_hook([&](nn::Module& m, TensorVec&) { log.push_back("pre " + m.name()); }),
      nn::register_module_forward_hook([&](nn::Module&, const TensorVec&, TensorVec&) { log.push_back("post"); }),
      nn::register_module_full_backward_pre_hook([&](nn::Module&, TensorVec&) { log.push_back("before"); }),
      nn::register_module_full_backward_hook(
          [&](nn::Module&, TensorVec&, const TensorVec&) { log.push_back("after"); })};
  const nn::ReLU relu;
  relu(ones({1}).requires_grad_()).sum().backward();
  EXPECT_EQ(log, (Log{"pre ReLU", "post", "before", "after"}));
  for (HookHandle& handle : handles) handle.remove();
  relu(ones({1}));
  EXPECT_EQ(log.size(), 4u);
  EXPECT_FALSE(nn::Tanh()->is_hooked());
}

TEST(Hooks, OfClones) {
  const nn::Linear one(2, 2);
  int calls = 0;
  HookHandle hook = one->register_forward_hook([&](nn::Module&, const TensorVec&, TensorVec&) { ++calls; });
  const nn::Linear two = nn::clone(one);
  hook.remove();
  one(ones({2}));
  two(ones({2}));
  EXPECT_EQ(calls, 1);
}

// ---- states

TEST(Hooks, OfStates) {
  const nn::Sequential net{nn::Linear(2, 2), nn::ReLU()};
  nn::Module& linear = *(*net)[0];
  Log log;
  linear.register_state_dict_pre_hook([&](nn::Module&, const std::string& prefix) { log.push_back("pre " + prefix); });
  linear.register_state_dict_post_hook([](nn::Module&, NamedTensors& state, const std::string& prefix) {
    for (auto& [name, tensor] : state)
      if (name == prefix + "weight") name = prefix + "kernel";
  });
  NamedTensors state = net->state_dict();
  EXPECT_EQ(log, (Log{"pre 0."}));
  EXPECT_EQ(state[0].first, "0.kernel");
  EXPECT_THROW(net->load_state_dict(state), Error);

  linear.register_load_state_dict_pre_hook([](nn::Module&, NamedTensors& part, const std::string& prefix) {
    for (auto& [name, tensor] : part)
      if (name == prefix + "kernel") name = prefix + "weight";
  });
  state[0].second = ones({2, 2});
  net->load_state_dict(state);
  EXPECT_TRUE(equal(linear.get_parameter("weight"), ones({2, 2})));

  state.emplace_back("extra", ones({1}));
  EXPECT_THROW(net->load_state_dict(state), Error);
  net->register_load_state_dict_post_hook(
      [](nn::Module&, nn::IncompatibleKeys& keys) { keys.unexpected_keys.clear(); });
  EXPECT_TRUE(net->load_state_dict(state).unexpected_keys.empty());
}

}  // namespace
}  // namespace mica::testing
