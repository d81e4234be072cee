// The bindings of each optimizer: how its options are read from a parameter group, and the names of its states.
#pragma once

#include <vector>

#include "mica/optim/steps.h"
#include "training/optim.h"

namespace mica::python {

// Reads every option of an optimizer, which optim::visit_options shows it, from the group.
class OptionReader {
 public:
  explicit OptionReader(const OptionDict& group) : group_(group) {}

  void operator()(const char* name, optim::Number& value) const { value = group_.number(name); }
  void operator()(const char* name, double& value) const { value = group_.real(name); }
  void operator()(const char* name, int64_t& value) const { value = group_.integer(name); }
  void operator()(const char* name, bool& value) const { value = group_.flag(name); }
  void flag_or_none(const char* name, bool& value) const { value = group_.flag(name); }
  void text_or_none(const char* name, std::string& value) const {
    PyObject* text = group_.find(name);
    if (!text || text == Py_None) return;
    const char* characters = PyUnicode_AsUTF8(text);
    if (!characters) throw PythonError();
    value = characters;
  }
  template <size_t N>
  void operator()(const char* name, std::array<optim::Number, N>& values) const {
    const Owned list = several(name, N);
    for (size_t i = 0; i < N; ++i) values[i] = number_from_object(item(list, i));
  }
  template <size_t N>
  void operator()(const char* name, std::array<double, N>& values) const {
    const Owned list = several(name, N);
    for (size_t i = 0; i < N; ++i) values[i] = real_from_object(item(list, i));
  }
  void operator()(const char* name, std::optional<double>& first, double& second) const {
    const Owned pair = several(name, 2);
    if (item(pair, 0) != Py_None) first = real_from_object(item(pair, 0));
    second = real_from_object(item(pair, 1));
  }
  void none(const char*) const {}
  void constant(const char*, bool) const {}

 private:
  Owned several(const char* name, size_t count) const {
    Owned list(checked(PySequence_Fast(group_.at(name), "expected a sequence of numbers")));
    MICA_CHECK_KIND(PySequence_Fast_GET_SIZE(list.get()) == static_cast<Py_ssize_t>(count), Value, name, " must be ",
                    count, " numbers");
    return list;
  }
  static PyObject* item(const Owned& list, size_t i) {
    return PySequence_Fast_GET_ITEM(list.get(), static_cast<Py_ssize_t>(i));
  }

  const OptionDict& group_;
};

// A state of an optimizer with its name as a Python string.
template <class Item>
struct StateKey : optim::StateField<Item> {
  PyObject* key;
};

template <class ItemType, class OptionsType, void (*kStep)(std::span<ItemType>, const OptionsType&)>
struct RuleOf {
  using Item = ItemType;
  using Options = OptionsType;
  static void step(std::vector<Item>& items, const Options& o) { kStep(items, o); }
  static Options options(const OptionDict& group) {
    Options o;
    const OptionReader reader(group);
    optim::visit_options(o, reader);
    return o;
  }
  static const std::vector<StateKey<Item>>& fields() {
    static const std::vector<StateKey<Item>> list = [] {
      std::vector<StateKey<Item>> keys;
      for (const auto& field : optim::state_fields<Item>())
        keys.push_back({field, PyUnicode_InternFromString(field.name)});
      return keys;
    }();
    return list;
  }
  static bool capturable(const Options& o) {
    if constexpr (requires { o.capturable; }) return o.capturable;
    return false;
  }
  static bool fused(const Options& o) {
    if constexpr (requires { o.fused; }) return o.fused;
    return false;
  }
};

}  // namespace mica::python
