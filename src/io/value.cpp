#include <array>
#include <bit>

#include "mica/serialize.h"

namespace mica {

namespace {

constexpr std::array<const char*, 11> kKindNames = {"None",   "a bool",   "an integer", "a number", "a string", "bytes",
                                                    "a name", "a tensor", "a list",     "a tuple",  "a dict"};

}  // namespace

Value::Value() = default;
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;

Value::Value(const std::vector<mica::Tensor>& tensors) : Value(list({tensors.begin(), tensors.end()})) {}

Value::Value(const NamedTensors& tensors) : Value(dict()) {
  for (const auto& [name, tensor] : tensors) set(name, tensor);
}

Value::Value(const std::map<std::string, mica::Tensor>& tensors) : Value(dict()) {
  for (const auto& [name, tensor] : tensors) set(name, tensor);
}

Value Value::container(Kind kind, std::vector<Value> items) {
  Value value;
  value.data_ = std::shared_ptr<Container>(new Container{kind, std::move(items), {}});
  return value;
}

Value Value::dict(const std::vector<std::pair<Value, Value>>& entries) {
  Value made = container(Kind::Dict, {});
  for (const auto& [key, value] : entries) made.set(key, value);
  return made;
}

// Takes over the items of containers that die with this one, instead of destroying them recursively.
Value::Container::~Container() {
  std::vector<Value> doomed = std::move(items);
  while (!doomed.empty()) {
    Value last = std::move(doomed.back());
    doomed.pop_back();
    auto* inner = std::get_if<std::shared_ptr<Container>>(&last.data_);
    if (inner && inner->use_count() == 1)
      for (Value& item : (*inner)->items) doomed.push_back(std::move(item));
  }
}

Value::Kind Value::kind() const {
  struct Visitor {
    Kind operator()(std::monostate) const { return Kind::None; }
    Kind operator()(bool) const { return Kind::Bool; }
    Kind operator()(int64_t) const { return Kind::Int; }
    Kind operator()(double) const { return Kind::Double; }
    Kind operator()(const Text& t) const { return t.kind; }
    Kind operator()(const mica::Tensor&) const { return Kind::Tensor; }
    Kind operator()(const std::shared_ptr<Container>& c) const { return c->kind; }
  };
  return std::visit(Visitor{}, data_);
}

void Value::is_no(const char* wanted) const {
  fail(ErrorKind::Type, cat("the value is ", kKindNames[static_cast<size_t>(kind())], ", not ", wanted));
}

Value::Container& Value::container_of(Kind wanted) const {
  const auto* c = std::get_if<std::shared_ptr<Container>>(&data_);
  if (!c || (*c)->kind != wanted) is_no(kKindNames[static_cast<size_t>(wanted)]);
  return **c;
}

bool Value::as_bool() const {
  if (const auto* v = std::get_if<bool>(&data_)) return *v;
  is_no("a bool");
}

int64_t Value::as_int() const {
  if (const auto* v = std::get_if<int64_t>(&data_)) return *v;
  is_no("an integer");
}

double Value::as_double() const {
  if (const auto* v = std::get_if<double>(&data_)) return *v;
  if (const auto* v = std::get_if<int64_t>(&data_)) return static_cast<double>(*v);
  is_no("a number");
}

const std::string& Value::as_string() const {
  if (const auto* v = std::get_if<Text>(&data_)) return v->text;
  is_no("a string");
}

const Tensor& Value::as_tensor() const {
  if (const auto* v = std::get_if<mica::Tensor>(&data_)) return *v;
  is_no("a tensor");
}

const std::vector<Value>& Value::as_list() const {
  return container_of(kind() == Kind::Tuple ? Kind::Tuple : Kind::List).items;
}

const std::vector<Value>& Value::items() const {
  return kind() == Kind::Dict ? container_of(Kind::Dict).items : as_list();
}

void Value::clear() const {
  Container& container = container_of(kind());
  const std::vector<Value> doomed = std::exchange(container.items, {});
  container.places.clear();
}

std::vector<Tensor> Value::as_tensors() const {
  std::vector<mica::Tensor> tensors;
  for (const Value& item : as_list()) tensors.push_back(item.as_tensor());
  return tensors;
}

std::vector<std::pair<Value, Value>> Value::as_entries() const {
  const auto& items = container_of(Kind::Dict).items;
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i + 1 < items.size(); i += 2) entries.emplace_back(items[i], items[i + 1]);
  return entries;
}

NamedTensors Value::as_named_tensors() const {
  NamedTensors tensors;
  for (const auto& [key, value] : as_entries()) tensors.emplace_back(key.as_string(), value.as_tensor());
  return tensors;
}

size_t Value::size() const {
  return kind() == Kind::Dict ? container_of(Kind::Dict).items.size() / 2 : as_list().size();
}

const Value& Value::operator[](size_t i) const {
  const auto& items = as_list();
  MICA_CHECK_KIND(i < items.size(), Index, "item ", i, " of ", items.size());
  return items[i];
}

std::string Value::place_name() const {
  if (kind() == Kind::String) return "s" + as_string();
  if (kind() == Kind::Double) return "d" + std::to_string(std::bit_cast<uint64_t>(as_double()));
  return kind() == Kind::Int ? "i" + std::to_string(as_int()) : std::string();
}

const Value* Value::find(const Value& key) const {
  const Container& dict = container_of(Kind::Dict);
  if (const std::string name = key.place_name(); !name.empty()) {
    const auto place = dict.places.find(name);
    return place == dict.places.end() ? nullptr : &dict.items[place->second];
  }
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
    if (dict.items[i] == key) return &dict.items[i + 1];
  return nullptr;
}

const Value& Value::at(const Value& key) const {
  const Value* found = find(key);
  if (found) return *found;
  const std::string shown = key.kind() == Kind::String ? key.as_string() : kKindNames[static_cast<size_t>(key.kind())];
  fail(ErrorKind::Index, cat("the dict has no entry ", shown));
}

void Value::push_back(Value item) const { container_of(Kind::List).items.push_back(std::move(item)); }

void Value::set(const Value& key, Value value) const {
  if (const Value* found = find(key)) {
    const_cast<Value&>(*found) = std::move(value);
  } else {
    Container& dict = container_of(Kind::Dict);
    dict.items.push_back(key);
    dict.items.push_back(std::move(value));
    if (std::string name = key.place_name(); !name.empty()) dict.places.emplace(std::move(name), dict.items.size() - 1);
  }
}

bool Value::operator==(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_tensor()) return as_tensor().is_same(other.as_tensor());
  if (const auto* v = std::get_if<int64_t>(&data_)) return *v == std::get<int64_t>(other.data_);
  if (const auto* v = std::get_if<double>(&data_)) return *v == std::get<double>(other.data_);
  if (const auto* v = std::get_if<bool>(&data_)) return *v == std::get<bool>(other.data_);
  if (const auto* v = std::get_if<Text>(&data_)) return *v == std::get<Text>(other.data_);
  if (const auto* v = std::get_if<std::shared_ptr<Container>>(&data_))
    return *v == std::get<std::shared_ptr<Container>>(other.data_);
  return true;
}

}  // namespace mica
