#include "pattern.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "mica/error.h"

namespace mica::lab {

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool in_name(char c) { return is_letter(c) || c == '_' || (c >= '0' && c <= '9'); }

std::string trimmed(const std::string& s) {
  const size_t from = s.find_first_not_of(' ');
  return from == std::string::npos ? "" : s.substr(from, s.find_last_not_of(' ') - from + 1);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// einops writes names between spaces, some of them in brackets.
Axes words_of(const std::string& text) {
  Axes axes;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '(' || c == ')') {
      MICA_CHECK(inside == (c == ')'), "brackets are opened and closed once, and not within each other: ", text);
      inside = c == '(';
      if (inside) axes.emplace_back();
      ++i;
    } else if (c == ' ') {
      ++i;
    } else if (c == '1' && (i + 1 == text.size() || !in_name(text[i + 1]))) {
      if (!inside) axes.emplace_back();  // a dimension of size 1
      ++i;
    } else {
      MICA_CHECK(is_letter(c) || c == '_', "the explorer reads names, 1, brackets, commas and ->, not '", c, "'");
      std::string name;
      while (i < text.size() && in_name(text[i])) name += text[i++];
      if (!inside) axes.emplace_back();
      axes.back().push_back(name);
    }
  }
  MICA_CHECK(!inside, "a bracket is not closed: ", text);
  std::set<std::string> seen;
  for (const auto& dimension : axes)
    for (const std::string& name : dimension)
      MICA_CHECK(seen.insert(name).second, "einops takes an axis once a side: '", name, "' is twice in ", text);
  return axes;
}

Axes letters_of(const std::string& text) {
  Axes axes;
  for (const char c : text) {
    if (c == ' ') continue;
    MICA_CHECK(is_letter(c), "the explorer reads letters, commas and ->, not '", c, "'");
    axes.push_back({std::string(1, c)});
  }
  return axes;
}

// The names of a side.
std::set<std::string> names_of(const Axes& axes) {
  std::set<std::string> names;
  for (const auto& dimension : axes) names.insert(dimension.begin(), dimension.end());
  return names;
}

bool has_new_axes(const Pattern& p) {
  std::set<std::string> known;
  for (const Axes& axes : p.inputs) known.merge(names_of(axes));
  const std::set<std::string> out = names_of(p.output);
  return !std::includes(known.begin(), known.end(), out.begin(), out.end());
}

void check_einops(const Pattern& p, const std::string& text) {
  if (p.inputs.size() > 1) {
    MICA_CHECK(text.find('(') == std::string::npos,
               "einops lays axes together in rearrange, reduce and repeat, not in products");
    MICA_CHECK(!has_new_axes(p), "einops repeats one tensor along a new axis, not a product of several");
  }
  MICA_CHECK(!(has_new_axes(p) && drops_axes(p)),
             "einops repeats along new axes or reduces old ones, not both at once");
}

}  // namespace

Pattern pattern_of(const std::string& text) {
  Pattern p;
  const size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  const std::string right = arrow == std::string::npos ? "" : text.substr(arrow + 2);
  p.einops = text.find('(') != std::string::npos || trimmed(right).find(' ') != std::string::npos;
  for (const std::string& operand : split(left, ',')) p.einops |= trimmed(operand).find(' ') != std::string::npos;
  MICA_CHECK(!p.einops || arrow != std::string::npos, "a pattern of einops has an arrow, ->");
  for (const std::string& operand : split(left, ','))
    p.inputs.push_back(p.einops ? words_of(operand) : letters_of(operand));
  if (p.einops) {
    p.output = words_of(right);
    check_einops(p, text);
  } else if (arrow != std::string::npos) {
    p.output = letters_of(right);
  } else {
    // Without an arrow the letters that occur once remain, in alphabetical order.
    std::map<std::string, int> times;
    for (const Axes& axes : p.inputs)
      for (const auto& dimension : axes) ++times[dimension[0]];
    for (const auto& [name, n] : times)
      if (n == 1) p.output.push_back({name});
  }
  return p;
}

bool drops_axes(const Pattern& p) {
  const std::set<std::string> first = names_of(p.inputs[0]), out = names_of(p.output);
  return !std::includes(out.begin(), out.end(), first.begin(), first.end());
}

std::string python_of(const Pattern& p, const std::string& text, const std::map<std::string, int64_t>& sizes,
                      const std::string& reduction) {
  if (!p.einops) return cat("mica.einsum(\"", text, "\", ...)");
  if (p.inputs.size() > 1) {
    std::string operands;
    for (size_t i = 0; i < p.inputs.size(); ++i) operands += std::string(1, static_cast<char>('a' + i)) + ", ";
    return cat("einops.einsum(", operands, "\"", text, "\")");
  }
  const std::set<std::string> known = names_of(p.inputs[0]);
  std::string given;
  for (const auto& dimension : p.inputs[0]) {
    // Of axes that lie together all sizes but one are told.
    for (size_t i = 1; i < dimension.size(); ++i) given += cat(", ", dimension[i], "=", sizes.at(dimension[i]));
  }
  for (const std::string& name : names_of(p.output))
    if (!known.count(name)) given += cat(", ", name, "=", sizes.at(name));
  if (has_new_axes(p)) return cat("einops.repeat(a, \"", text, "\"", given, ")");
  if (drops_axes(p)) return cat("einops.reduce(a, \"", text, "\", \"", reduction, "\"", given, ")");
  return cat("einops.rearrange(a, \"", text, "\"", given, ")");
}

}  // namespace mica::lab
