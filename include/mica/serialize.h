// Checkpoints: files in torch's format, which torch.load and mica.load open, and back.
#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "mica/tensor.h"

namespace mica {

// A pair, with libtorch's names for its parts too.
struct NamedTensor : std::pair<std::string, Tensor> {
  using std::pair<std::string, Tensor>::pair;
  const std::string& key() const { return first; }
  const Tensor& value() const { return second; }
};
using NamedTensors = std::vector<NamedTensor>;

// What a checkpoint holds: a tensor, a plain value, or a container of such. Copies of a container are the same
// container, as in Python.
class Value {
 public:
  enum class Kind : uint8_t { None, Bool, Int, Double, String, Bytes, Name, Tensor, List, Tuple, Dict };

  Value();  // None
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();
  Value(bool v) : data_(v) {}
  Value(int v) : data_(int64_t{v}) {}
  Value(int64_t v) : data_(v) {}
  Value(double v) : data_(v) {}
  Value(const char* v) : data_(Text{Kind::String, v}) {}
  Value(std::string v) : data_(Text{Kind::String, std::move(v)}) {}
  Value(Tensor v) : data_(std::move(v)) {}
  Value(const std::vector<Tensor>& tensors);            // a list
  Value(const NamedTensors& tensors);                   // a dict
  Value(const std::map<std::string, Tensor>& tensors);  // a dict
  static Value bytes(std::string v) { return Value(Text{Kind::Bytes, std::move(v)}); }
  // A class or a dtype, by its name: "torch.float32". Loading never calls it.
  static Value name(std::string v) { return Value(Text{Kind::Name, std::move(v)}); }
  static Value list(std::vector<Value> items = {}) { return container(Kind::List, std::move(items)); }
  static Value tuple(std::vector<Value> items = {}) { return container(Kind::Tuple, std::move(items)); }
  static Value dict(const std::vector<std::pair<Value, Value>>& entries = {});

  Kind kind() const;
  bool is_none() const { return kind() == Kind::None; }
  bool is_tensor() const { return kind() == Kind::Tensor; }

  // The contents; each function throws if the value is of another kind.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;  // of an integer too
  const std::string& as_string() const;
  const Tensor& as_tensor() const;
  std::vector<Tensor> as_tensors() const;     // of a list or tuple of tensors
  NamedTensors as_named_tensors() const;      // of a dict from strings to tensors
  const std::vector<Value>& as_list() const;  // of a list or tuple
  std::vector<std::pair<Value, Value>> as_entries() const;
  const std::vector<Value>& items() const;  // of a list or tuple, or of a dict: its keys and values in turns

  size_t size() const;                            // the number of items, or of entries of a dict
  const Value& operator[](size_t i) const;        // of a list or tuple
  const Value& at(const Value& key) const;        // of a dict; throws if there is none
  const Value* find(const Value& key) const;      // of a dict; null if there is none
  void push_back(Value item) const;               // to a list
  void set(const Value& key, Value value) const;  // in a dict: replaces or adds at the end
  void clear() const;                             // of a list, tuple or dict

  // Compares plain values; tensors and containers are equal if they are the same one.
  bool operator==(const Value& other) const;

 private:
  struct Text {
    Kind kind;
    std::string text;
    bool operator==(const Text&) const = default;
  };
  struct Container {
    Kind kind;
    std::vector<Value> items;                        // of a dict: keys and values, in turns
    std::unordered_map<std::string, size_t> places;  // the places of those keys of a dict that are strings or numbers
    ~Container();                                    // frees containers of any depth
  };
  explicit Value(Text text) : data_(std::move(text)) {}
  static Value container(Kind kind, std::vector<Value> items);
  Container& container_of(Kind kind) const;
  std::string place_name() const;  // empty for a key that is neither a string nor a number
  [[noreturn]] void is_no(const char* wanted) const;

  std::variant<std::monostate, bool, int64_t, double, Text, mica::Tensor, std::shared_ptr<Container>> data_;
};

// The file appears under its path when it is complete. Until then a file of that name stays as it was.
void save(const Value& value, const std::string& path);
void save(const Value& value, std::ostream& stream);

struct LoadOptions {
  // The device of all tensors; without it, the devices that the file names.
  std::optional<Device> device = std::nullopt;
  bool mmap = false;  // map the file, so that bytes are read when they are used (paths only)
};

// Throws Error for a file that is damaged, and for one that holds more than tensors, plain values and containers: it
// then names the class. Runs nothing that the file names. A list that holds itself is refused: it would never be freed.
Value load(const std::string& path, const LoadOptions& options = {});
Value load(std::istream& stream, const LoadOptions& options = {});

// As torch::load has it.
inline void load(Tensor& tensor, const std::string& path) { tensor = load(path).as_tensor(); }
inline void load(std::vector<Tensor>& tensors, const std::string& path) { tensors = load(path).as_tensors(); }

}  // namespace mica
