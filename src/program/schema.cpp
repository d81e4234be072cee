#include "program/schema.h"

#include <charconv>
#include <unordered_map>

#include "mica/error.h"

namespace mica::program {

namespace {

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

std::vector<std::string_view> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += (text[i] == '(' || text[i] == '[') - (text[i] == ')' || text[i] == ']');
    if (text[i] != ',' || depth) continue;
    parts.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  if (const auto last = trimmed(text.substr(begin)); !last.empty()) parts.push_back(last);
  return parts;
}

template <class T>
T number_of(std::string_view text) {
  T value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Base base_of(std::string_view name) {
  static const std::unordered_map<std::string_view, Base> bases = {
      {"Tensor", Base::Tensor},       {"int", Base::Int},
      {"SymInt", Base::Int},          {"float", Base::Float},
      {"bool", Base::Bool},           {"str", Base::Str},
      {"Scalar", Base::Scalar},       {"Layout", Base::Layout},
      {"Device", Base::Device},       {"ScalarType", Base::ScalarType},
      {"Generator", Base::Generator}, {"MemoryFormat", Base::MemoryFormat}};
  const auto found = bases.find(name);
  MICA_CHECK(found != bases.end(), "a schema has the unknown type ", name);
  return found->second;
}

// "Tensor(a!)", "int[2]?", "Tensor?[]".
void read_type(std::string_view text, Declared& declared) {
  const size_t end = text.find_first_of("(?[");
  declared.base = base_of(text.substr(0, end));
  if (end == std::string_view::npos) return;
  std::string_view rest = text.substr(end);
  if (rest.front() == '(') {
    declared.shared = true;
    declared.changed = rest.substr(0, rest.find(')')).find('!') != std::string_view::npos;
    rest.remove_prefix(rest.find(')') + 1);
  }
  const size_t bracket = rest.find('[');
  declared.is_list = bracket != std::string_view::npos;
  if (!declared.is_list) {
    declared.optional = rest.find('?') != std::string_view::npos;
    return;
  }
  declared.element_optional = rest.substr(0, bracket).find('?') != std::string_view::npos;
  declared.list_size = number_of<int64_t>(rest.substr(bracket + 1));
  declared.optional = rest.substr(rest.find(']')).find('?') != std::string_view::npos;
}

Operand default_of(std::string_view text, const Declared& declared) {
  if (text == "None") return std::monostate();
  if (declared.is_list) {
    std::vector<int64_t> numbers;
    if (text.front() == '[') {
      for (const auto part : split_outside_brackets(text.substr(1, text.size() - 2)))
        numbers.push_back(number_of<int64_t>(part));
    } else {
      numbers.assign(static_cast<size_t>(std::max<int64_t>(declared.list_size, 1)), number_of<int64_t>(text));
    }
    return numbers;
  }
  switch (declared.base) {
    case Base::Int:
      return text == "Mean" ? int64_t{1} : number_of<int64_t>(text);
    case Base::Float:
      return number_of<double>(text);
    case Base::Bool:
      return text == "True";
    case Base::Str:
      return std::string(text.substr(1, text.size() - 2));
    case Base::Scalar:
      if (text == "True" || text == "False") return Scalar(text == "True");
      return text.find_first_of(".einf") == std::string_view::npos ? Scalar(number_of<int64_t>(text))
                                                                   : Scalar(number_of<double>(text));
    case Base::MemoryFormat:
      return text == "preserve_format" ? MemoryFormat::Preserve : MemoryFormat::Contiguous;
    case Base::ScalarType:
      return text == "long" ? DType::Int64 : DType::Float32;
    default:
      return std::monostate();
  }
}

struct Table {
  std::unordered_map<std::string_view, const Operator*> by_name;
  std::unordered_map<std::string_view, std::vector<const Operator*>> overloads;

  Table() {
    for (const auto& family : all_operators()) add(family);
    add(hand_written_operators());
    add(operators_of_graphs());
  }
  void add(ArrayRef<Operator> family) {
    for (const Operator& op : family) {
      const std::string_view name = name_of(op);
      if (by_name.emplace(name, &op).second) overloads[name.substr(0, name.find('.'))].push_back(&op);
    }
  }
};

// Names that torch has a second time, with the same arguments.
std::string_view first_name_of(std::string_view name) {
  static const std::unordered_map<std::string_view, std::string_view> names = {
      {"special_digamma", "digamma"},
      {"special_erf", "erf"},
      {"special_erfc", "erfc"},
      {"special_erfinv", "erfinv"},
      {"special_exp2", "exp2"},
      {"special_expit", "sigmoid"},
      {"special_expm1", "expm1"},
      {"special_gammainc", "igamma"},
      {"special_gammaincc", "igammac"},
      {"special_gammaln", "lgamma"},
      {"special_i0", "i0"},
      {"special_log1p", "log1p"},
      {"special_log_softmax", "log_softmax.int"},
      {"special_logit", "logit"},
      {"special_logsumexp", "logsumexp"},
      {"special_multigammaln", "mvlgamma"},
      {"special_polygamma", "polygamma"},
      {"special_psi", "digamma"},
      {"special_sinc", "sinc"},
      {"special_softmax", "softmax.int"},
      {"special_xlogy", "xlogy.Tensor"},
      {"special_xlogy.other_scalar", "xlogy.Scalar_Other"},
      {"special_xlogy.self_scalar", "xlogy.Scalar_Self"},
      {"_unsafe_index.Tensor", "index.Tensor"},
      {"_unsafe_index_put", "index_put"},
      {"nll_loss_nd", "nll_loss"},
  };
  const auto found = names.find(name);
  return found == names.end() ? std::string_view() : found->second;
}

const Table& table() {
  static const Table made;
  return made;
}

}  // namespace

std::string_view name_of(const Operator& op) {
  const std::string_view schema = op.schema;
  return schema.substr(0, schema.find('('));
}

Declaration read_schema(const Operator& op) {
  const std::string_view schema = op.schema;
  Declaration made;
  made.name = name_of(op);
  const size_t end = schema.rfind(") -> ");
  bool keyword_only = false;
  for (const auto part : split_outside_brackets(schema.substr(made.name.size() + 1, end - made.name.size() - 1))) {
    if (part == "*") {
      keyword_only = true;
      continue;
    }
    Declared declared;
    declared.keyword_only = keyword_only;
    const size_t equals = part.find('=');
    const std::string_view left = trimmed(part.substr(0, equals));
    declared.name = left.substr(left.rfind(' ') + 1);
    read_type(trimmed(left.substr(0, left.rfind(' '))), declared);
    if (equals != std::string_view::npos) {
      declared.has_default = true;
      declared.fallback = default_of(trimmed(part.substr(equals + 1)), declared);
    }
    made.arguments.push_back(std::move(declared));
  }
  made.returns_view = schema.substr(end).find("(a") != std::string_view::npos;
  return made;
}

const Operator* find_operator(std::string_view full_name) {
  const auto find = [](std::string_view name) {
    const auto found = table().by_name.find(name);
    return found == table().by_name.end() ? nullptr : found->second;
  };
  const auto* const found = find(full_name);
  return found ? found : find(first_name_of(full_name));
}

std::vector<const Operator*> find_overloads(std::string_view name) {
  const auto found = table().overloads.find(name);
  return found == table().overloads.end() ? std::vector<const Operator*>() : found->second;
}

}  // namespace mica::program
