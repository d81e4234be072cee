// Chooses the signature that a call fits.
#include "arguments/parser.h"

#include "tensor/names.h"

#include <algorithm>
#include <utility>

#include "arguments/torch_function.h"
#include "mica/autograd.h"
#include "mica/warning.h"

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

  // out= must have as many tensors as the operation has results.
  static bool as_many(const Slot& p, Py_ssize_t given) {
    if (p.list_size && given != p.list_size)
      fail(ErrorKind::Type, cat("expected tuple of ", int{p.list_size}, " elements but got ", given));
    return true;
  }

  static bool first_is(PyObject* list, bool (*check)(PyObject*)) {
    if (!PyTuple_Check(list) && !PyList_Check(list)) return false;
    return PySequence_Fast_GET_SIZE(list) == 0 || check(PySequence_Fast_GET_ITEM(list, 0));
  }

  // Checks a list of numbers by its first element. An element that is not a number but has a __torch_function__ is
  // noted.
  bool numbers(PyObject* list, bool (*check)(PyObject*)) {
    if (!PyTuple_Check(list) && !PyList_Check(list)) return false;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(list, i);
      if (PyLong_CheckExact(item) || PyFloat_CheckExact(item)) [[likely]] {
        if (i == 0 && !check(item)) return false;
      } else if (!is_tensor(item) && overrides_torch_function(item)) {
        note_overload(item);
      } else if (i == 0 && !check(item) && !(check == is_size_like && overrides_torch_function(item))) {
        return false;
      }
    }
    return true;
  }

  [[gnu::noinline]] bool value(const Slot& p, PyObject* o) {
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
        return numbers(o, is_size_like) || (p.list_size > 0 && is_size_like(o));
      case Kind::Doubles:
      case Kind::Scalars:
        return numbers(o, is_number_like) || (p.list_size > 0 && is_number_like(o));
      case Kind::Bools:
        return first_is(o, [](PyObject* item) -> bool { return PyBool_Check(item); });
      case Kind::Tensors:
        return tensors(o, false);
      case Kind::OptionalTensors:
        return tensors(o, true);
      case Kind::Outs:
        return PyTuple_Check(o) && tensors(o, false) && as_many(p, PyTuple_GET_SIZE(o));
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

  bool check(const Slot& p, PyObject* o) {
    if (p.kind == Kind::Tensor && is_exact_tensor(o)) {
      a.elements_ += unwrap(o).numel();
      return true;
    }
    if (p.kind == Kind::Int && PyLong_CheckExact(o)) return true;
    failure.reason = Failure::WrongType;
    if (value(p, o)) [[likely]]
      return true;
    return !is_tensor(o) && overrides_torch_function(o) && note_overload(o);
  }

  bool take_keywords(const Slot* p, const Slot* last, PyObject* const* values, PyObject* kwnames, Py_ssize_t count);
  bool match(const Signature& s, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

  // Puts the argument where it belongs; None stands for an argument that is not given.
  bool take(const Slot& p, PyObject* o) {
    if (o == Py_None && p.allow_none) return true;
    if (check(p, o)) [[likely]] {
      a.values_[p.index] = o;
      return true;
    }
    failure.param = p.index;
    if (failure.reason != Failure::WrongElement) failure.object = o;
    return false;
  }
};

static bool same_name(PyObject* keyword, PyObject* name) {
  return keyword == name || (!PyUnicode_CHECK_INTERNED(keyword) && PyUnicode_Compare(keyword, name) == 0);
}

// The usual case: keywords under their own names, all of which fit.
bool Matcher::take_keywords(const Slot* p, const Slot* last, PyObject* const* values, PyObject* kwnames,
                            Py_ssize_t count) {
  for (Py_ssize_t k = 0; k < count; ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    const Slot* at = p;
    while (at < last && at->name != name) ++at;
    if (at == last || !take(*at, values[k])) return false;
  }
  return true;
}

static PyObject* find_keyword(const Slot& p, PyObject* const* values, PyObject* kwnames) {
  const Py_ssize_t n = PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < n; ++i)
    if (same_name(PyTuple_GET_ITEM(kwnames, i), p.name)) return values[i];
  if (!p.numpy_names) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i)
    for (const char* const* other = p.numpy_names; *other; ++other)
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), *other) == 0) return values[i];
  return nullptr;
}

[[gnu::always_inline]] inline bool Matcher::match(const Signature& s, PyObject* self, PyObject* const* args,
                                                  Py_ssize_t nargs, PyObject* kwnames) {
  const Form& form = s.forms[self != nullptr];
  const bool varargs = form.varargs && nargs > 0 && is_size_like(args[0]);
  if (nargs > form.max_positional && !varargs) {
    failure.reason = Failure::TooManyPositional;
    return false;
  }
  a.clear_values(s.num_params);
  a.signature_ = &s;
  a.elements_ = 0;
  a.varargs_index_ = -1;
  a.num_overloaded_ = 0;
  a.numbers_used_ = false;
  if (self && s.self_index >= 0) {
    tensor(self);
    a.values_[s.self_index] = self;
  }

  const Slot* p = form.slots.data();
  const Slot* const last = p + form.slots.size();
  const Slot* const required = p + form.required;
  if (varargs) {
    a.varargs_index_ = p->index;
    a.varargs_ = args;
    a.num_varargs_ = nargs;
    a.values_[p->index] = args[0];
    ++p;
  } else {
    for (Py_ssize_t position = 0; position < nargs; ++position, ++p) {
      failure.position = static_cast<int>(position);
      if (!take(*p, args[position])) return false;
    }
  }

  failure.position = -1;
  if (!kwnames && p >= required) [[likely]]
    return true;
  Py_ssize_t unused = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (p >= required && take_keywords(p, last, args + nargs, kwnames, unused)) return true;
  for (; p < last && (unused || p < required); ++p) {
    PyObject* o = unused ? find_keyword(*p, args + nargs, kwnames) : nullptr;
    if (o) {
      if (!take(*p, o)) return false;
      --unused;
    } else if (!p->optional) {
      failure.reason = Failure::Missing;
      failure.param = p->index;
      return false;
    }
  }
  if (!unused) return true;
  failure.reason = Failure::UnexpectedKeyword;
  return false;
}

bool match(const Signature& s, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Arguments& a,
           Failure& failure) {
  return Matcher{a, failure}.match(s, self, args, nargs, kwnames);
}

void Parser::warn_deprecated(const Signature& used, bool method) const {
  static bool warned = false;  // once in a process, whatever the overload: old programs use many of them
  if (std::exchange(warned, true) && !warn_always) return;
  std::string text = cat("This overload of ", name_, " is deprecated:\n\t", name_, used.str(method),
                         "\nConsider using one of the following signatures instead:");
  for (size_t i = 0; i < count_; ++i)
    if (!(signatures_[i].flags & (kHidden | kDeprecated)) && (signatures_[i].flags & (method ? kMethod : kFunction)))
      text += cat("\n\t", name_, signatures_[i].str(method));
  warn(text);
}

// If there is an overload for the number itself, it is better than a tensor made of the number.
int Parser::choose_number(int chosen, Arguments& a, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                          PyObject* kwnames) const {
  Failure failure{Failure::Missing};
  const uint8_t wanted = kHidden | (self ? kMethod : kFunction);
  for (int i = chosen + 1; i < static_cast<int>(count_); ++i)
    if ((signatures_[i].flags & wanted) == wanted && match(signatures_[i], self, args, nargs, kwnames, a, failure))
      return i;
  match(signatures_[chosen], self, args, nargs, kwnames, a, failure);
  return chosen;
}

// Calls again with out= as a tuple where it was a list. Returns false where there is no such list; otherwise `result`
// is the call's result.
static bool call_with_tuple(const Parser& parser, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                            PyObject*& result) {
  const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    PyObject* given = args[nargs + i];
    if (!PyList_Check(given) || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "out") != 0) continue;
    Owned space(checked(PyImport_ImportModule("mica._C")));
    if (*parser.space()) {
      std::string name = "_";
      for (const char* c = parser.space(); *c; ++c) name += *c == '.' ? '_' : *c;
      space = Owned(checked(PyObject_GetAttrString(space.get(), name.c_str())));
    }
    const Owned function(checked(PyObject_GetAttrString(space.get(), parser.name())));
    const Owned tuple(checked(PyList_AsTuple(given)));
    std::vector<PyObject*> values(args, args + nargs + keywords);
    values[nargs + i] = tuple.get();
    result = PyObject_Vectorcall(function.get(), values.data(), nargs, kwnames);
    return true;
  }
  return false;
}

int Parser::parse(Arguments& a, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (!signatures_) [[unlikely]]
    build();
  a.parser_ = this;
  Failure failure{Failure::Missing};
  Matcher matcher{a, failure};
  const bool method = self != nullptr;
  const uint8_t form = method ? kMethod : kFunction;
  const int count = static_cast<int>(count_);
  int chosen = 0;
  for (; chosen < count; ++chosen) {
    const Signature& s = signatures_[chosen];
    if (!(s.flags & form) || (nargs > s.forms[method].max_positional && !s.forms[method].varargs)) continue;
    if (matcher.match(s, self, args, nargs, kwnames)) break;
  }
  if (chosen == count) [[unlikely]] {
    const bool several = std::any_of(signatures_, signatures_ + count_, [](const Signature& s) {
      return !s.params.empty() && s.params.back().kind == Kind::Outs;
    });
    if (several && !self && call_with_tuple(*this, args, nargs, kwnames, a.result)) return -1;
    if (!call_by_names(name_, self, args, nargs, kwnames, a.result)) raise_mismatch(*this, self, args, nargs, kwnames);
    return -1;
  }
  if (a.numbers_used_) chosen = choose_number(chosen, a, self, args, nargs, kwnames);
  if (signatures_[chosen].flags & kDeprecated) [[unlikely]]
    warn_deprecated(signatures_[chosen], method);
  if (!a.num_overloaded_ && !(thread_modes & mode_bit::kFunctionMode)) [[likely]]
    return chosen;
  if (!torch_function_wanted(a.num_overloaded_)) return chosen;
  a.result = call_torch_function(*this, a.overloaded_, a.num_overloaded_, self, args, nargs, kwnames);
  return -1;
}

int Parser::parse(Arguments& a, PyObject* args, PyObject* kwargs) {
  const Py_ssize_t nargs = PyTuple_GET_SIZE(args);
  if (!kwargs) return parse(a, nullptr, PySequence_Fast_ITEMS(args), nargs, nullptr);
  // The dict and the tuple live longer than the call, so the borrowed references are valid during it.
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
