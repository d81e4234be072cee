// Programs of operations: read, carried out, written as code.
#include <algorithm>

#include "operations.h"

namespace mica::lab {

// ---- the table, by name

const char* name(Kind kind) {
  static constexpr const char* kNames[] = {"create", "view", "copy", "math", "reduce", "in place"};
  return kNames[static_cast<int>(kind)];
}

const Operation& operation(const std::string& wanted) {
  for (const Operation& o : operations())
    if (wanted == o.name) return o;
  fail(ErrorKind::Value, cat("the Lab has no operation '", wanted, "'"));
}

Json operations_json() {
  static constexpr const char* kTypes[] = {"integer", "integers", "number", "dtype", "boolean", "choice"};
  Json list = Json::array();
  for (const Operation& o : operations()) {
    Json parameters = Json::array();
    for (const Parameter& p : o.parameters)
      parameters.push_back({{"name", p.name},
                            {"type", kTypes[static_cast<int>(p.type)]},
                            {"default", p.otherwise},
                            {"choices", p.choices}});
    list.push_back({{"name", o.name}, {"kind", name(o.kind)}, {"tensors", o.tensors}, {"parameters", parameters}});
  }
  return list;
}

// ---- the values of parameters

const Json& Values::at(const char* name) const {
  const auto found = values_.find(name);
  MICA_CHECK_KIND(found != values_.end(), Type, "missing argument '", name, "'");
  return *found;
}
int64_t Values::integer(const char* name) const {
  const Json& v = at(name);
  MICA_CHECK_KIND(v.is_number_integer(), Type, "argument '", name, "' must be int, not ", v.dump());
  return v.get<int64_t>();
}
DimVector Values::integers(const char* name) const { return dims(at(name), name); }
double Values::number(const char* name) const {
  const Json& v = at(name);
  MICA_CHECK_KIND(v.is_number(), Type, "argument '", name, "' must be a number, not ", v.dump());
  return v.get<double>();
}
Scalar Values::scalar(const char* name) const {
  const Json& v = at(name);
  if (v.is_number_integer()) return v.get<int64_t>();
  return number(name);
}
DType Values::dtype(const char* name) const {
  const Json& v = at(name);
  MICA_CHECK_KIND(v.is_string(), Type, "argument '", name, "' must be the name of a dtype, not ", v.dump());
  return dtype_named(v.get<std::string>());
}
std::string Values::word(const char* name) const {
  const Json& v = at(name);
  MICA_CHECK_KIND(v.is_string(), Type, "argument '", name, "' must be str, not ", v.dump());
  return v.get<std::string>();
}
bool Values::boolean(const char* name) const {
  const Json& v = at(name);
  MICA_CHECK_KIND(v.is_boolean(), Type, "argument '", name, "' must be bool, not ", v.dump());
  return v.get<bool>();
}

// ---- steps

std::vector<Step> program(const Json& list) {
  MICA_CHECK(list.is_array() && list.size() <= 64, "a program has at most 64 steps");
  std::vector<Step> steps;
  for (const Json& row : list) {
    Step step;
    step.operation = &operation(row.at("op").get<std::string>());
    if (row.contains("on"))
      for (const Json& i : row.at("on")) {
        const auto at = i.get<size_t>();
        MICA_CHECK_KIND(at < steps.size(), Index, "step ", steps.size(), " takes the result of step ", at,
                        ", which comes later");
        step.inputs.push_back(at);
      }
    MICA_CHECK(static_cast<int>(step.inputs.size()) == step.operation->tensors, step.operation->name, "() takes ",
               step.operation->tensors, " tensor(s) but ", step.inputs.size(), " were given");
    step.values = row.value("args", Json::object());
    for (const Parameter& p : step.operation->parameters)
      if (!step.values.contains(p.name)) step.values[p.name] = p.otherwise;
    steps.push_back(std::move(step));
  }
  return steps;
}

Tensor run(const Step& step, const std::vector<Tensor>& results) {
  std::vector<Tensor> inputs;
  for (const size_t i : step.inputs) inputs.push_back(results.at(i));
  return step.operation->call(inputs, Values(step.values));
}

// ---- code

std::string cpp_dtype(const std::string& dtype) {
  std::string type = "DType::" + dtype;
  type[7] = static_cast<char>(std::toupper(type[7]));
  if (type.rfind("DType::Bfloat", 0) == 0) type.replace(7, 6, "BFloat");
  if (type.rfind("DType::Uint", 0) == 0) type.replace(7, 4, "UInt");
  return type;
}

namespace {

struct Language {
  bool cpp;
  std::string variable(size_t step) const { return "x" + std::to_string(step); }
  std::string value(const Json& v) const {
    if (v.is_boolean()) return cpp ? (v.get<bool>() ? "true" : "false") : v.get<bool>() ? "True" : "False";
    if (v.is_string()) {
      const std::string dtype = v.get<std::string>();
      return cpp ? cpp_dtype(dtype) : "mica." + dtype;
    }
    if (v.is_array()) {
      std::string s = cpp ? "{" : "(";
      for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + v[i].dump();
      return s + (cpp ? "}" : v.size() == 1 ? ",)" : ")");
    }
    return v.dump();
  }
  std::string write(const Step& step) const {
    const Operation& o = *step.operation;
    std::string pattern = cpp && *o.cpp ? o.cpp : o.python, text;
    for (size_t i = 0; i < pattern.size();) {
      const size_t end = pattern[i] == '{' ? pattern.find('}', i) : std::string::npos;
      const std::string key = end == std::string::npos ? "" : pattern.substr(i + 1, end - i - 1);
      if (const size_t colon = key.find(':'); colon != std::string::npos) {
        // {list:name} are bare numbers between commas, {word:name} is a word as it is, {colons:dim} skips dimensions.
        const Json& given = step.values.at(key.substr(colon + 1));
        if (key[0] == 'c') {
          const int64_t dim = given.is_number_integer() ? given.get<int64_t>() : 0;
          if (dim < 0) text += "..., ";
          for (int64_t d = 0; d < std::min<int64_t>(dim, 8); ++d) text += ":, ";
        } else {
          const std::string whole = given.is_string() ? given.get<std::string>() : given.dump();
          text += key[0] == 'l' && whole.size() > 1 ? whole.substr(1, whole.size() - 2) : whole;
        }
        i = end + 1;
      } else if (key == "x" || key == "y") {
        text += variable(step.inputs[key == "y"]);
        i = end + 1;
      } else if (!key.empty() && step.values.contains(key)) {
        text += value(step.values[key]);
        i = end + 1;
      } else {
        text += pattern[i++];
      }
    }
    return text;
  }
};

std::string code(const std::vector<Step>& steps, bool gradients, const Language& language) {
  std::string text = language.cpp ? "#include <mica/mica.h>\nusing namespace mica;\n\n" : "import mica\n\n";
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool in_place = steps[i].operation->kind == Kind::InPlace;
    text += language.cpp ? "Tensor " : "";
    text += language.variable(i) + " = " + language.write(steps[i]) + (language.cpp ? ";" : "");
    text += in_place ? (language.cpp ? "  // in place\n" : "  # in place\n") : "\n";
  }
  if (gradients && !steps.empty())
    text += language.variable(steps.size() - 1) + ".sum().backward()" + (language.cpp ? ";\n" : "\n");
  return text;
}

}  // namespace

std::string python_code(const std::vector<Step>& steps, bool gradients) { return code(steps, gradients, {false}); }
std::string cpp_code(const std::vector<Step>& steps, bool gradients) { return code(steps, gradients, {true}); }
std::string python_of(const Step& step) { return Language{false}.write(step); }

}  // namespace mica::lab
