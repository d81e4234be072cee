#include "program/input_sizes.h"

#include <charconv>

#include "mica/error.h"
#include "program/arithmetic.h"

namespace mica::program {

namespace {

// Reads an expression as SymPy's srepr writes it. It gives up at anything that it does not know.
class Evaluator {
 public:
  Evaluator(std::string_view text, const std::map<std::string, int64_t>& symbols) : text_(text), symbols_(symbols) {}

  std::optional<int64_t> whole() {
    const auto value = read(0);
    return value && at_ == text_.size() ? value : std::nullopt;
  }

 private:
  static constexpr int kDeepest = 64;

  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string_view word() {
    skip_space();
    const size_t begin = at_;
    const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'; };
    while (at_ < text_.size() && part(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::optional<int64_t> value_of(std::string_view symbol) const {
    const auto found = symbols_.find(std::string(symbol));
    return found == symbols_.end() ? std::nullopt : std::optional(found->second);
  }
  static std::optional<int64_t> number(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
  }

  std::optional<int64_t> read(int depth) {
    if (depth > kDeepest) return std::nullopt;
    const std::string_view name = word();
    if (name.empty()) return std::nullopt;
    if (const auto plain = number(name)) return plain;
    if (!take('(')) return value_of(name);
    if (name == "Integer") {
      const auto value = number(word());
      return take(')') ? value : std::nullopt;
    }
    if (name == "Symbol") return symbol();
    return combined(name, depth);
  }

  std::optional<int64_t> symbol() {
    if (!take('\'')) return std::nullopt;
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) return std::nullopt;
    const auto value = value_of(text_.substr(at_, end - at_));
    at_ = text_.find(')', end);  // its assumptions are not needed
    if (at_ == std::string_view::npos) return std::nullopt;
    ++at_;
    return value;
  }

  std::optional<int64_t> combined(std::string_view name, int depth) {
    static const std::map<std::string_view, Arithmetic> known = {
        {"Add", Arithmetic::Add}, {"Mul", Arithmetic::Mul},           {"Max", Arithmetic::Max},
        {"Min", Arithmetic::Min}, {"FloorDiv", Arithmetic::FloorDiv}, {"Mod", Arithmetic::Mod},
        {"Pow", Arithmetic::Pow}, {"PythonMod", Arithmetic::Mod}};
    const auto found = known.find(name);
    if (found == known.end()) return std::nullopt;
    std::optional<int64_t> result;
    do {
      const auto next = read(depth + 1);
      if (!next) return std::nullopt;
      const Scalar made = result ? compute(found->second, *result, *next) : Scalar(*next);
      if (made.is_floating()) return std::nullopt;
      result = made.to<int64_t>();
    } while (take(','));
    return take(')') ? result : std::nullopt;
  }

  std::string_view text_;
  const std::map<std::string, int64_t>& symbols_;
  size_t at_ = 0;
};

// The name of an expression that is one symbol.
std::string symbol_in(const std::string& expression) {
  const auto is_word = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
                                std::string_view::npos;
  };
  if (is_word(expression) && !std::isdigit(static_cast<unsigned char>(expression[0]))) return expression;
  constexpr std::string_view kBegin = "Symbol('";
  if (!expression.starts_with(kBegin)) return "";
  const size_t end = expression.find('\'', kBegin.size());
  if (end == std::string::npos || expression.find(')') != expression.size() - 1) return "";
  return expression.substr(kBegin.size(), end - kBegin.size());
}

}  // namespace

std::optional<int64_t> evaluate(std::string_view expression, const std::map<std::string, int64_t>& symbols) {
  return Evaluator(expression, symbols).whole();
}

InputSizes::InputSizes(std::string name, const Json& meta) : name_(std::move(name)) {
  const Json* const dtype = member_if(meta, "dtype");
  if (!dtype) damaged("a tensor has no dtype");
  dtype_ = dtype_of_number(*dtype);
  for (const Json& each : member(meta, "sizes", Json::Kind::Array).items) {
    const auto [kind, value] = only(each);
    Size size;
    if (kind == "as_int") {
      size.number = whole_number(value);
    } else {
      const std::string& text = text_member(value, "expr_str");
      size.symbol = symbol_in(text);
      if (size.symbol.empty()) size.expression = text;
    }
    sizes_.push_back(std::move(size));
  }
}

void InputSizes::check(const Tensor& given, std::map<std::string, int64_t>& symbols,
                       const std::map<std::string, Range>& ranges) const {
  MICA_CHECK(given.defined(), "the input ", name_, " of the program is an undefined tensor");
  MICA_CHECK(given.dtype() == dtype_, "the program was exported for ", name_, " of ", dtype_, ", and this is ",
             given.dtype());
  MICA_CHECK(given.dim() == static_cast<int64_t>(sizes_.size()), "the program was exported for ", name_, " of ",
             sizes_.size(), " dimensions, and this has ", given.dim());
  for (size_t d = 0; d < sizes_.size(); ++d) {
    const Size& size = sizes_[d];
    const int64_t number = given.sizes()[d];
    MICA_CHECK(size.number < 0 || size.number == number, "the program was exported for ", name_, " of size ",
               size.number, " at dimension ", d, ", and this has ", number);
    if (size.symbol.empty()) continue;
    const auto [known, is_new] = symbols.emplace(size.symbol, number);
    MICA_CHECK(is_new || known->second == number, "the program was exported for sizes that are equal, and dimension ",
               d, " of ", name_, " has ", number, " where another has ", known->second);
    const auto range = ranges.find(size.symbol);
    if (range == ranges.end()) continue;
    MICA_CHECK(range->second.least <= number && number <= range->second.greatest, "the program was exported for ",
               name_, " with ", range->second.least, " to ", range->second.greatest, " at dimension ", d,
               ", and this has ", number);
  }
}

void InputSizes::check_expressions(const Tensor& given, const std::map<std::string, int64_t>& symbols) const {
  for (size_t d = 0; d < sizes_.size(); ++d) {
    if (sizes_[d].expression.empty()) continue;
    const auto meant = evaluate(sizes_[d].expression, symbols);
    MICA_CHECK(!meant || *meant == given.sizes()[d], "the program was exported for ", name_, " of size ", *meant,
               " at dimension ", d, " beside its other sizes, and this has ", given.sizes()[d]);
  }
}

std::map<std::string, Range> read_ranges(const Json& document) {
  std::map<std::string, Range> ranges;
  const Json* const listed = member_if(document, "range_constraints");
  if (!listed) return ranges;
  for (const auto& [name, ends] : listed->entries) {
    Range range;
    const Json* const least = member_if(ends, "min_val");
    const Json* const greatest = member_if(ends, "max_val");
    if (least && least->kind == Json::Kind::Number) range.least = least->number;
    if (greatest && greatest->kind == Json::Kind::Number) range.greatest = greatest->number;
    ranges.emplace(name, range);
  }
  return ranges;
}

}  // namespace mica::program
