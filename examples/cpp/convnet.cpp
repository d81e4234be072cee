// A convolutional network that learns to read digits, which are drawn here as examples/digits.py draws them. From the
// same seed it has the same losses. Exits with 0 if it has learned.
#include <mica/data.h>
#include <mica/mica.h>
#include <mica/nn.h>
#include <mica/optim.h>

#include <array>
#include <iostream>

#include "arguments.h"
#include "progress.h"

namespace nn = mica::nn;
namespace data = mica::data;
using mica::Tensor;

// The strokes of a digit: top, upper left, upper right, middle, lower left, lower right, bottom.
constexpr std::array<const char*, 10> kSegments = {"1110111", "0010010", "1011101", "1011011", "0111010",
                                                   "1101011", "1101111", "1010010", "1111111", "1111011"};
struct Stroke {
  double row0, column0, row1, column1;
};
constexpr std::array<Stroke, 7> kStrokes = {
    {{0, 0, 0, 1}, {0, 0, 1, 0}, {0, 1, 1, 1}, {1, 0, 1, 1}, {1, 0, 2, 0}, {1, 1, 2, 1}, {2, 0, 2, 1}}};

// Images of digits, each with its own place, size, slant and noise.
Tensor draw(const Tensor& digits, int64_t size = 20) {
  const int64_t count = digits.numel();
  const Tensor rows = mica::arange(0, size).to(mica::DType::Float32).view({1, size, 1});
  const Tensor columns = rows.view({1, 1, size});
  const auto random = [&](double low, double high) { return low + (high - low) * mica::rand({count, 1, 1}); };
  const Tensor top = random(2, 5), left = random(4, 8);
  const Tensor height = random(4.5, 6.5), width = random(5, 7.5), slant = random(-0.2, 0.2);
  std::vector<float> lit;
  for (const char* segments : kSegments)
    for (size_t i = 0; i < kStrokes.size(); ++i) lit.push_back(segments[i] == '1' ? 1 : 0);
  const Tensor lit_by_digit = mica::tensor(lit).view({10, 7})[digits];
  Tensor image = mica::zeros({count, size, size});
  for (size_t s = 0; s < kStrokes.size(); ++s) {
    const auto& [row0, column0, row1, column1] = kStrokes[s];
    const Tensor y0 = top + row0 * height, y1 = top + row1 * height;
    const Tensor x0 = left + column0 * width - slant * (y0 - top), x1 = left + column1 * width - slant * (y1 - top);
    // The distance of every pixel to the stroke.
    const Tensor dy = y1 - y0, dx = x1 - x0;
    const Tensor along = (((rows - y0) * dy + (columns - x0) * dx) / (dy * dy + dx * dx)).clamp(0, 1);
    const Tensor distance = ((rows - y0 - along * dy).pow(2) + (columns - x0 - along * dx).pow(2)).sqrt();
    const Tensor stroke =
        (1.6 - distance).clamp(0, 1) * lit_by_digit.select(1, static_cast<int64_t>(s)).view({-1, 1, 1});
    image = mica::maximum(image, stroke);
  }
  return (image + 0.25 * mica::randn_like(image)).unsqueeze(1);
}

struct Reader : nn::Module {
  nn::Sequential features =
      register_module("features", nn::Sequential{nn::Conv2d(1, 16, 3, {.padding = 1}), nn::BatchNorm2d(16), nn::ReLU(),
                                                 nn::MaxPool2d(2), nn::Conv2d(16, 32, 3, {.padding = 1}),
                                                 nn::BatchNorm2d(32), nn::ReLU(), nn::MaxPool2d(2)});
  nn::Sequential classify =
      register_module("classify", nn::Sequential{nn::Flatten(), nn::Dropout(0.2), nn::Linear(32 * 5 * 5, 10)});
  Tensor forward(const Tensor& x) { return classify(features(x)); }
};

double accuracy(Reader& model, const std::shared_ptr<data::Dataset>& images) {
  mica::NoGradGuard no_grad;
  model.eval();
  int64_t right = 0;
  data::DataLoader loader(images, {.batch_size = 256});
  for (const auto& batch : loader) right += (model.forward(batch[0]).argmax(1) == batch[1]).sum().item<int64_t>();
  model.train();
  return static_cast<double>(right) / static_cast<double>(images->size());
}

int main(int argc, char** argv) {
  const Arguments options(
      argc, argv,
      {{"steps", "300"}, {"images", "6000"}, {"batch", "64"}, {"workers", "0"}, {"seed", "0"}, {"save", ""}});
  const int64_t steps = options.number("steps"), images = options.number("images"), batch = options.number("batch");
  mica::manual_seed(options.number("seed"));

  const Tensor digits = mica::randint(10, {images});
  const auto drawn = std::make_shared<data::TensorDataset>(data::Example{draw(digits), digits});
  const int64_t unseen = images / 5;
  const auto parts = data::random_split(drawn, {images - unseen, unseen});
  data::DataLoader loader(
      parts[0], {.batch_size = batch, .shuffle = true, .workers = static_cast<int>(options.number("workers"))});

  Reader model;
  mica::optim::AdamW optimizer(model.parameters(), {.lr = 2e-3});
  mica::optim::OneCycleLR schedule(optimizer, {.max_lr = 4e-3, .total_steps = steps});
  Progress progress(steps, "image", batch);
  for (int64_t step = 0; step < steps;)
    for (const auto& example : loader) {
      optimizer.zero_grad();
      const Tensor loss = nn::functional::cross_entropy(model.forward(example[0]), example[1]);
      loss.backward();
      optimizer.step();
      schedule.step();
      progress.update(loss.item<double>());
      if (++step == steps) break;
    }
  std::cout << "reads " << 100 * accuracy(model, parts[1]) << "% of digits that it has not seen\n";
  if (!options.text("save").empty())
    mica::save(mica::Value::dict({{"model", model.state_dict()}, {"losses", mica::tensor(progress.losses())}}),
               options.text("save"));
  return progress.has_learned() ? 0 : 1;
}
