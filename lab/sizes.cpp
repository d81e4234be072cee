// Memory by arithmetic alone: the calculator, and whether a model fits.
#include <array>

#include "instruments.h"
#include "mica/inspect.h"

namespace mica::lab {

Json calculator(const Json& question) {
  const DimVector shape = dims(question.at("shape"), "shape");
  int64_t numel = 1;
  for (const int64_t n : shape) {
    MICA_CHECK(n >= 0, "Trying to create tensor with negative dimension ", n, ": ", shape.ref());
    MICA_CHECK(!__builtin_mul_overflow(numel, n, &numel) && numel < (int64_t{1} << 56),
               "Storage size calculation overflowed with sizes=", shape.ref());
  }
  Json rows = Json::array();
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto t = static_cast<DType>(i);
    if (is_storage_only(t) && t != DType::Float4_e2m1fn_x2) continue;  // nothing is computed with these
    // A tensor without memory: its size is what the engine would allocate.
    const Tensor bare = mica::empty(shape, TensorOptions(t).device(Device{DeviceType::Meta}));
    rows.push_back({{"dtype", name(t)},
                    {"element", element_size(t)},
                    {"bytes", static_cast<int64_t>(bare.storage()->nbytes())},
                    {"readable", inspect::readable_bytes(static_cast<int64_t>(bare.storage()->nbytes()))}});
  }
  const Tensor bare = mica::empty(shape, TensorOptions(DType::Float32).device(Device{DeviceType::Meta}));
  return {{"numel", numel}, {"strides", integers(bare.strides())}, {"dtypes", rows}};
}

namespace {

struct Model {
  const char* name;
  double parameters;
  int64_t layers, width, heads, kv_heads;
};
// Published sizes of models that people ask about.
constexpr Model kModels[] = {{"GPT-2 small", 124.4e6, 12, 768, 12, 12},    {"BERT base", 109.5e6, 12, 768, 12, 12},
                             {"ViT-B/16", 86.6e6, 12, 768, 12, 12},        {"GPT-2 XL", 1557.6e6, 48, 1600, 25, 25},
                             {"Llama-2 7B", 6738.4e6, 32, 4096, 32, 32},   {"Llama-3 8B", 8030.3e6, 32, 4096, 32, 8},
                             {"Llama-2 13B", 13015.9e6, 40, 5120, 40, 40}, {"Llama-2 70B", 68976.6e6, 80, 8192, 64, 8}};
struct Card {
  const char* name;
  double gigabytes;
};
constexpr Card kCards[] = {
    {"8 GB laptop", 8},  {"T4, 16 GB", 16},     {"RTX 4090, 24 GB", 24},       {"A100, 40 GB", 40},
    {"A100, 80 GB", 80}, {"H200, 141 GB", 141}, {"8 \u00d7 H100, 640 GB", 640}};

struct Format {
  const char* name;
  double bits;
};
constexpr Format kFormats[] = {{"float32", 32}, {"bfloat16", 16}, {"float16", 16},
                               {"float8", 8},   {"int8", 8},      {"int4", 4}};
// Numbers that an optimizer keeps for each parameter, in float32.
constexpr std::pair<const char*, int> kOptimizers[] = {{"SGD", 0}, {"SGD with momentum", 1}, {"Adam", 2}, {"AdamW", 2}};

// Bytes that the layers of a transformer keep for the backward pass, for each token and layer, in 16-bit numbers: the
// inputs of its products, norms and activation, and the probabilities of attention unless they are computed again.
double activation_bytes(double tokens, double length, const Model& m, double bytes, bool fused_attention) {
  const double per_width = 17 * bytes;  // 34 bytes at two bytes a number
  const double attention =
      fused_attention ? 0 : 2.5 * bytes * static_cast<double>(m.heads) * length / static_cast<double>(m.width);
  return tokens * static_cast<double>(m.layers) * static_cast<double>(m.width) * (per_width + attention);
}

}  // namespace

Json fit(const Json& question) {
  Json models = Json::array(), cards = Json::array(), formats = Json::array(), optimizers = Json::array();
  for (const Model& m : kModels)
    models.push_back({{"name", m.name},
                      {"parameters", m.parameters},
                      {"layers", m.layers},
                      {"width", m.width},
                      {"heads", m.heads},
                      {"kv_heads", m.kv_heads}});
  for (const Card& c : kCards) cards.push_back({{"name", c.name}, {"bytes", c.gigabytes * 1e9}});
  for (const auto& [name, numbers] : kOptimizers) optimizers.push_back(name);
  Model model{"",
              question.at("parameters").get<double>(),
              question.value("layers", int64_t{32}),
              question.value("width", int64_t{4096}),
              question.value("heads", int64_t{32}),
              question.value("kv_heads", int64_t{32})};
  MICA_CHECK(model.parameters >= 0 && model.parameters <= 1e13, "the number of parameters is between 0 and 10^13");
  MICA_CHECK(model.layers > 0 && model.width > 0 && model.heads > 0 && model.kv_heads > 0,
             "layers, width and heads are positive");
  const double batch = question.value("batch", 1.0), length = question.value("length", 2048.0);
  MICA_CHECK(batch >= 0 && length >= 0, "batch and length are not negative");
  const bool training = question.value("training", false);
  const std::string optimizer = question.value("optimizer", "AdamW");
  const bool fused = question.value("fused_attention", true);
  int kept = -1;
  for (const auto& [name, numbers] : kOptimizers)
    if (optimizer == name) kept = numbers;
  MICA_CHECK(kept >= 0, "no optimizer is named '", optimizer, "'");
  const double memory = question.value("memory", 24e9);

  Json rows = Json::array();
  for (const Format& f : kFormats) {
    const double weights = model.parameters * f.bits / 8;
    // Activations and caches are kept in 16 bits where the weights are smaller, and in the weights' own format else.
    const double number = f.bits >= 32 ? 4 : 2;
    std::vector<std::pair<const char*, double>> parts = {{"parameters", weights}};
    std::string remark;
    if (training) {
      // Training wants at least 16 bits: smaller formats are trained with 16-bit gradients.
      parts.emplace_back("gradients", model.parameters * (f.bits >= 32 ? 4 : 2));
      const double master = f.bits < 32 ? 4 : 0;
      parts.emplace_back("optimizer", model.parameters * (kept * 4 + master));
      if (master > 0) remark = "with a float32 master copy";
      parts.emplace_back("activations", activation_bytes(batch * length, length, model, number, fused));
    } else {
      const double heads = static_cast<double>(model.kv_heads) / static_cast<double>(model.heads);
      parts.emplace_back("key-value cache", 2 * static_cast<double>(model.layers) * static_cast<double>(model.width) *
                                                heads * batch * length * number);
      parts.emplace_back("activations", batch * length * static_cast<double>(model.width) * 8 * number);
    }
    double total = 0;
    Json list = Json::array();
    for (const auto& [name, bytes] : parts) {
      list.push_back({{"name", name}, {"bytes", bytes}});
      total += bytes;
    }
    rows.push_back({{"format", f.name},
                    {"parts", list},
                    {"bytes", total},
                    {"fits", total <= memory},
                    {"remark", remark},
                    {"share", memory > 0 ? total / memory : 0}});
  }
  return {{"models", models}, {"cards", cards}, {"optimizers", optimizers}, {"rows", rows}, {"memory", memory}};
}

namespace {

uint64_t little(const std::string& s, size_t at, int bytes) {
  MICA_CHECK(at + static_cast<size_t>(bytes) <= s.size(), "the file ends too early");
  uint64_t v = 0;
  for (int i = bytes - 1; i >= 0; --i) v = v << 8 | static_cast<unsigned char>(s[at + static_cast<size_t>(i)]);
  return v;
}

std::string from_base64(const std::string& text) {
  static constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int, 256> value;
  value.fill(-1);
  for (int i = 0; i < 64; ++i) value[static_cast<unsigned char>(kDigits[i])] = i;
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const int v = value[static_cast<unsigned char>(c)];
    MICA_CHECK(v >= 0, "the file did not arrive as base64: it has the character '", c, "'");
    bits = bits << 6 | static_cast<uint32_t>(v);
    if ((count += 6) >= 8) out += static_cast<char>(bits >> (count -= 8) & 255);
  }
  return out;
}

}  // namespace

// The tensors of a file of weights, from the part of it that lists them: the header of a safetensors file, or the
// directory at the end of a torch checkpoint, which is a zip archive.
Json weights_file(const Json& question) {
  const std::string kind = question.at("kind").get<std::string>();
  int64_t tensors = 0, bytes = 0, parameters = 0;
  std::map<std::string, int64_t> by_dtype;
  if (kind == "safetensors") {
    const Json header = Json::parse(question.at("header").get<std::string>());
    for (const auto& [key, entry] : header.items()) {
      if (key == "__metadata__") continue;
      const Json& range = entry.at("data_offsets");
      const int64_t size = range.at(1).get<int64_t>() - range.at(0).get<int64_t>();
      int64_t numel = 1;
      for (const Json& n : entry.at("shape")) numel *= n.get<int64_t>();
      ++tensors;
      bytes += size;
      parameters += numel;
      by_dtype[entry.at("dtype").get<std::string>()] += size;
    }
  } else {
    MICA_CHECK(kind == "zip", "a safetensors file or a torch checkpoint is expected");
    const std::string tail = from_base64(question.at("tail").get<std::string>());
    const size_t end = tail.rfind("PK\5\6");
    MICA_CHECK(end != std::string::npos, "not a torch checkpoint: it has no zip directory");
    const auto entries = little(tail, end + 10, 2);
    const auto directory = little(tail, end + 12, 4);
    // A 64-bit end record of 56 bytes and its locator of 20 may stand between the directory and the end.
    const size_t stop = end >= 76 && tail.compare(end - 20, 4, "PK\6\7") == 0 ? end - 76 : end;
    MICA_CHECK(directory <= stop, "the directory of the archive is larger than what was read of the file");
    size_t at = stop - directory;
    for (uint64_t i = 0; i < entries && tail.compare(at, 4, "PK\1\2") == 0; ++i) {
      const auto size = little(tail, at + 24, 4);
      const auto name = little(tail, at + 28, 2), extra = little(tail, at + 30, 2), comment = little(tail, at + 32, 2);
      const std::string path = tail.substr(at + 46, name);
      if (path.find("/data/") != std::string::npos) {
        ++tensors;
        bytes += static_cast<int64_t>(size);
      }
      at += 46 + name + extra + comment;
    }
  }
  Json dtypes = Json::object();
  for (const auto& [name, size] : by_dtype) dtypes[name] = size;
  if (!parameters) parameters = bytes / 4;
  return {{"tensors", tensors},
          {"bytes", bytes},
          {"parameters", parameters},
          {"dtypes", dtypes},
          {"counted", !by_dtype.empty()}};
}

}  // namespace mica::lab
