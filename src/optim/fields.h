// Reads or writes the fields of a dict by torch's names, so that one list of fields serves saving and loading.
#pragma once

#include <array>
#include <optional>

#include "mica/optim/number.h"
#include "mica/serialize.h"

namespace mica::optim {

class Fields {
 public:
  static Fields writer() { return Fields(Value::dict(), false); }
  static Fields reader(const Value& dict) { return Fields(dict, true); }  // fields that are not there stay as they are

  template <class T>
  void operator()(const char* name, T& field) {
    if (!loads_)
      dict_.set(name, to_value(field));
    else if (const Value* found = dict_.find(name))
      from_value(*found, field);
  }
  // An entry that torch has and nothing here uses.
  void none(const char* name) {
    if (!loads_) dict_.set(name, Value());
  }
  // Options that torch leaves open unless they are set.
  void flag_or_none(const char* name, bool& field) {
    if (!loads_)
      dict_.set(name, field ? Value(true) : Value());
    else if (const Value* found = dict_.find(name))
      field = !found->is_none() && found->as_bool();
  }
  // Text that may be left out, which leaves the field as it is.
  void text_or_none(const char* name, std::string& field) {
    if (!loads_)
      dict_.set(name, Value(field));
    else if (const Value* found = dict_.find(name); found && !found->is_none())
      field = found->as_string();
  }
  // A pair of which the first may be None.
  void operator()(const char* name, std::optional<double>& first, double& second) {
    if (!loads_) {
      dict_.set(name, Value::tuple({first ? Value(*first) : Value(), second}));
    } else if (const Value* pair = dict_.find(name)) {
      first = (*pair)[0].is_none() ? std::nullopt : std::optional((*pair)[0].as_double());
      second = (*pair)[1].as_double();
    }
  }
  // An option that torch has and that always has this value here.
  void constant(const char* name, bool value) {
    if (!loads_) dict_.set(name, Value(value));
  }
  bool loads() const { return loads_; }
  const Value& dict() const { return dict_; }

 private:
  Fields(Value dict, bool loads) : dict_(std::move(dict)), loads_(loads) {}

  template <class T>
  static Value to_value(const T& field) {
    return Value(field);
  }
  static Value to_value(const Number& n) { return n.is_tensor() ? Value(n.tensor()) : Value(n.value()); }
  template <class T, size_t n>
  static Value to_value(const std::array<T, n>& fields) {
    std::vector<Value> items;
    for (const T& field : fields) items.push_back(to_value(field));
    return Value::tuple(std::move(items));
  }
  static Value to_value(const std::vector<double>& numbers) {
    return Value::list(std::vector<Value>(numbers.begin(), numbers.end()));
  }

  static void from_value(const Value& v, bool& field) { field = v.as_bool(); }
  static void from_value(const Value& v, int64_t& field) {
    field = v.kind() == Value::Kind::Double ? static_cast<int64_t>(v.as_double()) : v.as_int();
  }
  static void from_value(const Value& v, double& field) { field = v.as_double(); }
  static void from_value(const Value& v, std::string& field) { field = v.as_string(); }
  static void from_value(const Value& v, Number& field) {
    field = v.is_tensor() ? Number(v.as_tensor().clone()) : Number(v.as_double());
  }
  template <class T, size_t n>
  static void from_value(const Value& v, std::array<T, n>& fields) {
    MICA_CHECK_KIND(v.as_list().size() == n, Value, "expected ", n, " numbers, but got ", v.as_list().size());
    for (size_t i = 0; i < n; ++i) from_value(v[i], fields[i]);
  }
  static void from_value(const Value& v, std::vector<double>& numbers) {
    numbers.clear();
    for (const Value& each : v.as_list()) numbers.push_back(each.as_double());
  }

  Value dict_;
  bool loads_;
};

}  // namespace mica::optim
