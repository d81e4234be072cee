// The operations that the page may name, and programs made of them. Nothing else that comes from a page is carried out.
#pragma once

#include <string>
#include <vector>

#include "describe.h"

namespace mica::lab {

enum class Kind { Create, View, Copy, Math, Reduce, InPlace };
const char* name(Kind kind);

// What an operation is given besides tensors.
struct Parameter {
  enum class Type { Integer, Integers, Number, Dtype, Boolean, Choice };
  const char* name;
  Type type = Type::Integer;
  Json otherwise = nullptr;      // what the page starts with
  Json choices = Json::array();  // of a Choice: the words that it may be
};

// The values of an operation's parameters, checked for their type as they are read.
class Values {
 public:
  explicit Values(const Json& values) : values_(values) {}
  int64_t integer(const char* name) const;
  DimVector integers(const char* name) const;
  double number(const char* name) const;
  Scalar scalar(const char* name) const;
  DType dtype(const char* name) const;
  bool boolean(const char* name) const;
  std::string word(const char* name) const;

 private:
  const Json& at(const char* name) const;
  const Json& values_;
};

struct Operation {
  const char* name;
  Kind kind;
  int tensors;  // how many it takes: 0, 1 or 2
  std::vector<Parameter> parameters;
  Tensor (*call)(const std::vector<Tensor>& x, const Values& v);
  // The call as code: {x} and {y} are the tensors, {name} a parameter, {list:name} one without its brackets,
  // {word:name} a word. C++ is the same where it is empty.
  const char* python;
  const char* cpp = "";
};
const std::vector<Operation>& operations();
void add_arithmetic(std::vector<Operation>& table);  // those of operations_math.cpp
const Operation& operation(const std::string& name);
Json operations_json();

// One step of a program: an operation on the results of earlier steps.
struct Step {
  const Operation* operation;
  std::vector<size_t> inputs;
  Json values;
};
std::vector<Step> program(const Json& steps);  // checked; at most 64 steps
Tensor run(const Step& step, const std::vector<Tensor>& results);
std::string python_code(const std::vector<Step>& steps, bool gradients = false);
std::string cpp_code(const std::vector<Step>& steps, bool gradients = false);
std::string python_of(const Step& step);          // "x1.t()"
std::string cpp_dtype(const std::string& dtype);  // "DType::Float32"

}  // namespace mica::lab
