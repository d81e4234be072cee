// Reads signatures: "Tensor self, int[1]? dim=None, *, bool keepdim=False, Tensor out=None".
#include <algorithm>
#include <charconv>
#include <cmath>

#include "arguments/parser.h"
#include "mica/error.h"

namespace mica::python {

static constexpr struct {
  std::string_view name;
  Kind kind, list_kind;
} kTypes[] = {
    {"Tensor", Kind::Tensor, Kind::Tensors},
    {"Scalar", Kind::Scalar, Kind::Scalars},
    {"int", Kind::Int, Kind::Ints},
    {"SymInt", Kind::Int, Kind::Ints},
    {"float", Kind::Double, Kind::Doubles},
    {"bool", Kind::Bool, Kind::Bools},
    {"str", Kind::String, Kind::String},
    {"ScalarType", Kind::DType, Kind::DType},
    {"Layout", Kind::Layout, Kind::Layout},
    {"Device", Kind::Device, Kind::Device},
    {"MemoryFormat", Kind::MemoryFormat, Kind::MemoryFormat},
    {"Generator", Kind::Generator, Kind::Generator},
};

// The names that NumPy has for some parameters.
static constexpr const char* kInputNames[] = {"x", "a", "x1", nullptr};
static constexpr const char* kOtherNames[] = {"x2", nullptr};
static constexpr const char* kDimNames[] = {"axis", nullptr};
static constexpr const char* kKeepdimNames[] = {"keepdims", nullptr};

static const char* const* numpy_names(std::string_view name) {
  if (name == "input") return kInputNames;
  if (name == "other") return kOtherNames;
  if (name == "dim") return kDimNames;
  if (name == "keepdim") return kKeepdimNames;
  return nullptr;
}

static std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

static std::vector<std::string_view> split_at_commas(std::string_view s) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= s.size(); ++i) {
    if (i == s.size() || (s[i] == ',' && depth == 0)) {
      if (auto part = trim(s.substr(start, i - start)); !part.empty()) parts.push_back(part);
      start = i + 1;
    } else {
      depth += (s[i] == '[') - (s[i] == ']');
    }
  }
  return parts;
}

static int64_t parse_int(std::string_view s) {
  int64_t value = 0;
  std::from_chars(s.data(), s.data() + s.size(), value);
  return value;
}

static void set_type(Param& p, std::string_view type) {
  bool optional = type.ends_with('?');
  if (optional) type.remove_suffix(1);
  bool is_list = type.ends_with(']');
  bool element_optional = false;
  if (is_list) {
    size_t open = type.rfind('[');
    p.list_size = static_cast<uint8_t>(parse_int(type.substr(open + 1)));
    type = type.substr(0, open);
    if ((element_optional = type.ends_with('?'))) type.remove_suffix(1);
  }
  for (auto& known : kTypes) {
    if (known.name != type) continue;
    p.kind = is_list ? known.list_kind : known.kind;
    if (element_optional && p.kind == Kind::Tensors) p.kind = Kind::OptionalTensors;
    p.allow_none = optional;
    return;
  }
  fail(cat("a signature has a parameter of unknown type ", type));
}

static void set_default(Param& p, std::string_view text) {
  p.optional = true;
  p.default_text = text;
  if (text == "None") {
    p.allow_none = true;
    return;
  }
  p.has_value = true;
  switch (p.kind) {
    case Kind::Bool:
      p.default_int = text == "True";
      p.default_text = p.default_int ? "True" : "False";
      break;
    case Kind::Int:
      p.default_int = parse_int(text);
      break;
    case Kind::Double:
    case Kind::Scalar:
      if (text == "True" || text == "False") {
        p.default_scalar = text == "True";
      } else if (text.find_first_of(".en") == std::string_view::npos) {
        p.default_scalar = parse_int(text);
      } else {
        p.default_scalar = std::strtod(std::string(text).c_str(), nullptr);
      }
      break;
    case Kind::Ints:
      if (text.starts_with('[')) {
        for (auto item : split_at_commas(text.substr(1, text.size() - 2))) p.default_ints.push_back(parse_int(item));
      } else {
        p.default_ints.assign(std::max<size_t>(p.list_size, 1), parse_int(text));
      }
      p.allow_none |= p.default_ints.empty();  // None stands for the empty list
      break;
    case Kind::String:
      if (text.size() >= 2) p.default_string = text.substr(1, text.size() - 2);
      p.default_text = '"' + p.default_string + '"';
      break;
    case Kind::MemoryFormat:
      p.default_int =
          static_cast<int64_t>(text == "preserve_format" ? MemoryFormat::Preserve : MemoryFormat::Contiguous);
      break;
    case Kind::DType:
      p.default_int = static_cast<int64_t>(text == "float" ? DType::Float32 : DType::Int64);
      break;
    default:
      break;
  }
}

Signature parse_signature(const SignatureText& text) {
  Signature s;
  s.flags = text.flags;
  bool keyword_only = false;
  for (std::string_view part : split_at_commas(text.text)) {
    if (part == "*") {
      keyword_only = true;
      continue;
    }
    Param p;
    size_t equals = part.find('=');
    std::string_view declaration = trim(part.substr(0, equals));
    size_t space = declaration.rfind(' ');
    std::string_view name = declaration.substr(space + 1);
    set_type(p, trim(declaration.substr(0, space)));
    if (equals != std::string_view::npos) set_default(p, trim(part.substr(equals + 1)));
    p.keyword_only = keyword_only;
    p.allow_numbers = (text.flags & kNumbers) && p.kind == Kind::Tensor;
    p.plain_numbers = text.flags & kHidden;
    if (name == "out") {
      p.function_only = true;
      p.allow_numbers = false;
      if (p.kind == Kind::Tensors) p.kind = Kind::Outs;
    }
    if (name == "self" && p.kind == Kind::Tensor) {
      s.self_index = static_cast<int>(s.params.size());
      name = "input";
    }
    p.numpy_names = numpy_names(name);
    p.name = checked(PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
    PyUnicode_InternInPlace(&p.name);
    s.params.push_back(std::move(p));
  }
  MICA_CHECK(s.params.size() <= static_cast<size_t>(kMaxParams), "a signature has more than ", kMaxParams,
             " parameters");
  s.derive();
  return s;
}

void Signature::derive() {
  num_params = static_cast<int>(params.size());
  for (int method = 0; method < 2; ++method) {
    Form& form = forms[method];
    for (int i = 0; i < num_params; ++i) {
      const Param& p = params[static_cast<size_t>(i)];
      if (method && (i == self_index || p.function_only)) continue;
      form.slots.push_back({p.name, p.kind, static_cast<uint8_t>(i), p.list_size, p.optional, p.allow_none,
                            p.allow_numbers, p.plain_numbers, p.numpy_names});
      form.max_positional += !p.keyword_only;
      form.min_args += !p.optional;
      form.max_args += 1;
      if (!p.optional) form.required = form.max_args;
    }
    form.varargs = form.max_positional == 1 && form.slots[0].kind == Kind::Ints;
  }
}

std::string type_text(const Param& p) {
  switch (p.kind) {
    case Kind::Tensor:
      return "Tensor";
    case Kind::Scalar:
      return "Number";
    case Kind::Int:
      return "int";
    case Kind::Double:
      return "float";
    case Kind::Bool:
      return "bool";
    case Kind::String:
      return "str";
    case Kind::Ints:
      return "tuple of ints";
    case Kind::Doubles:
      return "tuple of floats";
    case Kind::Bools:
      return "tuple of bools";
    case Kind::Scalars:
      return "tuple of Scalars";
    case Kind::Tensors:
    case Kind::OptionalTensors:
    case Kind::Outs:
      return "tuple of Tensors";
    case Kind::DType:
      return "torch.dtype";
    case Kind::Layout:
      return "torch.layout";
    case Kind::Device:
      return "torch.device";
    case Kind::MemoryFormat:
      return "torch.memory_format";
    case Kind::Generator:
      return "torch.Generator";
  }
  return "";
}

std::string Signature::str(bool method) const {
  std::string s = "(";
  bool keyword_only = false, first = true;
  for (size_t i = 0; i < params.size(); ++i) {
    const Param& p = params[i];
    if (method && (static_cast<int>(i) == self_index || p.function_only)) continue;
    if (!first) s += ", ";
    first = false;
    if (p.keyword_only && !keyword_only) {
      s += "*, ";
      keyword_only = true;
    }
    s += type_text(p) + " " + PyUnicode_AsUTF8(p.name);
    if (p.optional) s += " = " + p.default_text;
  }
  return s + ")";
}

}  // namespace mica::python
