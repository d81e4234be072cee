#include "core/out_dtype.h"

#include <algorithm>
#include <string>

#include "core/error_advice.h"
#include "mica/error.h"
#include "mica/tensor.h"

namespace mica {
namespace {

const OutDtypeRule* rule_of(std::string_view op) {
  const auto rules = out_dtype_rules();
  const auto found = std::lower_bound(rules.begin(), rules.end(), op,
                                      [](const OutDtypeRule& rule, std::string_view name) { return rule.op < name; });
  return found != rules.end() && found->op == op ? &*found : nullptr;
}

std::string with_dtypes(std::string_view words, DType given, DType result) {
  std::string text(words);
  const auto replace = [&](std::string_view word, std::string_view by) {
    for (size_t at; (at = text.find(word)) != std::string::npos;) text.replace(at, word.size(), by);
  };
  replace("{result}", info(result).legacy);
  replace("{given}", info(given).legacy);
  replace("{c10 result}", cpp_name(result));
  replace("{c10 given}", cpp_name(given));
  return text;
}

}  // namespace

void check_dtype_of_out(const char* op, DType given, DType result) {
  if (given == result) return;
  const OutDtypeRule* rule = rule_of(op);
  if (rule && rule->takes == OutDtypeRule::Any) return;
  if (rule && rule->takes == OutDtypeRule::Exact) fail(with_dtypes(rule->words, given, result));
  if (can_cast(result, given)) return;
  constexpr std::string_view kWords = "result type {result} can't be cast to the desired output type {given}";
  fail(with_dtypes(rule ? rule->words : kWords, given, result));
}

}  // namespace mica
