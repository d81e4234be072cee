// Choosing the signature that a call fits.
#include "parser.h"

#include "mica/autograd.h"
#include "mica/warning.h"
#include "torch_function.h"

namespace mica::python {

void Parser::build() {
  auto* built = new Signature[count_];
  for (size_t i = 0; i < count_; ++i) built[i] = parse_signature(texts_[i]);
  signatures_ = built;
}

// Checks of single arguments. They note tensors' sizes and arguments that override __torch_function__.
struct Matcher {
  Arguments& a;
  Failure& failure;

  bool note_overload(PyObject* o) {
    for (int i = 0; i < a.num_overloaded_; ++i)
      if (Py_TYPE(a.overloaded_[i]) == Py_TYPE(o)) return true;
    if (a.num_overloaded_ < static_cast<int>(std::size(a.overloaded_))) a.overloaded_[a.num_overloaded_++] = o;
    return true;
  }

  bool tensor(PyObject* o) {
    if (is_exact_tensor(o)) [[likely]] {
      a.elements_ += unwrap(o).numel();
      return true;
    }
    if (is_tensor(o)) {
      a.elements_ += unwrap(o).numel();
      if (overrides_torch_function(o)) note_overload(o);
      return true;
    }
    return false;
  }

  bool tensors(PyObject* list, bool none_allowed) {
    if (!PyTuple_Check(list) && !PyList_Check(list)) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); ++i) {
      PyObject* o = PySequence_Fast_GET_ITEM(list, i);
      if (tensor(o) || (none_allowed && o == Py_None)) continue;
      if (overrides_torch_function(o)) {
        note_overload(o);
        continue;
      }
      failure.element = i;
      failure.object = o;
      failure.reason = Failure::WrongElement;
      return false;
    }
    return true;
  }

  static bool first_is(PyObject* list, bool (*check)(PyObject*)) {
    if (!PyTuple_Check(list) && !PyList_Check(list)) return false;
    return PySequence_Fast_GET_SIZE(list) == 0 || check(PySequence_Fast_GET_ITEM(list, 0));
  }

  bool value(const Param& p, PyObject* o) {
    switch (p.kind) {
      case Kind::Tensor:
        return tensor(o) || (p.allow_numbers && (a.numbers_used_ = is_number_like(o)));
      case Kind::Scalar:
        return is_number_like(o) && !(p.plain_numbers && is_tensor(o));
      case Kind::Int:
        return is_int_like(o);
      case Kind::Double:
        return !PyComplex_Check(o) && is_number_like(o);
      case Kind::Bool:
        return PyBool_Check(o);
      case Kind::String:
        return PyUnicode_Check(o);
      case Kind::Ints:
        return first_is(o, [](PyObject* item) { return is_int_like(item) || overrides_torch_function(item); }) ||
               (p.list_size > 0 && is_int_like(o));
      case Kind::Doubles:
      case Kind::Scalars:
        return first_is(o, is_number_like) || (p.list_size > 0 && is_number_like(o));
      case Kind::Bools:
        return first_is(o, [](PyObject* item) -> bool { return PyBool_Check(item); });
      case Kind::Tensors:
        return tensors(o, false);
      case Kind::OptionalTensors:
        return tensors(o, true);
      case Kind::Outs:
        return PyTuple_Check(o) && tensors(o, false);
      case Kind::DType:
        return is_dtype_like(o);
      case Kind::Layout:
        return is_layout(o);
      case Kind::Device:
        return is_device_like(o);
      case Kind::MemoryFormat:
        return is_memory_format(o);
      case Kind::Generator:
        return is_generator(o);
    }
    return false;
  }

  bool check(const Param& p, PyObject* o) {
    failure.reason = Failure::WrongType;
    if (value(p, o)) [[likely]]
      return true;
    return !is_tensor(o) && overrides_torch_function(o) && note_overload(o);
  }
};

static bool same_name(PyObject* keyword, PyObject* name) {
  return keyword == name || (!PyUnicode_CHECK_INTERNED(keyword) && PyUnicode_Compare(keyword, name) == 0);
}

static PyObject* find_keyword(const Param& p, PyObject* const* values, PyObject* kwnames) {
  const Py_ssize_t n = PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < n; ++i)
    if (same_name(PyTuple_GET_ITEM(kwnames, i), p.name)) return values[i];
  if (!p.numpy_names) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i)
    for (const char* const* other = p.numpy_names; *other; ++other)
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), *other) == 0) return values[i];
  return nullptr;
}

bool match(const Signature& s, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Arguments& a,
           Failure& failure) {
  const bool method = self != nullptr;
  const bool varargs = s.varargs[method] && nargs > 0 && is_int_like(args[0]);
  if (nargs > s.max_positional[method] && !varargs) {
    failure.reason = Failure::TooManyPositional;
    return false;
  }
  Matcher matcher{a, failure};
  a.signature_ = &s;
  a.elements_ = 0;
  a.varargs_index_ = -1;
  a.num_overloaded_ = 0;
  a.numbers_used_ = false;
  const Py_ssize_t num_keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  Py_ssize_t position = 0, keywords_used = 0;
  const int count = static_cast<int>(s.params.size());
  const Param* params = s.params.data();
  for (int i = 0; i < count; ++i) {
    if (position == nargs && keywords_used == num_keywords && i >= s.optional_from[method]) {
      for (; i < count; ++i) a.values_[i] = nullptr;
      return true;
    }
    const Param& p = params[i];
    if (method && i == s.self_index) {
      matcher.tensor(self);
      a.values_[i] = self;
      continue;
    }
    a.values_[i] = nullptr;
    if (method && p.function_only) continue;
    PyObject* o = nullptr;
    failure.position = -1;
    if (position < nargs && !p.keyword_only) {
      if (varargs) {
        a.varargs_index_ = i;
        a.varargs_ = args;
        a.num_varargs_ = position = nargs;
        a.values_[i] = args[0];
        continue;
      }
      failure.position = static_cast<int>(position);
      o = args[position++];
    } else if (keywords_used < num_keywords) {
      o = find_keyword(p, args + nargs, kwnames);
      if (o) ++keywords_used;
    }
    if (!o) {
      if (p.optional) continue;
      failure.reason = Failure::Missing;
      failure.param = i;
      return false;
    }
    if (o == Py_None && p.allow_none) continue;
    if (!matcher.check(p, o)) {
      failure.param = i;
      if (failure.reason != Failure::WrongElement) failure.object = o;
      return false;
    }
    a.values_[i] = o;
  }
  if (keywords_used == num_keywords) return true;
  failure.reason = Failure::UnexpectedKeyword;
  return false;
}

void Parser::warn_deprecated(const Signature& used, bool method) const {
  std::string text = cat("This overload of ", name_, " is deprecated:\n\t", name_, used.str(method),
                         "\nConsider using one of the following signatures instead:");
  for (size_t i = 0; i < count_; ++i)
    if (!(signatures_[i].flags & (kHidden | kDeprecated)) && (signatures_[i].flags & (method ? kMethod : kFunction)))
      text += cat("\n\t", name_, signatures_[i].str(method));
  warn(text);
}

int Parser::choose(Arguments& a, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) const {
  Failure failure{Failure::Missing};
  const uint8_t form = self ? kMethod : kFunction;
  const int count = static_cast<int>(count_);
  auto fits = [&](int i) {
    return (signatures_[i].flags & form) && match(signatures_[i], self, args, nargs, kwnames, a, failure);
  };
  for (int i = 0; i < count; ++i) {
    if (!fits(i)) continue;
    if (!a.numbers_used_) return i;
    // An overload for the number itself is better than a tensor made of it.
    for (int k = i + 1; k < count; ++k)
      if ((signatures_[k].flags & kHidden) && fits(k)) return k;
    fits(i);
    return i;
  }
  return -1;
}

int Parser::parse(Arguments& a, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (!signatures_) [[unlikely]]
    build();
  a.parser_ = this;
  const int chosen = choose(a, self, args, nargs, kwnames);
  if (chosen < 0) [[unlikely]] {
    raise_mismatch(*this, self, args, nargs, kwnames);
    return -1;
  }
  if (signatures_[chosen].flags & kDeprecated) [[unlikely]]
    warn_deprecated(signatures_[chosen], self != nullptr);
  if (!a.num_overloaded_ && !(thread_modes & mode_bit::kFunctionMode)) [[likely]]
    return chosen;
  if (!torch_function_wanted(a.num_overloaded_)) return chosen;
  a.result = call_torch_function(*this, a.overloaded_, a.num_overloaded_, self, args, nargs, kwnames);
  return -1;
}

int Parser::parse(Arguments& a, PyObject* args, PyObject* kwargs) {
  const Py_ssize_t nargs = PyTuple_GET_SIZE(args);
  if (!kwargs) return parse(a, nullptr, PySequence_Fast_ITEMS(args), nargs, nullptr);
  // The dict and the tuple outlive the call, so that borrowed references do.
  std::vector<PyObject*> all(PySequence_Fast_ITEMS(args), PySequence_Fast_ITEMS(args) + nargs);
  Owned names(checked(PyTuple_New(PyDict_GET_SIZE(kwargs))));
  PyObject *key, *value;
  Py_ssize_t at = 0;
  for (Py_ssize_t i = 0; PyDict_Next(kwargs, &at, &key, &value); ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(key));
    all.push_back(value);
  }
  return parse(a, nullptr, all.data(), nargs, names.get());
}

}  // namespace mica::python
