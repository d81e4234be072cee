// A call of an operation by its name: programs that were read from files call the engine in this way. The functions
// that take arguments from a call are generated (codegen/boxed.py); operators that are not in the table are in
// hand_written.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "mica/core/options.h"
#include "mica/tensor.h"

namespace mica::program {

struct Graph;

// The value of a name of the program while it runs. A tensor is always defined; an operation's missing result is none.
using Value = std::variant<std::monostate, Tensor, int64_t, double, bool>;

// Arguments as a step keeps them: constants in the form that the operation wants, or places of values of the run.
struct Place {
  int32_t slot;
  bool optional = false;  // whether the value may be none
};
struct Places {
  std::vector<int32_t> slots;  // slots of tensors; kNone for none
  bool optional = false;       // whether elements may be none
};
struct OpenNumber {
  int32_t slot;  // kNone where the number is known
  int64_t number;
};
using OpenNumbers = std::vector<OpenNumber>;
struct Bools {
  std::array<bool, 16> values{};
  size_t count = 0;
};
inline constexpr int32_t kNone = -1;

using Operand = std::variant<std::monostate, Place, Places, OpenNumbers, Scalar, bool, int64_t, double, std::string,
                             DType, MemoryFormat, Layout, Device, std::vector<int64_t>, std::vector<double>, Bools,
                             std::shared_ptr<const Graph>>;

class Call;

struct Operator {
  const char* schema;  // torch's schema
  void (*function)(Call&);
};
// The operators of the table, by family.
std::vector<ArrayRef<Operator>> all_operators();
// The operators that are not in the table: sizes, arithmetic on them, assertions; branches and loops.
ArrayRef<Operator> hand_written_operators();
ArrayRef<Operator> operators_of_graphs();

struct Step {
  const Operator* op = nullptr;
  std::string target;                   // as the file names it, for errors
  std::vector<Operand> operands;        // in the order of the schema, defaults filled in
  std::vector<int32_t> results;         // slots; kNone where nobody asks for the result
  std::vector<int32_t> last_used_here;  // slots whose values are released after the step
};

struct Graph {
  size_t slots = 0;
  std::vector<int32_t> inputs;
  std::vector<Step> steps;
  std::vector<Operand> outputs;
};

// Runs a graph on values of its inputs. `device` is where the program was moved to, if it was.
std::vector<Value> run(const Graph& graph, std::vector<Value> inputs, std::optional<Device> device);

class Call {
 public:
  Call(const Step& step, std::vector<Value>& values, std::optional<Device> device)
      : step_(step), values_(values), device_(device) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The argument at a place of the schema; `*_if` takes an optional one. References live as long as the call.
  const Tensor& tensor(size_t i);
  TensorList tensors(size_t i);
  int64_t integer(size_t i);
  double real(size_t i);
  bool boolean(size_t i);
  std::string_view text(size_t i);
  const Scalar& scalar(size_t i);
  DType dtype(size_t i);
  MemoryFormat memory_format(size_t i);
  Device device(size_t i);
  IntArrayRef integers(size_t i);
  ArrayRef<double> reals(size_t i);
  ArrayRef<bool> booleans(size_t i);
  std::optional<int64_t> integer_if(size_t i);
  std::optional<double> real_if(size_t i);
  std::optional<bool> boolean_if(size_t i);
  std::optional<std::string_view> text_if(size_t i);
  std::optional<Scalar> scalar_if(size_t i);
  std::optional<DType> dtype_if(size_t i);
  std::optional<MemoryFormat> memory_format_if(size_t i);
  std::optional<Layout> layout_if(size_t i);
  std::optional<Device> device_if(size_t i);
  std::optional<IntArrayRef> integers_if(size_t i);
  std::optional<ArrayRef<double>> reals_if(size_t i);
  TensorOptions options(size_t i);  // dtype, layout, device and pin_memory, from this place on

  const Operator& op() const { return *step_.op; }
  // For calls whose arguments have no declared types.
  size_t size() const { return step_.operands.size(); }
  const Graph& graph(size_t i);
  std::vector<Value> values(size_t i);       // a list counts as its elements
  std::vector<Value> values_from(size_t i);  // all arguments from this place on
  std::optional<Device> moved_to() const { return device_; }

  void give(const Tensor& result);
  void give(const std::vector<Tensor>& results);
  void give(const Scalar& result);
  void give(int64_t result) { give_value(result); }
  void give(double result) { give_value(result); }
  void give(bool result) { give_value(result); }
  template <class... Parts>
  void give(const std::tuple<Parts...>& results) {
    std::apply([&](const Parts&... part) { (give(part), ...); }, results);
  }
  void give_values(std::vector<Value> results);
  void finish() const;  // throws if more or fewer results came than the program names

 private:
  const Operand& at(size_t i) const { return step_.operands[i]; }
  bool is_none(size_t i) const;
  const Value& value(const Place& place) const;
  const Tensor& tensor_of(int32_t slot, bool optional) const;
  const Tensor& tensor_of_number(size_t i, const Scalar& number);
  void give_value(Value value);
  [[noreturn]] void wrong(size_t i, const char* wanted) const;

  const Step& step_;
  std::vector<Value>& values_;
  std::optional<Device> device_;
  size_t given_ = 0;
  std::forward_list<std::vector<Tensor>> lists_;
  std::forward_list<std::vector<int64_t>> numbers_;
  std::forward_list<Scalar> scalars_;
};

}  // namespace mica::program
