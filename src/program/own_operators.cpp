// Operators of torch.library that a program of C++ defines (mica/program.h).
#include <map>
#include <memory>
#include <mutex>

#include "mica/error.h"
#include "mica/program.h"
#include "program/schema.h"

namespace mica {

namespace program {

namespace {

struct OwnOperator : Operator {
  std::string text;
  OperatorFunction body;
};

std::mutex defining;

std::map<std::string, std::unique_ptr<OwnOperator>, std::less<>>& defined() {
  static std::map<std::string, std::unique_ptr<OwnOperator>, std::less<>> operators;
  return operators;
}

void call_own(Call& c) {
  const auto& op = static_cast<const OwnOperator&>(c.op());
  for (const Tensor& result : op.body(OperatorArguments(&c))) c.give(result);
}

// "mylib::scale.overload(" -> "torch.ops.mylib.scale.overload", as archives name it.
std::string target_of(std::string_view schema) {
  const size_t colons = schema.find("::"), bracket = schema.find('(');
  MICA_CHECK(colons != std::string_view::npos && colons > 0 && bracket != std::string_view::npos &&
                 bracket > colons + 2 && schema.find(") -> ") != std::string_view::npos,
             "define_operator: expected a schema such as \"mylib::scale(Tensor x, float factor) -> Tensor\", got \"",
             schema, "\"");
  const std::string_view name = schema.substr(colons + 2, bracket - colons - 2);
  return cat("torch.ops.", schema.substr(0, colons), ".", name,
             name.find('.') == std::string_view::npos ? ".default" : "");
}

}  // namespace

const Operator* find_own_operator(std::string_view target) {
  const std::lock_guard lock(defining);
  const auto found = defined().find(target);
  return found == defined().end() ? nullptr : found->second.get();
}

}  // namespace program

void define_operator(const std::string& schema, OperatorFunction function) {
  const std::string target = program::target_of(schema);
  MICA_CHECK(function, "define_operator: the function of ", target, " is empty");
  auto made = std::make_unique<program::OwnOperator>();
  made->text = schema;
  made->schema = made->text.c_str();
  made->function = program::call_own;
  made->body = std::move(function);
  program::read_schema(*made);  // throws an error that says what is wrong with it
  const std::lock_guard lock(program::defining);
  MICA_CHECK(program::defined().emplace(target, std::move(made)).second, "define_operator: ", target,
             " is defined already");
}

static program::Call& call_of(void* call, size_t i) {
  auto& made = *static_cast<program::Call*>(call);
  MICA_CHECK(i < made.size(), "the operator has ", made.size(), " arguments, and its function asks for number ", i);
  return made;
}

Tensor OperatorArguments::tensor(size_t i) const { return call_of(call_, i).tensor(i); }
std::vector<Tensor> OperatorArguments::tensors(size_t i) const {
  const TensorList given = call_of(call_, i).tensors(i);
  return {given.begin(), given.end()};
}
int64_t OperatorArguments::integer(size_t i) const { return call_of(call_, i).integer(i); }
std::vector<int64_t> OperatorArguments::integers(size_t i) const {
  const IntArrayRef given = call_of(call_, i).integers(i);
  return {given.begin(), given.end()};
}
double OperatorArguments::real(size_t i) const { return call_of(call_, i).real(i); }
bool OperatorArguments::boolean(size_t i) const { return call_of(call_, i).boolean(i); }
std::string OperatorArguments::text(size_t i) const { return std::string(call_of(call_, i).text(i)); }

}  // namespace mica
