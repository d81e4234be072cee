// Whether a model fits: weights first, then what its use adds.
#include <algorithm>
#include <cmath>

#include "instruments.h"
#include "model_memory.h"

namespace mica::lab {

namespace {

struct KnownModel {
  const char* name;
  double parameters;
  int64_t layers, width, heads, kv_heads, length;
};
// Published sizes of models that people ask about, and the length that they were made for, up to 2048 tokens.
constexpr KnownModel kModels[] = {
    {"GPT-2 small", 124.4e6, 12, 768, 12, 12, 1024},    {"BERT base", 109.5e6, 12, 768, 12, 12, 512},
    {"ViT-B/16", 86.6e6, 12, 768, 12, 12, 197},         {"GPT-2 XL", 1557.6e6, 48, 1600, 25, 25, 1024},
    {"Llama-2 7B", 6738.4e6, 32, 4096, 32, 32, 2048},   {"Llama-3 8B", 8030.3e6, 32, 4096, 32, 8, 2048},
    {"Llama-2 13B", 13015.9e6, 40, 5120, 40, 40, 2048}, {"Llama-2 70B", 68976.6e6, 80, 8192, 64, 8, 2048}};
struct Card {
  const char* name;
  double gigabytes;
};
constexpr Card kCards[] = {
    {"8 GB laptop", 8},  {"T4, 16 GB", 16},     {"RTX 4090, 24 GB", 24},       {"A100, 40 GB", 40},
    {"A100, 80 GB", 80}, {"H200, 141 GB", 141}, {"8 \u00d7 H100, 640 GB", 640}};

constexpr std::pair<const char*, int> kOptimizers[] = {{"SGD", 0}, {"SGD with momentum", 1}, {"Adam", 2}, {"AdamW", 2}};

// Bytes that the layers of a transformer keep for the backward pass: the inputs of its products, norms and activation,
// 34 bytes for each token, layer and unit of width in 16-bit numbers, and the probabilities of attention unless
// FlashAttention computes them again.
double transformer_activations(const ModelShape& m, const MemorySetting& s, double number) {
  const double tokens = s.batch * s.length, width = static_cast<double>(m.width);
  const double attention = s.fused_attention ? 0 : 2.5 * number * static_cast<double>(m.heads) * s.length;
  const double layer = tokens * (width * 17 * number + attention);
  if (s.checkpointing) return tokens * width * number * static_cast<double>(m.layers) + layer;
  return layer * static_cast<double>(m.layers);
}

}  // namespace

int optimizer_numbers(const std::string& optimizer) {
  for (const auto& [name, numbers] : kOptimizers)
    if (optimizer == name) return numbers;
  fail(ErrorKind::Value, cat("no optimizer is named '", optimizer, "'"));
}

Json optimizers_json() {
  Json list = Json::array();
  for (const auto& [name, numbers] : kOptimizers) list.push_back(name);
  return list;
}

ModelShape model_shape(const Json& question) {
  ModelShape m;
  m.parameters = question.at("parameters").get<double>();
  MICA_CHECK(m.parameters >= 0 && m.parameters <= 1e13, "the number of parameters is between 0 and 10^13");
  m.outputs = question.value("outputs", 0.0);
  m.widest = question.value("widest", 0.0);
  MICA_CHECK(m.outputs >= 0 && m.widest >= 0, "what layers put out is not negative");
  if (m.outputs > 0) return m;
  if (question.contains("layers") && !question.at("layers").is_null()) {
    m.layers = question.at("layers").get<int64_t>();
    m.width = question.value("width", int64_t{4096});
    m.heads = question.value("heads", int64_t{32});
    m.kv_heads = question.value("kv_heads", m.heads);
    MICA_CHECK(m.layers > 0 && m.width > 0 && m.heads > 0 && m.kv_heads > 0, "layers, width and heads are positive");
    return m;
  }
  // A transformer of this many parameters, as they are usually built: 12 * layers * width^2 weights, a width of 128 for
  // each layer, heads of 128.
  m.derived = true;
  m.layers = std::max<int64_t>(1, std::llround(std::cbrt(m.parameters / (12.0 * 128 * 128))));
  m.width = std::max<int64_t>(1, std::llround(std::sqrt(m.parameters / (12.0 * static_cast<double>(m.layers)))));
  if (m.width > 64) m.width = (m.width + 32) / 64 * 64;
  m.heads = m.kv_heads = std::max<int64_t>(1, m.width / 128);
  return m;
}

std::vector<std::pair<std::string, double>> memory_parts(const ModelShape& m, const MemorySetting& s) {
  // Activations and caches are kept in 16 bits where the weights are smaller, and in the weights' own format else.
  const double number = s.bits >= 32 && !s.autocast ? 4 : 2;
  std::vector<std::pair<std::string, double>> parts = {{"weights", m.parameters * s.bits / 8}};
  if (s.training) {
    // Training wants at least 16 bits: smaller formats are trained with 16-bit gradients.
    parts.emplace_back("gradients", m.parameters * (s.bits >= 32 ? 4 : 2));
    parts.emplace_back("optimizer", m.parameters * s.optimizer_numbers * s.optimizer_bytes / s.shards);
    parts.emplace_back("float32 master copy", s.bits < 32 && s.master ? m.parameters * 4 : 0);
    parts.emplace_back("16-bit casts", s.autocast ? m.parameters * 2 : 0);
    if (s.extras)
      parts.emplace_back("activations",
                         m.is_transformer() ? transformer_activations(m, s, number) : s.batch * m.outputs * number);
  } else if (s.extras) {
    if (m.is_transformer()) {
      const double share = static_cast<double>(m.kv_heads) / static_cast<double>(m.heads);
      parts.emplace_back("key-value cache", 2 * static_cast<double>(m.layers) * static_cast<double>(m.width) * share *
                                                s.batch * s.length * number);
      parts.emplace_back("activations", s.batch * s.length * static_cast<double>(m.width) * 8 * number);
    } else {
      parts.emplace_back("activations", s.batch * 2 * m.widest * number);
    }
  }
  std::erase_if(parts, [](const auto& part) { return part.second == 0 && part.first != "weights"; });
  return parts;
}

double sum_of(const std::vector<std::pair<std::string, double>>& parts) {
  double total = 0;
  for (const auto& [name, bytes] : parts) total += bytes;
  return total;
}

Json fit(const Json& question) {
  Json models = Json::array(), cards = Json::array();
  for (const KnownModel& m : kModels)
    models.push_back({{"name", m.name},
                      {"parameters", m.parameters},
                      {"layers", m.layers},
                      {"width", m.width},
                      {"heads", m.heads},
                      {"kv_heads", m.kv_heads},
                      {"length", m.length}});
  for (const Card& c : kCards) cards.push_back({{"name", c.name}, {"bytes", c.gigabytes * 1e9}});
  const ModelShape model = model_shape(question);
  MemorySetting setting;
  setting.batch = question.value("batch", 1.0);
  setting.length = question.value("length", 2048.0);
  MICA_CHECK(setting.batch >= 0 && setting.length >= 0, "batch and length are not negative");
  setting.training = question.value("training", false);
  setting.optimizer_numbers = optimizer_numbers(question.value("optimizer", "AdamW"));
  setting.fused_attention = question.value("fused_attention", true);
  setting.extras = question.value("extras", true);
  const double memory = question.value("memory", 24e9);
  MICA_CHECK(memory > 0, "the memory of a GPU is more than nothing");

  std::vector<WeightFormat> formats(std::begin(kWeightFormats), std::end(kWeightFormats));
  // A file's own dtypes: its bytes as they are.
  if (const double bytes = question.value("file_bytes", 0.0); bytes > 0 && model.parameters > 0)
    formats.insert(formats.begin(), {"as in the file", 8 * bytes / model.parameters});
  Json rows = Json::array();
  for (const WeightFormat& f : formats) {
    setting.bits = f.bits;
    const auto parts = memory_parts(model, setting);
    Json list = Json::array();
    for (const auto& [name, bytes] : parts) list.push_back({{"name", name}, {"bytes", bytes}});
    const double total = sum_of(parts);
    rows.push_back({{"format", f.name},
                    {"parts", list},
                    {"bytes", total},
                    {"weights", parts[0].second},
                    {"fits", total <= memory},
                    {"share", total / memory}});
  }
  return {{"models", models},
          {"cards", cards},
          {"optimizers", optimizers_json()},
          {"rows", rows},
          {"memory", memory},
          {"model",
           {{"transformer", model.is_transformer()},
            {"derived", model.derived},
            {"layers", model.layers},
            {"width", model.width},
            {"heads", model.heads},
            {"kv_heads", model.kv_heads},
            {"outputs", model.outputs}}}};
}

}  // namespace mica::lab
