// How tensors are written as text, in Python and in C++.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "mica/tensor.h"

namespace mica {

struct PrintOptions {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  int64_t precision = 4;         // digits after the decimal point
  int64_t threshold = 1000;      // a tensor of more elements is shown by its edges
  int64_t edgeitems = 3;         // how many items an edge has, in each dimension
  int64_t linewidth = 80;        // characters after which a row is broken
  std::optional<bool> sci_mode;  // scientific notation; unset: where the magnitudes ask for it
};

PrintOptions print_options();
void set_print_options(const PrintOptions& options);

// The text of `t.str()` with another name than "tensor", for subclasses. `contents` replaces the values; `last` comes
// after the facts about the tensor.
std::string print(const Tensor& t, std::string_view name, std::optional<std::string_view> contents = std::nullopt,
                  std::optional<std::string> last = std::nullopt);

std::ostream& operator<<(std::ostream& out, const Tensor& t);
std::ostream& operator<<(std::ostream& out, DType dtype);
std::ostream& operator<<(std::ostream& out, Device device);
std::ostream& operator<<(std::ostream& out, IntArrayRef dims);  // [2, 3]

}  // namespace mica
