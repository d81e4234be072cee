// What a list of calls is made of: values that a call is given, and patterns of what it has to return. Both come from
// Python as tuples (mica/_dynamo/replay/call_lists.py).
#pragma once

#include <optional>
#include <vector>

#include "object.h"

namespace mica::python {

struct Malformed {};  // thrown for a tuple that is not as described here

PyObject* item_of(PyObject* tuple, Py_ssize_t i);
uint32_t number_of(PyObject* number, size_t below);

// Where the calls of a list leave tensors for those behind them.
using Slots = std::vector<Owned>;

// An argument of a call, or what a list returns:
// (0, constant), (1, slot), (2, values) a list, (3, values) a tuple, (4, values, keys) a dict
class CallValue {
 public:
  CallValue(PyObject* encoded, size_t slots);
  PyObject* made(const Slots& slots) const;             // a new reference
  bool is(PyObject* object, const Slots& slots) const;  // whether a constant or what is in a slot is this very object

 private:
  enum class Kind : uint8_t { kConstant, kSlot, kList, kTuple, kDict };
  Kind kind_;
  uint32_t slot_ = 0;
  PyObject* constant_ = nullptr;  // or the keys of a dict; the list's tuple holds it
  std::vector<CallValue> items_;
};

// What a call has to return:
// (0, value) the tensor of a slot or a constant itself, (1, slot, form) a tensor, (2, patterns) a list or tuple, (3,
// constant) an equal number or text
class ResultPattern {
 public:
  ResultPattern(PyObject* encoded, size_t slots);
  bool take(PyObject* result, Slots& slots) const;  // whether it fits; tensors are put into their slots

 private:
  enum class Kind : uint8_t { kThis, kTensor, kItems, kConstant };
  Kind kind_;
  uint32_t slot_ = 0;
  PyObject* content_ = nullptr;  // the form, or the constant
  std::optional<CallValue> itself_;
  std::vector<ResultPattern> items_;
};

}  // namespace mica::python
