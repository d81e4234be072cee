// torch's schemas of operators, as much as is needed to fill in a call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/call.h"

namespace mica::program {

enum class Base : uint8_t {
  Tensor,
  Int,
  Float,
  Bool,
  Str,
  Scalar,
  ScalarType,
  MemoryFormat,
  Layout,
  Device,
  Generator
};

struct Declared {
  std::string name;
  Base base = Base::Tensor;
  bool optional = false;  // the argument, or the list, may be none
  bool is_list = false;
  bool element_optional = false;  // elements of a list may be none
  bool changed = false;           // the operator writes to it
  bool shared = false;            // whether the result may be a view of it
  bool keyword_only = false;
  int64_t list_size = 0;  // one number stands for that many
  bool has_default = false;
  Operand fallback;
};

struct Declaration {
  std::string_view name;  // "add.Tensor"
  std::vector<Declared> arguments;
  bool returns_view = false;  // whether the result is a view of an argument that is `shared`
};

std::string_view name_of(const Operator& op);
Declaration read_schema(const Operator& op);

// The operator of a full name ("add.Tensor", "_operator.mul"), or null; and all overloads of a name.
const Operator* find_operator(std::string_view full_name);
std::vector<const Operator*> find_overloads(std::string_view name);
// An operator that a program of C++ has defined, by its name in archives ("torch.ops.mylib.scale.default"), or null.
const Operator* find_own_operator(std::string_view target);

}  // namespace mica::program
