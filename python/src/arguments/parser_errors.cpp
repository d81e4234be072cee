// The messages for a call that fits no signature, in torch's words.
#include "arguments/parser.h"
#include "mica/error.h"

namespace mica::python {

// The name that torch has for the function: torch.linalg.inv is linalg_inv.
static std::string name_of(const Parser& parser) {
  const std::string_view space = parser.space();
  const bool with_family = space == "fft" || space == "linalg" || space == "special";
  return with_family ? cat(space, "_", parser.name()) : parser.name();
}

static std::string type_name(PyObject* o) {
  if (o == Py_None) return "NoneType";
  if (is_tensor(o) && is_exact_tensor(o)) return "Tensor";
  const char* name = Py_TYPE(o)->tp_name;
  if (is_dtype(o) || is_device(o) || is_layout(o) || is_memory_format(o)) return name;
  const char* dot = std::strrchr(name, '.');
  return dot ? dot + 1 : name;
}

// As in "got (Tensor, list of [int, str], dim=int)".
static std::string detailed_type(PyObject* o) {
  bool is_tuple = PyTuple_Check(o);
  if (!is_tuple && !PyList_Check(o)) return type_name(o);
  std::string s = is_tuple ? "tuple of (" : "list of [";
  Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  for (Py_ssize_t i = 0; i < n; ++i) s += (i ? ", " : "") + type_name(PySequence_Fast_GET_ITEM(o, i));
  if (is_tuple && n == 1) s += ",";
  return s + (is_tuple ? ")" : "]");
}

static bool is_parameter(const Param& p, PyObject* keyword) {
  if (PyUnicode_Compare(keyword, p.name) == 0) return true;
  for (const char* const* n = p.numpy_names; n && *n; ++n)
    if (PyUnicode_CompareWithASCIIString(keyword, *n) == 0) return true;
  return false;
}

static std::string unexpected_keyword(const Parser& parser, const Signature& s, bool method, Py_ssize_t nargs,
                                      PyObject* kwnames) {
  std::string repeated;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(kwnames, k);
    Py_ssize_t position = 0;
    bool known = false;
    for (size_t i = 0; i < s.params.size() && !known; ++i) {
      if (method && (static_cast<int>(i) == s.self_index || s.params[i].function_only)) continue;
      known = is_parameter(s.params[i], keyword);
      if (known && position < nargs && repeated.empty()) repeated = PyUnicode_AsUTF8(keyword);
      ++position;
    }
    if (!known) return cat(name_of(parser), "() got an unexpected keyword argument '", PyUnicode_AsUTF8(keyword), "'");
  }
  return cat(name_of(parser), "() got multiple values for argument '", repeated, "'");
}

static std::string explain(const Parser& parser, const Signature& s, const Failure& f, bool method, Py_ssize_t nargs,
                           PyObject* kwnames) {
  const std::string call = cat(name_of(parser), "()");
  const Param& p = s.params.empty() ? Param() : s.params[static_cast<size_t>(f.param)];
  switch (f.reason) {
    case Failure::TooManyPositional: {
      if (method && s.forms[1].max_args == 0)
        return cat("Tensor.", parser.name(), "() takes no arguments (", nargs, " given)");
      int most = s.forms[method].max_positional, least = std::min(s.forms[method].min_args, most);
      if (least != most)
        return cat(call, " takes from ", least, " to ", most, " positional arguments but ", nargs, " were given");
      return cat(call, " takes ", most, " positional argument", most == 1 ? "" : "s", " but ", nargs, " were given");
    }
    case Failure::Missing: {
      std::string names;
      int count = 0;
      for (size_t i = static_cast<size_t>(f.param); i < s.params.size(); ++i) {
        if (s.params[i].optional || (method && static_cast<int>(i) == s.self_index)) continue;
        names += cat(count++ ? ", " : "", "\"", PyUnicode_AsUTF8(s.params[i].name), "\"");
      }
      return cat(call, " missing ", count, " required positional argument", count == 1 ? "s" : "", ": ", names);
    }
    case Failure::WrongType: {
      std::string where = f.position < 0 ? "" : cat(" (position ", f.position + 1, ")");
      return cat(call, ": argument '", PyUnicode_AsUTF8(p.name), "'", where, " must be ", type_text(p), ", not ",
                 type_name(f.object));
    }
    case Failure::WrongElement:
      return cat("expected Tensor as element ", f.element, " in argument ", std::max(f.position, 0), ", but got ",
                 type_name(f.object));
    case Failure::UnexpectedKeyword:
      break;
  }
  return unexpected_keyword(parser, s, method, nargs, kwnames);
}

// Which arguments do not fit, when their number does: "(Tensor, !str!)".
static std::string marked_types(const Signature& s, bool method, PyObject* const* args, Py_ssize_t nargs,
                                PyObject* kwnames) {
  std::string text = "(";
  Arguments scratch;
  Failure failure{Failure::Missing};
  std::string wrong_keywords;
  Py_ssize_t position = 0;
  const Py_ssize_t num_keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t k = 0; k < num_keywords; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(kwnames, k);
    bool known = false;
    for (const Param& p : s.params) known |= is_parameter(p, keyword);
    if (!known) wrong_keywords += (wrong_keywords.empty() ? "" : ", ") + std::string(PyUnicode_AsUTF8(keyword));
  }
  if (!wrong_keywords.empty())
    return "\n      didn't match because some of the keywords were incorrect: " + wrong_keywords;
  for (size_t i = 0; i < s.params.size(); ++i) {
    const Param& p = s.params[i];
    if (method && (static_cast<int>(i) == s.self_index || p.function_only)) continue;
    PyObject* o = nullptr;
    std::string prefix;
    if (position < nargs && !p.keyword_only) {
      o = args[position++];
    } else {
      for (Py_ssize_t k = 0; k < num_keywords; ++k)
        if (is_parameter(p, PyTuple_GET_ITEM(kwnames, k))) o = args[nargs + k];
      prefix = cat(PyUnicode_AsUTF8(p.name), "=");
    }
    if (!o) continue;
    Signature one;
    one.params.push_back(p);
    one.params[0].keyword_only = false;
    one.derive();
    bool fits = match(one, nullptr, &o, 1, nullptr, scratch, failure);
    if (text.size() > 1) text += ", ";
    text += prefix + (fits ? detailed_type(o) : "!" + detailed_type(o) + "!");
  }
  return "\n      didn't match because some of the arguments have invalid types: " + text + ")";
}

static void list_signatures(const Parser& parser, const std::vector<const Signature*>& visible, bool method,
                            PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  const Py_ssize_t num_keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  std::string got;
  for (Py_ssize_t i = 0; i < nargs; ++i) got += (got.empty() ? "" : ", ") + detailed_type(args[i]);
  for (Py_ssize_t k = 0; k < num_keywords; ++k)
    got += cat(got.empty() ? "" : ", ", PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, k)), "=",
               detailed_type(args[nargs + k]));
  std::string text =
      cat(name_of(parser), "() received an invalid combination of arguments - got (", got, "), but expected ");
  if (visible.size() == 1) {
    text += visible[0]->str(method);
  } else {
    text += "one of:\n";
    for (const Signature* s : visible) {
      text += " * " + s->str(method);
      if (s->forms[method].max_args == s->forms[method].max_positional &&
          s->forms[method].max_args == nargs + num_keywords)
        text += marked_types(*s, method, args, nargs, kwnames);
      text += "\n";
    }
  }
  PyErr_SetString(PyExc_TypeError, text.c_str());
}

static bool knows_keywords(const Signature& s, PyObject* kwnames) {
  for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k) {
    bool known = false;
    for (const Param& p : s.params) known |= is_parameter(p, PyTuple_GET_ITEM(kwnames, k));
    if (!known) return false;
  }
  return true;
}

void raise_mismatch(const Parser& parser, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (PyErr_Occurred()) return;
  const bool method = self != nullptr;
  const Py_ssize_t given = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  std::vector<const Signature*> visible, plausible;
  size_t in_this_form = 0;
  for (size_t i = 0; i < parser.size(); ++i) {
    const Signature& s = parser.signature(i);
    if (!(s.flags & (method ? kMethod : kFunction))) continue;
    in_this_form += !(s.flags & kHidden);
    if (s.flags & (kHidden | kDeprecated)) continue;
    visible.push_back(&s);
    if (given >= s.forms[method].min_args && given <= s.forms[method].max_args) plausible.push_back(&s);
  }
  const Signature* chosen = in_this_form == 1 ? visible[0] : plausible.size() == 1 ? plausible[0] : nullptr;
  if (!chosen) return list_signatures(parser, visible, method, args, nargs, kwnames);
  Arguments scratch;
  Failure failure{Failure::Missing};
  match(*chosen, self, args, nargs, kwnames, scratch, failure);
  // A keyword that only an unmentioned signature knows is not unexpected.
  for (size_t i = 0; i < parser.size() && failure.reason == Failure::UnexpectedKeyword; ++i) {
    const Signature& s = parser.signature(i);
    Failure other{Failure::Missing};
    if (!(s.flags & kHidden) || knows_keywords(*chosen, kwnames) || !knows_keywords(s, kwnames)) continue;
    if (match(s, self, args, nargs, kwnames, scratch, other) || other.reason == Failure::UnexpectedKeyword) continue;
    chosen = &s;
    failure = other;
  }
  PyErr_SetString(PyExc_TypeError, explain(parser, *chosen, failure, method, nargs, kwnames).c_str());
}

}  // namespace mica::python
