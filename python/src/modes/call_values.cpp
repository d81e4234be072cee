#include "modes/call_values.h"

#include <stdexcept>

#include "modes/comparison.h"
#include "modes/tensor_form.h"
#include "tensor/tensor_object.h"

namespace mica::python {

PyObject* item_of(PyObject* tuple, Py_ssize_t i) {
  if (!PyTuple_CheckExact(tuple) || i >= PyTuple_GET_SIZE(tuple)) throw Malformed();
  return PyTuple_GET_ITEM(tuple, i);
}
uint32_t number_of(PyObject* number, size_t below) {
  const long value = PyLong_CheckExact(number) ? PyLong_AsLong(number) : -1;
  if (value < 0 || static_cast<size_t>(value) >= below) throw Malformed();
  return static_cast<uint32_t>(value);
}

CallValue::CallValue(PyObject* encoded, size_t slots) : kind_(static_cast<Kind>(number_of(item_of(encoded, 0), 5))) {
  PyObject* content = item_of(encoded, 1);
  if (kind_ == Kind::kConstant) {
    constant_ = content;
  } else if (kind_ == Kind::kSlot) {
    slot_ = number_of(content, slots);
  } else {
    if (!PyTuple_CheckExact(content)) throw Malformed();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(content); ++i) items_.emplace_back(item_of(content, i), slots);
    if (kind_ == Kind::kDict) {
      constant_ = item_of(encoded, 2);
      if (!PyTuple_CheckExact(constant_) || PyTuple_GET_SIZE(constant_) != PyTuple_GET_SIZE(content)) throw Malformed();
    }
  }
}

PyObject* CallValue::made(const Slots& slots) const {
  const auto size = static_cast<Py_ssize_t>(items_.size());
  switch (kind_) {
    case Kind::kConstant:
      return Py_NewRef(constant_);
    case Kind::kSlot:
      if (!slots[slot_]) throw std::runtime_error("a list of calls asks for a slot that no call has filled");
      return Py_NewRef(slots[slot_].get());
    case Kind::kList:
    case Kind::kTuple: {
      const bool is_list = kind_ == Kind::kList;
      Owned made(checked(is_list ? PyList_New(size) : PyTuple_New(size)));
      for (Py_ssize_t i = 0; i < size; ++i) {
        PyObject* item = items_[static_cast<size_t>(i)].made(slots);
        if (is_list)
          PyList_SET_ITEM(made.get(), i, item);
        else
          PyTuple_SET_ITEM(made.get(), i, item);
      }
      return made.release();
    }
    case Kind::kDict: {
      Owned made(checked(PyDict_New()));
      for (Py_ssize_t i = 0; i < size; ++i) {
        Owned item(items_[static_cast<size_t>(i)].made(slots));
        if (PyDict_SetItem(made.get(), PyTuple_GET_ITEM(constant_, i), item.get()) < 0) throw PythonError();
      }
      return made.release();
    }
  }
  return nullptr;
}

bool CallValue::is(PyObject* object, const Slots& slots) const {
  return object == (kind_ == Kind::kSlot ? slots[slot_].get() : constant_);
}

ResultPattern::ResultPattern(PyObject* encoded, size_t slots)
    : kind_(static_cast<Kind>(number_of(item_of(encoded, 0), 4))) {
  PyObject* content = item_of(encoded, 1);
  if (kind_ == Kind::kThis) {
    itself_.emplace(content, slots);
  } else if (kind_ == Kind::kConstant) {
    content_ = content;
  } else if (kind_ == Kind::kTensor) {
    slot_ = number_of(content, slots);
    content_ = item_of(encoded, 2);
    if (!PyBytes_CheckExact(content_)) throw Malformed();
  } else {
    if (!PyTuple_CheckExact(content)) throw Malformed();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(content); ++i) items_.emplace_back(item_of(content, i), slots);
  }
}

bool ResultPattern::take(PyObject* result, Slots& slots) const {
  switch (kind_) {
    case Kind::kThis:
      return itself_->is(result, slots);
    case Kind::kConstant:
      return is_same_value(result, content_);
    case Kind::kTensor:
      if (!is_exact_tensor(result) ||
          !has_form(unwrap(result), {PyBytes_AS_STRING(content_), static_cast<size_t>(PyBytes_GET_SIZE(content_))}))
        return false;
      slots[slot_] = Owned::borrow(result);
      return true;
    case Kind::kItems: {
      if (!PyList_Check(result) && !PyTuple_Check(result)) return false;
      if (PySequence_Fast_GET_SIZE(result) != static_cast<Py_ssize_t>(items_.size())) return false;
      for (size_t i = 0; i < items_.size(); ++i)
        if (!items_[i].take(PySequence_Fast_GET_ITEM(result, static_cast<Py_ssize_t>(i)), slots)) return false;
      return true;
    }
  }
  return false;
}

}  // namespace mica::python
