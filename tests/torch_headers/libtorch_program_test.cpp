// Programs as they are written for libtorch, compiled against Mica: names, options, loaders and files.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace {

namespace F = torch::nn::functional;

struct NetImpl : torch::nn::Module {
  NetImpl()
      : conv(torch::nn::Conv2dOptions(1, 4, /*kernel_size=*/3).stride(2).bias(false)), norm(4), fc(4 * 13 * 13, 10) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("drop", drop);
    register_module("fc", fc);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm(conv->forward(x)));
    x = drop(x.view({x.size(0), -1}));
    return torch::log_softmax(fc(x), /*dim=*/1);
  }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Dropout drop{torch::nn::DropoutOptions().p(0.0)};
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

// Flat grey images; the label is the shade.
struct Shades : torch::data::datasets::Dataset<Shades> {
  torch::data::Example<> get(size_t i) override {
    const auto shade = static_cast<int64_t>(i % 3);
    return {torch::full({1, 28, 28}, static_cast<double>(shade) / 10), torch::tensor(shade)};
  }
  torch::optional<size_t> size() const override { return 70; }
};

TEST(LibtorchProgram, TrainsAndSaves) {
  torch::manual_seed(1);
  Net net;
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(2e-3).betas(std::make_tuple(0.8, 0.9)));
  auto loader = torch::data::make_data_loader(
      Shades().map(torch::data::transforms::Normalize<>(0.5, 0.25)).map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions().batch_size(16).workers(2));
  std::vector<double> losses;  // the mean of each epoch
  for (int epoch = 0; epoch < 20; ++epoch) {
    double sum = 0;
    for (torch::data::Example<>& batch : *loader) {
      optimizer.zero_grad();
      torch::Tensor loss = torch::nll_loss(net->forward(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      sum += loss.item<float>() * static_cast<double>(batch.data.size(0));
    }
    losses.push_back(sum / 70);
  }
  EXPECT_LT(losses.back(), 0.5 * losses.front());

  const std::string path = std::filesystem::temp_directory_path() / "libtorch_program.pt";
  torch::save(net, path);
  Net other;
  torch::load(other, path);
  EXPECT_TRUE(torch::equal(other->fc->weight, net->fc->weight));
  torch::save(optimizer, path);
  torch::optim::Adam again(net->parameters(), 1e-2);
  torch::load(again, path);
  std::filesystem::remove(path);
  std::vector<std::string> names;
  for (const auto& item : net->named_parameters()) {
    names.push_back(item.key());
    EXPECT_TRUE(item.value().defined());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"conv.weight", "norm.weight", "norm.bias", "fc.weight", "fc.bias"}));
}

TEST(LibtorchProgram, LoadersKeepTheOrder) {
  for (size_t workers : {0, 3}) {
    auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        Shades(), torch::data::DataLoaderOptions(32).workers(static_cast<int>(workers)).drop_last(true));
    int64_t next = 0, batches = 0;
    for (std::vector<torch::data::Example<>>& batch : *loader) {
      ++batches;
      for (const torch::data::Example<>& sample : batch) EXPECT_EQ(sample.target.item<int64_t>(), next++ % 3);
    }
    EXPECT_EQ(batches, 2);
  }
}

template <class Module>
std::string text(const Module& module) {
  std::ostringstream stream;
  stream << module;
  return stream.str();
}

TEST(LibtorchProgram, OptionsOfModules) {
  using namespace torch::nn;
  EXPECT_EQ(text(Conv2d(Conv2dOptions(3, 4, {3, 5}).padding(torch::kSame).groups(1))),
            "Conv2d(3, 4, kernel_size=(3, 5), stride=(1, 1), padding=same)");
  EXPECT_EQ(text(torch::nn::Linear(torch::nn::LinearOptions(3, 4).bias(false))),
            "Linear(in_features=3, out_features=4, bias=False)");
  EXPECT_EQ(text(MaxPool2d(MaxPool2dOptions({3, 2}).stride({2, 1}))),
            "MaxPool2d(kernel_size=(3, 2), stride=(2, 1), padding=0, dilation=1, ceil_mode=False)");
  EXPECT_EQ(text(Dropout(DropoutOptions().p(0.25).inplace(true))), "Dropout(p=0.25, inplace=True)");
  EXPECT_EQ(text(LeakyReLU(LeakyReLUOptions().negative_slope(0.5))), "LeakyReLU(negative_slope=0.5)");
  EXPECT_EQ(text(Threshold(ThresholdOptions(1, 20))), "Threshold(threshold=1.0, value=20.0)");
  EXPECT_EQ(text(AdaptiveAvgPool2d(AdaptiveAvgPool2dOptions({1, 2}))), "AdaptiveAvgPool2d(output_size=(1, 2))");
  EXPECT_EQ(text(LSTM(LSTMOptions(8, 16).num_layers(2).batch_first(true))),
            "LSTM(8, 16, num_layers=2, batch_first=True)");
  const auto options = torch::nn::EmbeddingOptions(10, 3).padding_idx(1);
  EXPECT_EQ(options.padding_idx(), 1);
  Embedding embedding(options);
  EXPECT_EQ(text(Embedding(std::static_pointer_cast<EmbeddingImpl>(embedding->clone()))), text(embedding));
}

TEST(LibtorchProgram, OptionsOfFunctions) {
  const torch::Tensor x = torch::arange(32, torch::kFloat32).view({1, 2, 4, 4});
  EXPECT_TRUE(torch::equal(F::max_pool2d(x, F::MaxPool2dFuncOptions(2)), torch::max_pool2d(x, 2)));
  EXPECT_TRUE(torch::equal(F::softmax(x, F::SoftmaxFuncOptions(1)), torch::softmax(x, 1)));
  EXPECT_EQ(F::pad(x, F::PadFuncOptions({1, 2, 0, 1}).mode(torch::kReplicate)).sizes(),
            torch::IntArrayRef({1, 2, 5, 7}));
  EXPECT_EQ(F::interpolate(x, F::InterpolateFuncOptions().scale_factor(std::vector<double>({2})).mode(torch::kNearest))
                .size(3),
            8);
  EXPECT_TRUE(torch::equal(F::dropout(x, F::DropoutFuncOptions().p(0.9).training(false)), x));
  const torch::Tensor weight = torch::ones({3, 2, 3, 3});
  EXPECT_TRUE(torch::equal(F::conv2d(x, weight, F::Conv2dFuncOptions().stride(2).padding(1)),
                           torch::conv2d(x, weight, {}, 2, 1)));
  const torch::Tensor logits = torch::zeros({2, 4}), target = torch::tensor({0, 3});
  EXPECT_FLOAT_EQ(F::cross_entropy(logits, target, F::CrossEntropyFuncOptions().reduction(torch::kSum)).item<float>(),
                  2 * std::log(4.0F));
}

TEST(LibtorchProgram, OptionsOfOptimizers) {
  torch::Tensor w = torch::ones({2}, torch::requires_grad());
  torch::optim::SGD sgd({w}, torch::optim::SGDOptions(0.5).momentum(0.9).weight_decay(0.1));
  w.sum().backward();
  sgd.step();
  EXPECT_FLOAT_EQ(w[0].item<float>(), 1 - 0.5F * 1.1F);
  torch::optim::LBFGS lbfgs({w}, torch::optim::LBFGSOptions(1).max_iter(3).line_search_fn("strong_wolfe"));
  EXPECT_THROW(torch::optim::LBFGSOptions().line_search_fn("golden"), std::exception);
  torch::optim::StepLR schedule(sgd, 1, 0.1);
  schedule.step();
  EXPECT_DOUBLE_EQ(sgd.lr(0), 0.05);
}

TEST(LibtorchProgram, ReadsMnist) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "libtorch_mnist";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, std::vector<unsigned char> bytes) {
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  write("t10k-images-idx3-ubyte", {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 51, 0});
  write("t10k-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 2, 7, 9});
  torch::data::datasets::MNIST digits(folder, torch::data::datasets::MNIST::Mode::kTest);
  EXPECT_EQ(digits.size(), 2U);
  EXPECT_EQ(digits.images().sizes(), torch::IntArrayRef({2, 1, 1, 2}));
  EXPECT_FLOAT_EQ(digits.get(1).data.flatten()[0].item<float>(), 0.2F);
  EXPECT_EQ(digits.get(1).target.item<int64_t>(), 9);
  write("t10k-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 3, 7, 9});
  EXPECT_THROW(torch::data::datasets::MNIST(folder, torch::data::datasets::MNIST::Mode::kTest), std::exception);
  EXPECT_THROW(torch::data::datasets::MNIST("/nowhere"), std::exception);
  std::filesystem::remove_all(folder);
}

}  // namespace
