// The sizes and dtypes of inputs for which a program was exported. Sizes may be open.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mica/tensor.h"
#include "program/document.h"

namespace mica::program {

struct Range {
  int64_t least = 0, greatest = INT64_MAX;
};

class InputSizes {
 public:
  InputSizes() = default;
  InputSizes(std::string name, const Json& meta);

  // Throws if the program was not exported for such a tensor. `symbols` holds the values that other inputs have given.
  void check(const Tensor& given, std::map<std::string, int64_t>& symbols,
             const std::map<std::string, Range>& ranges) const;
  // Checks the sizes that follow from symbols, once all are known.
  void check_expressions(const Tensor& given, const std::map<std::string, int64_t>& symbols) const;

 private:
  struct Size {
    int64_t number = -1;     // -1 where the size is open
    std::string symbol;      // of a size that is one symbol
    std::string expression;  // of a size that is an expression, in SymPy's words: Add(Integer(1), Symbol('s0', ...))
  };
  std::string name_;
  DType dtype_ = DType::Undefined;
  std::vector<Size> sizes_;
};

std::map<std::string, Range> read_ranges(const Json& document);

// The value of an expression of sizes. Nothing where it holds something unknown, such as a symbol without a value.
std::optional<int64_t> evaluate(std::string_view expression, const std::map<std::string, int64_t>& symbols);

}  // namespace mica::program
