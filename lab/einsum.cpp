// An einsum expression, or a pattern of einops, taken apart: which axis of which operand has which name, and what
// happens to it.
#include <algorithm>
#include <map>

#include "instruments.h"
#include "mica/layers.h"
#include "pattern.h"

namespace mica::lab {

namespace {

// What a tensor of the pattern is: the names of its axes, one by one and as dimensions, and its numbers.
Json tensor_json(const Axes& axes, const std::map<std::string, int64_t>& sizes, const Tensor& t) {
  Json names = Json::array(), each = Json::array();
  std::string letters;
  for (const auto& dimension : axes)
    for (const std::string& name : dimension) {
      names.push_back(name);
      each.push_back(sizes.at(name));
      letters += name;
    }
  return {{"letters", letters},           {"names", names},           {"sizes", each}, {"groups", axes},
          {"shape", integers(t.sizes())}, {"values", first_values(t)}};
}

DimVector shape_of(const Axes& axes, const std::map<std::string, int64_t>& sizes) {
  DimVector shape;
  for (const auto& dimension : axes) {
    int64_t n = 1;
    for (const std::string& name : dimension) n *= sizes.at(name);
    shape.push_back(n);
  }
  return shape;
}

Axes one_by_one(const Axes& axes) {
  Axes single;
  for (const auto& dimension : axes)
    for (const std::string& name : dimension) single.push_back({name});
  return single;
}

// A pattern of einops by the engine's own operations: axes taken apart, multiplied and reduced, put in order, stretched
// where the result has new ones, and laid together.
Tensor by_pattern(const Pattern& p, const std::map<std::string, int64_t>& sizes, const std::vector<Tensor>& operands,
                  const std::string& reduction) {
  std::map<std::string, char> letter;
  for (const auto& [name, size] : sizes) letter[name] = static_cast<char>('a' + letter.size());
  const auto letters_of = [&](const Axes& axes) {
    std::string text;
    for (const auto& dimension : axes)
      for (const std::string& name : dimension) text += letter.at(name);
    return text;
  };
  std::string equation, kept, dropped;
  std::vector<Tensor> parts;
  for (size_t i = 0; i < operands.size(); ++i) {
    equation += (i ? "," : "") + letters_of(p.inputs[i]);
    parts.push_back(operands[i].reshape(shape_of(one_by_one(p.inputs[i]), sizes)));
  }
  const std::string out = letters_of(p.output);
  for (const char c : out)
    if (equation.find(c) != std::string::npos) kept += c;
  for (const char c : equation)
    if (c != ',' && out.find(c) == std::string::npos) dropped += c;
  Tensor made;
  if (reduction == "max" || reduction == "min") {
    MICA_CHECK(operands.size() == 1, "einops reduces one tensor by ", reduction, ", not a product of several");
    DimVector over;
    for (size_t d = 0; d < equation.size(); ++d)
      if (dropped.find(equation[d]) != std::string::npos) over.push_back(static_cast<int64_t>(d));
    const Tensor least = over.empty() ? parts[0] : reduction == "max" ? parts[0].amax(over) : parts[0].amin(over);
    std::string left;
    for (const char c : equation)
      if (dropped.find(c) == std::string::npos) left += c;
    made = mica::einsum(left + "->" + kept, TensorList(&least, 1));
  } else {
    made = mica::einsum(equation + "->" + kept, TensorList(parts.data(), parts.size()));
    if (reduction == "mean") {
      int64_t count = 1;
      for (const auto& [name, size] : sizes)
        if (dropped.find(letter.at(name)) != std::string::npos) count *= size;
      made = made.div(static_cast<double>(count));
    }
  }
  for (size_t d = 0; d < out.size(); ++d)
    if (kept.find(out[d]) == std::string::npos) made = made.unsqueeze(static_cast<int64_t>(d));
  return made.expand(shape_of(one_by_one(p.output), sizes)).reshape(shape_of(p.output, sizes));
}

// How many operands have an axis, and where.
Json axis_json(const std::string& name, int64_t size, const Pattern& p, const std::string& reduced) {
  Json where = Json::array();
  int operands_with = 0;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    bool here = false;
    for (size_t d = 0; d < p.inputs[i].size(); ++d)
      for (const std::string& n : p.inputs[i][d])
        if (n == name) {
          where.push_back({{"operand", i}, {"axis", d}, {"part", p.inputs[i][d].size() > 1}});
          here = true;
        }
    operands_with += here;
  }
  bool kept = false, together = false;
  for (const auto& dimension : p.output)
    if (std::count(dimension.begin(), dimension.end(), name)) {
      kept = true;
      together = dimension.size() > 1;
    }
  const bool diagonal = static_cast<int>(where.size()) > operands_with;
  std::string what = !operands_with      ? "new: the numbers are repeated along it"
                     : kept              ? (operands_with > 1 ? "matched between operands, and kept" : "kept")
                     : operands_with > 1 ? "matched, multiplied and " + reduced
                                         : reduced;
  if (together) what += ", laid together with its neighbours";
  return {{"letter", name},
          {"size", size},
          {"where", where},
          {"kept", kept},
          {"what", cat(diagonal ? "runs along a diagonal, " : "", what)}};
}

}  // namespace

Json einsum(const Json& question) {
  NoGradGuard below;
  const std::string equation = question.at("equation").get<std::string>();
  MICA_CHECK(equation.size() <= 96, "an equation of at most 96 characters is read here");
  const std::string reduction = question.value("reduction", "sum");
  MICA_CHECK(reduction == "sum" || reduction == "mean" || reduction == "max" || reduction == "min",
             "axes are reduced by sum, mean, max or min here, not by ", reduction);
  const Pattern p = pattern_of(equation);
  MICA_CHECK(p.inputs.size() <= 3, "one to three operands are shown here, not ", p.inputs.size());
  std::map<std::string, int64_t> sizes;
  const auto give_size = [&](const Axes& axes) {
    for (const auto& dimension : axes)
      for (const std::string& name : dimension) sizes.emplace(name, static_cast<int64_t>(2 + sizes.size() % 3));
  };
  for (const Axes& axes : p.inputs) give_size(axes);
  if (p.einops) give_size(p.output);
  MICA_CHECK(sizes.size() <= 12, "a pattern has at most twelve axes here");
  if (question.contains("sizes"))
    for (auto& [name, n] : sizes)
      if (const auto given = question.at("sizes").find(name); given != question.at("sizes").end())
        n = given->get<int64_t>();
  double work = 1;
  for (const auto& [name, n] : sizes) {
    MICA_CHECK(n >= 1 && n <= 16, "an axis has 1 to 16 places here, not ", n);
    work *= static_cast<double>(n);
  }
  const auto check_size = [&](const Axes& axes) {
    double numel = 1;
    for (const int64_t n : shape_of(axes, sizes)) numel *= static_cast<double>(n);
    MICA_CHECK(numel <= static_cast<double>(kMostElements), "a tensor has at most ", kMostElements, " elements here");
  };
  std::vector<Tensor> operands;
  Json inputs = Json::array();
  for (const Axes& axes : p.inputs) {
    check_size(axes);
    const DimVector shape = shape_of(axes, sizes);
    int64_t numel = 1;
    for (const int64_t n : shape) numel *= n;
    operands.push_back(mica::arange(numel, DType::Float32).add(1).reshape(shape));
    inputs.push_back(tensor_json(axes, sizes, operands.back()));
  }
  if (p.einops) check_size(p.output);
  const Tensor result = p.einops ? by_pattern(p, sizes, operands, reduction)
                                 : mica::einsum(equation, TensorList(operands.data(), operands.size()));
  const std::string reduced = !p.einops || reduction == "sum" ? "summed away" : "reduced away by the " + reduction;
  Json axes = Json::array();
  for (const auto& [name, n] : sizes) axes.push_back(axis_json(name, n, p, reduced));
  return {{"inputs", inputs},
          {"axes", axes},
          {"result", tensor_json(p.output, sizes, result)},
          {"loops", sizes.size()},
          {"products", work},
          {"einops", p.einops},
          {"reduces", p.einops && p.inputs.size() == 1 && drops_axes(p)},
          {"python", python_of(p, equation, sizes, reduction)}};
}

}  // namespace mica::lab
