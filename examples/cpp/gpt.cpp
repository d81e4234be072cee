// A character-level GPT: trains on the tales, then tells some of its own. From the same seed it has the losses of
// examples/gpt.py, and its checkpoint opens there. Exits with 0 if it has learned.
#include <mica/mica.h>
#include <mica/nn.h>
#include <mica/optim.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>

#include "arguments.h"
#include "progress.h"

namespace nn = mica::nn;
using mica::Tensor;

// A text as a tensor of characters.
class Text {
 public:
  explicit Text(const std::string& path) {
    std::ifstream file(path);
    std::stringstream content;
    content << file.rdbuf();
    const std::string text = content.str();
    MICA_CHECK(!text.empty(), "cannot read ", path);
    characters = text;
    std::sort(characters.begin(), characters.end());
    characters.erase(std::unique(characters.begin(), characters.end()), characters.end());
    data = encode(text);
  }
  Tensor encode(const std::string& text) const {
    std::vector<int64_t> numbers;
    for (const char c : text) numbers.push_back(static_cast<int64_t>(characters.find(c)));
    return mica::tensor(numbers);
  }
  std::string decode(const Tensor& numbers) const {
    std::string text;
    for (int64_t i = 0; i < numbers.numel(); ++i) text += characters[numbers[i].item<size_t>()];
    return text;
  }
  // Random passages, and what follows each of their characters.
  std::pair<Tensor, Tensor> batch(int64_t count, int64_t length) const {
    const Tensor starts = mica::randint(data.numel() - length - 1, {count, 1});
    const Tensor passages = data[starts + mica::arange(0, length + 1)];
    return {passages.narrow(1, 0, length), passages.narrow(1, 1, length)};
  }

  std::string characters;
  Tensor data;
};

// Attention over the characters so far, then a small network for each position.
class BlockImpl : public nn::Module {
 public:
  BlockImpl(int64_t width, int64_t heads)
      : heads_(heads),
        norm1(register_module("norm1", nn::LayerNorm(width))),
        project(register_module("project", nn::Linear(width, 3 * width))),
        merge(register_module("merge", nn::Linear(width, width))),
        norm2(register_module("norm2", nn::LayerNorm(width))),
        think(register_module(
            "think", nn::Sequential{nn::Linear(width, 4 * width), nn::GELU(), nn::Linear(4 * width, width)})) {}

  Tensor forward(const Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    const Tensor projected = project(norm1(x)).view({batch, length, 3, heads_, width / heads_});
    const std::vector<Tensor> qkv = projected.permute({2, 0, 3, 1, 4}).unbind(0);
    const Tensor attended = mica::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0, /*is_causal=*/true);
    const Tensor y = x + merge(attended.transpose(1, 2).reshape({batch, length, width}));
    return y + think(norm2(y));
  }

 private:
  int64_t heads_;
  nn::LayerNorm norm1;
  nn::Linear project, merge;
  nn::LayerNorm norm2;
  nn::Sequential think;
};
MICA_MODULE(Block);

class GPT : public nn::Module {
 public:
  GPT(int64_t characters, int64_t context, int64_t width, int64_t heads, int64_t layers)
      : context_(context),
        character_(register_module("character", nn::Embedding(characters, width))),
        place_(register_module("place", nn::Embedding(context, width))) {
    register_module("blocks", blocks_);
    for (int64_t i = 0; i < layers; ++i) blocks_->push_back(Block(width, heads));
    norm_ = register_module("norm", nn::LayerNorm(width));
    head_ = register_module("head", nn::Linear(width, characters, {.bias = false}));
  }

  Tensor forward(const Tensor& numbers) {
    Tensor x = character_(numbers) + place_(mica::arange(0, numbers.size(1)));
    for (const Block& block : blocks_) x = block(x);
    return head_(norm_(x));
  }

  Tensor tell(const Tensor& start, int64_t length, double temperature = 0.8) {
    mica::NoGradGuard no_grad;
    Tensor numbers = start.view({1, -1});
    for (int64_t i = 0; i < length; ++i) {
      const int64_t seen = std::min(numbers.size(1), context_);
      const Tensor logits = forward(numbers.narrow(1, numbers.size(1) - seen, seen)).select(1, -1);
      const Tensor next = mica::multinomial(mica::softmax(logits / temperature, -1), 1);
      numbers = mica::cat({numbers, next}, 1);
    }
    return numbers[0];
  }

 private:
  int64_t context_;
  nn::Embedding character_, place_;
  nn::ModuleList<Block> blocks_;
  nn::LayerNorm norm_ = nullptr;
  nn::Linear head_ = nullptr;
};

int main(int argc, char** argv) {
  const Arguments options(argc, argv,
                          {{"steps", "1200"},
                           {"batch", "16"},
                           {"context", "96"},
                           {"width", "128"},
                           {"layers", "3"},
                           {"tell", "400"},
                           {"seed", "0"},
                           {"text", TALES},
                           {"save", ""}});
  const int64_t steps = options.number("steps"), batch = options.number("batch"), context = options.number("context");
  mica::manual_seed(options.number("seed"));

  const Text text(options.text("text"));
  GPT model(static_cast<int64_t>(text.characters.size()), context, options.number("width"), 4,
            options.number("layers"));
  mica::optim::AdamW optimizer(model.parameters(), {.lr = 2e-3, .weight_decay = 0.01});
  int64_t parameters = 0;
  for (const Tensor& p : model.parameters()) parameters += p.numel();
  std::cout << parameters << " parameters, " << text.data.numel() << " characters of " << text.characters.size()
            << " kinds\n";

  Progress progress(steps, "token", batch * context);
  for (int64_t step = 1; step <= steps; ++step) {
    const double fraction = static_cast<double>(step) / static_cast<double>(steps);
    optimizer.set_lr(0, 2e-3 * std::max(1 - fraction, 0.05) * std::min(1.0, static_cast<double>(step) / 20));
    const auto [x, y] = text.batch(batch, context);
    const Tensor loss = nn::functional::cross_entropy(model.forward(x).flatten(0, 1), y.flatten());
    optimizer.zero_grad();
    loss.backward();
    nn::utils::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
    progress.update(loss.item<double>());
  }
  std::cout << steps << " steps in " << progress.seconds() << " s: " << static_cast<int64_t>(progress.speed())
            << " tokens a second\n";

  if (!options.text("save").empty())
    mica::save(mica::Value::dict({{"model", model.state_dict()}, {"losses", mica::tensor(progress.losses())}}),
               options.text("save"));
  model.eval();
  if (options.number("tell") > 0)
    std::cout << "\n" << text.decode(model.tell(text.encode("Once "), options.number("tell"))) << "\n";
  return progress.has_learned() ? 0 : 1;
}
