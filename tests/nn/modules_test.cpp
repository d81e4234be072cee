// What modules do with their members, apart from what they compute.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "mica/autograd.h"
#include "mica/backend.h"
#include "mica/nn.h"
#include "mica/optim.h"
#include "mica/values.h"
#include "tests/nn/names_of.h"

namespace mica::testing {
namespace {

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

struct Net : nn::Module {
  nn::Linear hidden = register_module("hidden", nn::Linear(4, 8));
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(8));
  nn::Linear out = register_module("out", nn::Linear(8, 2, {.bias = false}));
  Tensor scale = register_parameter("scale", full({}, 2.0));
  Tensor seen = register_buffer("seen", zeros({}, DType::Int64), false);
  Tensor forward(const Tensor& x) { return out(relu(norm(hidden(x)))) * scale; }
};

TEST(Modules, NamesInTheOrderOfRegistration) {
  const Net net;
  EXPECT_EQ(names_of(net.named_parameters()),
            (Names{"scale", "hidden.weight", "hidden.bias", "norm.weight", "norm.bias", "out.weight"}));
  EXPECT_EQ(names_of(net.named_parameters(false)), (Names{"scale"}));
  EXPECT_EQ(names_of(net.named_buffers()),
            (Names{"seen", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}));
  EXPECT_EQ(names_of(net.state_dict()),
            (Names{"scale", "hidden.weight", "hidden.bias", "norm.weight", "norm.bias", "norm.running_mean",
                   "norm.running_var", "norm.num_batches_tracked", "out.weight"}));
  ASSERT_EQ(net.children().size(), 3u);
  EXPECT_EQ(net.named_modules()[1].first, "norm");
}

TEST(Modules, ByPath) {
  Net net;
  EXPECT_EQ(&net.get_submodule("norm"), &*net.norm);
  EXPECT_EQ(&net.get_submodule(""), &net);
  EXPECT_TRUE(net.get_parameter("hidden.weight").is_same(net.hidden->weight));
  EXPECT_TRUE(net.get_parameter("scale").is_same(net.scale));
  EXPECT_TRUE(net.get_buffer("norm.running_var").is_same(net.norm->running_var));
  EXPECT_EQ(net.get_submodule("out").as<nn::Linear>()->out_features, 2);
  EXPECT_EQ(net.get_submodule("norm").as<nn::Linear>(), nullptr);
  EXPECT_EQ(net.modules().size(), 4u);
  EXPECT_EQ(net.modules()[0], &net);
  EXPECT_EQ(error_of([&] { net.get_submodule("hidden.first"); }), "Linear has no attribute `first`");
  EXPECT_EQ(error_of([&] { net.get_parameter("norm.running_var"); }), "BatchNorm1d has no parameter `running_var`");
}

TEST(Modules, SharedMembersAreListedOnce) {
  struct Tied : nn::Module {
    nn::Linear first = register_module("first", nn::Linear(3, 3));
    nn::Linear again = register_module("again", first);
    Tensor weight = register_parameter("weight", first->weight);
  };
  const Tied tied;
  EXPECT_EQ(names_of(tied.named_parameters()), (Names{"weight", "first.bias"}));
  EXPECT_EQ(tied.named_modules().size(), 1u);
  EXPECT_EQ(names_of(tied.state_dict()), (Names{"weight", "first.weight", "first.bias", "again.weight", "again.bias"}));
}

TEST(Modules, NamesAreChecked) {
  nn::Module module;
  module.register_parameter("weight", zeros({2}));
  EXPECT_THROW(module.register_buffer("weight", zeros({2})), Error);
  EXPECT_THROW(module.register_parameter("a.b", zeros({2})), Error);
  EXPECT_THROW(module.register_parameter("", zeros({2})), Error);
  EXPECT_THROW(module.register_module("weight", nn::ReLU()), Error);
  EXPECT_THROW(module.register_module("absent", nn::Linear(nullptr)), Error);
  EXPECT_THROW(module.register_parameter("computed", ones({2}).requires_grad_() * 2), Error);
  module.register_parameter("none", {});
  EXPECT_EQ(module.parameters().size(), 1u);
}

TEST(Modules, LoadingReportsEverythingAndChangesNothing) {
  Net net;
  NamedTensors state = net.state_dict();
  const Tensor before = net.hidden->weight.detach().clone();
  state[1].second = ones({8, 4});  // hidden.weight, which would fit
  state[0].second = ones({3});     // scale
  state[8].first = "out.wait";     // out.weight
  state.emplace_back("extra", ones({1}));
  const std::string error = error_of([&] { net.load_state_dict(state); });
  EXPECT_EQ(
      error,
      "Error(s) in loading state_dict for Net:\n"
      "\tMissing key(s) in state_dict: \"out.weight\". \n"
      "\tUnexpected key(s) in state_dict: \"extra\", \"out.wait\". \n"
      "\tsize mismatch for scale: copying a param with shape torch.Size([3]) from checkpoint, the shape in current "
      "model is torch.Size([]).");
  EXPECT_TRUE(equal(net.hidden->weight, before));

  EXPECT_THROW(net.load_state_dict(state, false), Error);  // sizes count even so
  state[0].second = full({}, 7.0);
  net.load_state_dict(state, false);
  EXPECT_EQ(net.scale.item<double>(), 7);
  EXPECT_TRUE(equal(net.hidden->weight, ones({8, 4})));
}

TEST(Modules, LoadsFilesOfOld) {
  const nn::BatchNorm1d norm(2);
  norm(ones({3, 2}));
  norm->load_state_dict({{"weight", ones({2})},
                         {"bias", ones({2})},
                         {"running_mean", ones({2})},
                         {"running_var", ones({2})}});  // from before there was num_batches_tracked
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  EXPECT_TRUE(equal(norm->bias, ones({2})));
  Net net;
  NamedTensors state = net.state_dict();
  state[0].second = full({1}, 3.0);  // a number as a tensor of one element
  const nn::IncompatibleKeys keys = net.load_state_dict(state);
  EXPECT_TRUE(keys.missing_keys.empty() && keys.unexpected_keys.empty());
  EXPECT_EQ(net.scale.item<double>(), 3);
  EXPECT_THROW(norm(ones({1, 2})), Error);  // one value per channel
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
}

TEST(Modules, SaveAndLoad) {
  const std::string path = ::testing::TempDir() + "mica_modules_test.pt";
  Net net, other;
  net.forward(randn({5, 4}));
  EXPECT_FALSE(equal(net.hidden->weight, other.hidden->weight));
  net.save(path);
  other.load(path);
  for (size_t i = 0; i < net.state_dict().size(); ++i)
    EXPECT_TRUE(equal(net.state_dict()[i].second, other.state_dict()[i].second));
  EXPECT_TRUE(other.hidden->weight.requires_grad());
  EXPECT_THROW(nn::Linear(4, 8)->load(path), Error);
  std::filesystem::remove(path);
}

TEST(Modules, OpensWhatTorchHasWritten) {
  const Value file = load(MICA_SOURCE_DIRECTORY "/tests/recorded/files/cpp_modules.pt");
  const nn::Linear linear(4, 2);
  const NamedTensors state = file.at("Linear").at("state").as_named_tensors();
  linear->load_state_dict(state);
  EXPECT_TRUE(equal(linear->weight, state[0].second));
}

TEST(Modules, TrainAndEval) {
  Net net;
  EXPECT_TRUE(net.is_training() && net.norm->is_training());
  net.eval();
  EXPECT_FALSE(net.is_training() || net.norm->is_training());
  net.train();
  EXPECT_TRUE(net.norm->is_training());
  const nn::Dropout dropout(0.5);
  dropout->eval();
  const Tensor x = ones({8});
  EXPECT_TRUE(equal(dropout(x), x));
}

TEST(Modules, To) {
  Net net;
  const Tensor weight = net.hidden->weight;
  net.forward(randn({5, 4})).sum().backward();
  net.to(DType::Float64);
  EXPECT_EQ(weight.dtype(), DType::Float64);  // one tensor, however it is reached
  EXPECT_EQ(weight.grad().dtype(), DType::Float64);
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  EXPECT_EQ(net.norm->running_mean.dtype(), DType::Float64);
  EXPECT_EQ(net.norm->num_batches_tracked.dtype(), DType::Int64);
  EXPECT_EQ(net.forward(randn({5, 4}).to(DType::Float64)).dtype(), DType::Float64);
  EXPECT_THROW(net.to(DType::Int64), Error);
  net.to(kCPU, DType::Float32);
  EXPECT_EQ(weight.dtype(), DType::Float32);
  EXPECT_EQ(net.norm->num_batches_tracked.dtype(), DType::Int64);
  net.to(kMeta);
  EXPECT_TRUE(weight.is_meta());
  EXPECT_TRUE(net.norm->num_batches_tracked.is_meta());
}

TEST(Modules, GradientsAtOnce) {
  Net net;
  net.forward(randn({5, 4})).sum().backward();
  for (const Tensor& p : net.parameters()) EXPECT_TRUE(p.grad().defined());
  net.zero_grad(false);
  EXPECT_TRUE(equal(net.scale.grad(), zeros({})));
  net.zero_grad();
  for (const Tensor& p : net.parameters()) EXPECT_FALSE(p.grad().defined());
  net.requires_grad_(false);
  EXPECT_FALSE(net.forward(randn({5, 4})).requires_grad());
}

TEST(Modules, Apply) {
  Net net;
  Names order;
  net.apply([&](nn::Module& m) {
    order.push_back(m.name());
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(&m)) nn::init::constant_(linear->weight, 0.5);
  });
  EXPECT_EQ(order, (Names{"Linear", "BatchNorm1d", "Linear", "Net"}));
  EXPECT_TRUE(equal(net.out->weight, full({2, 8}, 0.5)));
}

TEST(Modules, Print) {
  std::ostringstream text;
  text << Net();
  EXPECT_EQ(text.str(),
            "Net(\n"
            "  (hidden): Linear(in_features=4, out_features=8, bias=True)\n"
            "  (norm): BatchNorm1d(8, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)\n"
            "  (out): Linear(in_features=8, out_features=2, bias=False)\n"
            ")");
  const nn::ModuleList<nn::Sequential> list(
      std::vector{nn::Sequential(nn::ReLU()), nn::Sequential(nn::ReLU()), nn::Sequential(nn::Tanh(), nn::ReLU())});
  EXPECT_EQ(list->repr(),
            "ModuleList(\n"
            "  (0-1): 2 x Sequential(\n"
            "    (0): ReLU()\n"
            "  )\n"
            "  (2): Sequential(\n"
            "    (0): Tanh()\n"
            "    (1): ReLU()\n"
            "  )\n"
            ")");
  EXPECT_EQ(nn::Sequential()->repr(), "Sequential()");
  EXPECT_EQ(nn::ModuleList<nn::ReLU>()->repr(), "ModuleList()");
  const Tensor matrix = zeros({2, 3}), number = zeros({});
  EXPECT_EQ(nn::ParameterList(std::vector{matrix, number})->repr(),
            "ParameterList(\n"
            "    (0): Parameter containing: [torch.float32 of size 2x3]\n"
            "    (1): Parameter containing: [torch.float32 of size ]\n"
            ")");
}

// ---- functions

TEST(Functional, AreWhatModulesCompute) {
  namespace F = nn::functional;
  manual_seed(0);
  const Tensor image = randn({2, 3, 6, 6});
  EXPECT_TRUE(equal(F::relu(image), nn::ReLU()(image)));
  EXPECT_TRUE(equal(F::logsigmoid(image), nn::LogSigmoid()(image)));
  EXPECT_TRUE(equal(F::softmax(image, 1), nn::Softmax(1)(image)));
  EXPECT_TRUE(equal(F::max_pool2d(image, 2), nn::MaxPool2d(2)(image)));
  const auto [largest, places] = F::max_pool2d_with_indices(image, 2);
  EXPECT_TRUE(equal(largest, F::max_pool2d(image, 2)));
  const Tensor put_back = F::max_unpool2d(largest, places, 2);
  EXPECT_TRUE(equal(put_back.flatten(2).gather(2, places.flatten(2)), largest.flatten(2)));
  EXPECT_EQ(put_back.count_nonzero().item().to_int(), largest.numel());
  EXPECT_TRUE(equal(F::adaptive_max_pool2d(image, 2), nn::AdaptiveMaxPool2d(2)(image)));
  EXPECT_TRUE(equal(F::adaptive_avg_pool2d(image, 1), nn::AdaptiveAvgPool2d(1)(image)));
  EXPECT_TRUE(equal(F::layer_norm(image, {6, 6}), nn::LayerNorm({6, 6})(image)));
  EXPECT_TRUE(equal(F::batch_norm(image, {}, {}, {}, {}, true), nn::BatchNorm2d(3)(image)));
  EXPECT_TRUE(equal(F::group_norm(image, 3), nn::GroupNorm(3, 3)(image)));
  EXPECT_TRUE(equal(F::instance_norm(image), nn::InstanceNorm2d(3)(image)));
  EXPECT_TRUE(equal(F::unfold(image, 2), nn::Unfold(2)(image)));
  EXPECT_TRUE(equal(F::fold(F::unfold(image, 2, 1, 0, 2), 6, 2, 1, 0, 2), image));
  EXPECT_TRUE(equal(F::dropout(image, 0.5, false), image));
  EXPECT_TRUE(equal(F::dropout(image, 1), zeros({2, 3, 6, 6})));
  const nn::Embedding table(5, 2);
  EXPECT_TRUE(equal(F::embedding(tensor({1, 4}), table->weight), table(tensor({1, 4}))));
  const nn::Linear linear(6, 2);
  EXPECT_TRUE(equal(F::linear(image, linear->weight, linear->bias), linear(image)));
}

// ---- training

TEST(Modules, TrainingLowersTheLoss) {
  manual_seed(0);
  Net net;
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  const Tensor x = randn({64, 4});
  const Tensor y = (x.narrow(1, 0, 2) * 3 + x.narrow(1, 2, 2).sin()).detach();
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const Tensor loss = nn::functional::mse_loss(net.forward(x), y);
    loss.backward();
    nn::utils::clip_grad_norm_(net.parameters(), 5);
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.2 * first);
}

TEST(Utils, Clipping) {
  const std::vector<Tensor> p{zeros({2}).requires_grad_(), zeros({1}).requires_grad_(), zeros({1}).requires_grad_()};
  p[0].set_grad(tensor({3.0, 0.0}));
  p[1].set_grad(tensor({-4.0}));
  EXPECT_EQ(nn::utils::clip_grad_norm_(p, 1).item<double>(), 5);
  EXPECT_NEAR(p[0].grad()[0].item<double>(), 0.6, 1e-5);
  EXPECT_NEAR(p[1].grad()[0].item<double>(), -0.8, 1e-5);
  EXPECT_NEAR(nn::utils::clip_grad_norm_(p, 10).item<double>(), 1, 1e-5);
  nn::utils::clip_grad_value_(p, 0.25);
  EXPECT_TRUE(equal(p[1].grad(), tensor({-0.25})));
  p[1].set_grad(tensor({INFINITY}));
  EXPECT_THROW(nn::utils::clip_grad_norm_(p, 1, 2, true), Error);
}

TEST(Utils, ParametersAsAVector) {
  const nn::Linear linear(2, 3);
  const Tensor vector = nn::utils::parameters_to_vector(linear->parameters());
  EXPECT_EQ(vector.numel(), 9);
  const Tensor counted = arange(0, 9).to(DType::Float32);
  nn::utils::vector_to_parameters(counted, linear->parameters());
  EXPECT_TRUE(equal(linear->bias, tensor({6.0, 7.0, 8.0})));
  EXPECT_TRUE(linear->weight.requires_grad());
}

TEST(Values, Tensors) {
  EXPECT_EQ(tensor({1, 2}).dtype(), DType::Int64);
  EXPECT_EQ(tensor({1.5, 2.0}).dtype(), DType::Float32);
  EXPECT_EQ(tensor({1.5f}).dtype(), DType::Float32);
  EXPECT_EQ(tensor({true, false}).dtype(), DType::Bool);
  EXPECT_EQ(tensor({1, 2}, DType::Float64).dtype(), DType::Float64);
  EXPECT_EQ(tensor(std::vector<int64_t>{}).numel(), 0);
  EXPECT_EQ(tensor(std::vector<double>{0.5, 0.25})[1].item<double>(), 0.25);
  EXPECT_TRUE(tensor({1.0}, TensorOptions().requires_grad(true)).requires_grad());
}

}  // namespace
}  // namespace mica::testing
