// The tensors of a file of weights, from the part of it that lists them: the header of a safetensors file, or the
// directory and the pickle of a torch checkpoint, which is a zip archive.
#include <algorithm>
#include <array>
#include <set>

#include "instruments.h"
#include "src/io/pickle_values.h"

namespace mica::lab {

namespace {

struct Listed {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t bytes;
  int64_t numel() const {
    int64_t n = 1;
    for (const int64_t size : shape) MICA_CHECK(!__builtin_mul_overflow(n, size, &n), name, " is too large");
    return n;
  }
};

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

std::vector<Listed> safetensors(const Json& header) {
  std::vector<Listed> list;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    const Json& range = entry.at("data_offsets");
    list.push_back({key, entry.at("dtype").get<std::string>(), entry.at("shape").get<std::vector<int64_t>>(),
                    range.at(1).get<int64_t>() - range.at(0).get<int64_t>()});
  }
  return list;
}

struct Entry {
  std::string path;
  uint64_t size, compressed, offset;
  bool stored;
};

std::vector<Entry> directory_of(const std::string& tail) {
  const size_t end = tail.rfind("PK\5\6");
  MICA_CHECK(end != std::string::npos, "not a torch checkpoint: it has no zip directory");
  const auto entries = little(tail, end + 10, 2), directory = little(tail, end + 12, 4);
  // A 64-bit end record of 56 bytes and its locator of 20 may stand between the directory and the end.
  const size_t stop = end >= 76 && tail.compare(end - 20, 4, "PK\6\7") == 0 ? end - 76 : end;
  MICA_CHECK(directory <= stop, "the directory of the archive is larger than what was read of the file");
  size_t at = stop - directory;
  std::vector<Entry> list;
  for (uint64_t i = 0; i < entries && tail.compare(at, 4, "PK\1\2") == 0; ++i) {
    const auto name = little(tail, at + 28, 2), extra = little(tail, at + 30, 2), comment = little(tail, at + 32, 2);
    list.push_back({tail.substr(at + 46, name), little(tail, at + 24, 4), little(tail, at + 20, 4),
                    little(tail, at + 42, 4), little(tail, at + 10, 2) == 0});
    at += 46 + name + extra + comment;
  }
  return list;
}

// Every tensor in a value, by the path of keys that leads to it; one that was seen already is not counted again.
void gather(const Value& value, const std::string& path, std::set<const void*>& seen, std::vector<Listed>& list) {
  const auto inner = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (value.is_tensor()) {
    const Tensor& t = value.as_tensor();
    if (!seen.insert(t.storage().get()).second) return;
    list.push_back({path, name(t.dtype()), std::vector<int64_t>(t.sizes().begin(), t.sizes().end()),
                    static_cast<int64_t>(t.storage()->nbytes())});
  } else if (value.kind() == Value::Kind::Dict) {
    for (const auto& [key, entry] : value.as_entries())
      gather(entry, inner(key.kind() == Value::Kind::String ? key.as_string() : "?"), seen, list);
  } else if (value.kind() == Value::Kind::List || value.kind() == Value::Kind::Tuple) {
    for (size_t i = 0; i < value.size(); ++i) gather(value[i], inner(std::to_string(i)), seen, list);
  }
}

// `bytes` begins with the entry's own header, as it stands in the file.
std::vector<Listed> pickled(const std::string& bytes, const Entry& entry) {
  MICA_CHECK(bytes.compare(0, 4, "PK\3\4") == 0, "the archive's pickle is not where its directory says");
  const size_t begin = 30 + little(bytes, 26, 2) + little(bytes, 28, 2);
  MICA_CHECK(begin + entry.size <= bytes.size(), "the file ends too early");
  const Device meta{DeviceType::Meta};
  std::map<std::string, Storage> storages;
  const Value value =
      io::unpickle(std::string_view(bytes).substr(begin, entry.size), [&](const io::StorageReference& r) {
        Storage& s = storages[r.key];
        if (!s) s = StorageImpl::allocate(static_cast<size_t>(r.count * element_size(r.dtype)), meta);
        return s;
      });
  std::vector<Listed> list;
  std::set<const void*> seen;
  gather(value, "", seen, list);
  return list;
}

bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

// The number of the layer that a tensor is of: the first whole number in its name; -1: none.
int64_t layer_of(const std::string& name) {
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    const std::string word = name.substr(at, end - at);
    if (!word.empty() && word.size() < 6 &&
        std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return std::stoll(word);
    at = end + 1;
  }
  return -1;
}

// What the tensors say of the model: a transformer by its attention, and else what its layers put out for a sample.
Json model_of(const std::vector<Listed>& list) {
  std::set<int64_t> layers;
  int64_t width = 0, query = 0, key = 0, convolutions = 0;
  double outputs = 0, widest = 0;
  for (const Listed& t : list) {
    if (t.shape.size() > 2) ++convolutions;
    if (t.shape.size() != 2) continue;
    if (has(t.name, "attn") || has(t.name, "attention")) {
      const bool packed =
          has(t.name, "c_attn") || has(t.name, "qkv") || has(t.name, "in_proj") || has(t.name, "query_key_value");
      if (has(t.name, "q_proj") || has(t.name, "query") || has(t.name, "wq") || packed) {
        if (const int64_t layer = layer_of(t.name); layer >= 0) layers.insert(layer);
        width = packed ? std::min(t.shape[0], t.shape[1]) : t.shape[1];
        query = packed ? width : t.shape[0];
        if (packed) key = width;
      } else if (has(t.name, "k_proj") || has(t.name, ".key") || has(t.name, "wk")) {
        key = t.shape[0];
      }
    }
    if (has(t.name, "embed") || has(t.name, "wte") || has(t.name, "wpe")) continue;
    outputs += static_cast<double>(t.shape[0]);
    widest = std::max(widest, static_cast<double>(std::max(t.shape[0], t.shape[1])));
  }
  if (!layers.empty() && width > 0) {
    const int64_t head = width >= 2048 ? 128 : 64, heads = std::max<int64_t>(1, query / head);
    return {{"layers", layers.size()},
            {"width", width},
            {"heads", heads},
            {"kv_heads", std::max<int64_t>(1, key ? heads * key / query : heads)}};
  }
  return {{"outputs", std::max(outputs, 1.0)}, {"widest", widest}, {"convolutions", convolutions}};
}

}  // namespace

Json weights_file(const Json& question) {
  const std::string kind = question.at("kind").get<std::string>();
  std::vector<Listed> list;
  if (kind == "safetensors") {
    list = safetensors(Json::parse(question.at("header").get<std::string>()));
  } else {
    MICA_CHECK(kind == "zip", "a safetensors file or a torch checkpoint is expected");
    const std::vector<Entry> entries = directory_of(from_base64(question.at("tail").get<std::string>()));
    const auto pickle = std::find_if(entries.begin(), entries.end(), [](const Entry& e) {
      return e.path.ends_with("/data.pkl") || e.path == "data.pkl";
    });
    MICA_CHECK(pickle != entries.end(), "not a torch checkpoint: the archive has no data.pkl");
    MICA_CHECK(pickle->stored, "the pickle of this checkpoint is compressed, which torch does not do");
    // The page is told where the pickle lies, reads that part of the file and asks again.
    if (!question.contains("pickle")) return {{"wants", {{"offset", pickle->offset}, {"size", pickle->size + 66000}}}};
    list = pickled(from_base64(question.at("pickle").get<std::string>()), *pickle);
  }
  int64_t bytes = 0, parameters = 0;
  Json dtypes = Json::object();
  for (const Listed& t : list) {
    bytes += t.bytes;
    parameters += t.numel();
    Json& of = dtypes[t.dtype];
    if (of.is_null()) of = {{"parameters", 0}, {"bytes", 0}};
    of["parameters"] = of["parameters"].get<int64_t>() + t.numel();
    of["bytes"] = of["bytes"].get<int64_t>() + t.bytes;
  }
  return {{"tensors", list.size()},
          {"bytes", bytes},
          {"parameters", parameters},
          {"dtypes", dtypes},
          {"model", model_of(list)}};
}

}  // namespace mica::lab
