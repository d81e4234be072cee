// An einsum expression taken apart: which axis of which operand is which letter, and what happens to it.
#include <algorithm>
#include <map>

#include "instruments.h"

namespace mica::lab {

namespace {

struct Letters {
  std::vector<std::string> inputs;
  std::string output;
  bool explicit_output = false;
};

// Letters alone; the engine checks the rest. Spaces are left out.
Letters letters_of(const std::string& equation) {
  Letters found;
  std::string text;
  for (const char c : equation)
    if (c != ' ') text += c;
  const size_t arrow = text.find("->");
  found.explicit_output = arrow != std::string::npos;
  std::string left = text.substr(0, arrow), word;
  for (const char c : left + ",") {
    if (c == ',') {
      found.inputs.push_back(std::exchange(word, ""));
    } else {
      MICA_CHECK((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), "the explorer reads letters, commas and ->, not '",
                 c, "'");
      word += c;
    }
  }
  if (found.explicit_output) {
    found.output = text.substr(arrow + 2);
  } else {
    // Without an arrow the letters that occur once remain, in alphabetical order.
    std::map<char, int> times;
    for (const std::string& s : found.inputs)
      for (const char c : s) ++times[c];
    for (const auto& [c, n] : times)
      if (n == 1) found.output += c;
  }
  return found;
}

}  // namespace

Json einsum(const Json& question) {
  NoGradGuard below;
  const std::string equation = question.at("equation").get<std::string>();
  MICA_CHECK(equation.size() <= 64, "an equation of at most 64 characters is read here");
  const Letters letters = letters_of(equation);
  MICA_CHECK(letters.inputs.size() <= 3, "one to three operands are shown here, not ", letters.inputs.size());
  std::map<char, int64_t> sizes;
  for (const std::string& s : letters.inputs)
    for (const char c : s) sizes.emplace(c, static_cast<int64_t>(2 + sizes.size() % 3));
  if (question.contains("sizes"))
    for (auto& [c, n] : sizes)
      if (const auto given = question.at("sizes").find(std::string(1, c)); given != question.at("sizes").end())
        n = given->get<int64_t>();
  std::vector<Tensor> operands;
  double work = 1;
  for (const auto& [c, n] : sizes) {
    MICA_CHECK(n >= 1 && n <= 16, "an axis has 1 to 16 places here, not ", n);
    work *= static_cast<double>(n);
  }
  Json inputs = Json::array();
  for (const std::string& s : letters.inputs) {
    DimVector shape;
    int64_t numel = 1;
    for (const char c : s) {
      shape.push_back(sizes[c]);
      numel *= sizes[c];
    }
    MICA_CHECK(numel <= kMostElements, "an operand has at most ", kMostElements, " elements here");
    operands.push_back(mica::arange(numel, DType::Float32).add(1).reshape(shape));
    inputs.push_back({{"letters", s}, {"shape", integers(shape)}, {"values", first_values(operands.back())}});
  }
  const Tensor result = mica::einsum(equation, TensorList(operands.data(), operands.size()));
  Json axes = Json::array();
  for (const auto& [c, n] : sizes) {
    Json where = Json::array();
    int operands_with = 0;
    for (size_t i = 0; i < letters.inputs.size(); ++i) {
      bool here = false;
      for (size_t d = 0; d < letters.inputs[i].size(); ++d)
        if (letters.inputs[i][d] == c) {
          where.push_back({{"operand", i}, {"axis", d}});
          here = true;
        }
      operands_with += here;
    }
    const bool kept = letters.output.find(c) != std::string::npos;
    const bool diagonal = static_cast<int>(where.size()) > operands_with;
    axes.push_back({{"letter", std::string(1, c)},
                    {"size", n},
                    {"where", where},
                    {"kept", kept},
                    {"what", cat(diagonal ? "runs along a diagonal, " : "",
                                 kept ? (operands_with > 1 ? "matched between operands, and kept" : "kept")
                                      : (operands_with > 1 ? "matched, multiplied and summed away" : "summed away"))}});
  }
  return {
      {"inputs", inputs},
      {"axes", axes},
      {"result", {{"letters", letters.output}, {"shape", integers(result.sizes())}, {"values", first_values(result)}}},
      {"loops", sizes.size()},
      {"products", work},
      {"python", cat("mica.einsum(\"", equation, "\", ...)")}};
}

}  // namespace mica::lab
