#include "program/call.h"

#include "mica/error.h"
#include "mica/ops.h"

namespace mica::program {

namespace {

std::optional<int64_t> as_integer(const Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* truth = std::get_if<bool>(&value)) return *truth;
  return std::nullopt;
}

std::optional<Scalar> as_scalar(const Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return Scalar(*number);
  if (const auto* number = std::get_if<double>(&value)) return Scalar(*number);
  if (const auto* truth = std::get_if<bool>(&value)) return Scalar(*truth);
  return std::nullopt;
}

}  // namespace

void Call::wrong(size_t i, const char* wanted) const {
  fail(cat("argument ", i, " of ", step_.target, " is no ", wanted));
}

const Value& Call::value(const Place& place) const { return values_[static_cast<size_t>(place.slot)]; }

bool Call::is_none(size_t i) const {
  const Operand& given = at(i);
  if (const auto* place = std::get_if<Place>(&given)) return std::holds_alternative<std::monostate>(value(*place));
  return std::holds_alternative<std::monostate>(given);
}

const Tensor& Call::tensor_of(int32_t slot, bool optional) const {
  static const Tensor none;
  if (slot != kNone) {
    const Value& given = values_[static_cast<size_t>(slot)];
    if (const auto* tensor = std::get_if<Tensor>(&given)) return *tensor;
    MICA_CHECK(std::holds_alternative<std::monostate>(given), "an argument of ", step_.target, " is not a tensor");
  }
  MICA_CHECK(optional, "an argument of ", step_.target, " is None, and has to be a tensor");
  return none;
}

// A number in the place of a tensor. It takes the dtype that the operation gives to both, as a plain number does.
const Tensor& Call::tensor_of_number(size_t i, const Scalar& number) {
  for (size_t other = 0; other < size(); ++other) {
    const auto* place = std::get_if<Place>(&at(other));
    const auto* beside = place ? std::get_if<Tensor>(&value(*place)) : nullptr;
    if (!beside) continue;
    const auto options = TensorOptions(result_type(*beside, number)).device(beside->device());
    return lists_.emplace_front(1, scalar_tensor(number, options)).front();
  }
  wrong(i, "tensor");
}

const Tensor& Call::tensor(size_t i) {
  if (const auto* number = std::get_if<Scalar>(&at(i))) return tensor_of_number(i, *number);
  if (const auto* place = std::get_if<Place>(&at(i))) {
    if (const auto number = as_scalar(value(*place))) return tensor_of_number(i, *number);
    return tensor_of(place->slot, place->optional);
  }
  if (!std::holds_alternative<std::monostate>(at(i))) wrong(i, "tensor");
  return tensor_of(kNone, true);  // whether it may be None was checked when the program was read
}

TensorList Call::tensors(size_t i) {
  const auto* places = std::get_if<Places>(&at(i));
  if (!places) wrong(i, "list of tensors");
  std::vector<Tensor>& list = lists_.emplace_front();
  list.reserve(places->slots.size());
  for (const int32_t slot : places->slots) list.push_back(tensor_of(slot, places->optional));
  return list;
}

int64_t Call::integer(size_t i) {
  if (const auto* number = std::get_if<int64_t>(&at(i))) return *number;
  if (const auto* place = std::get_if<Place>(&at(i)))
    if (const auto number = as_integer(value(*place))) return *number;
  wrong(i, "whole number");
}

double Call::real(size_t i) {
  if (const auto* number = std::get_if<double>(&at(i))) return *number;
  if (const auto* place = std::get_if<Place>(&at(i)))
    if (const auto number = as_scalar(value(*place))) return number->to<double>();
  wrong(i, "number");
}

bool Call::boolean(size_t i) {
  if (const auto* truth = std::get_if<bool>(&at(i))) return *truth;
  if (const auto* place = std::get_if<Place>(&at(i)))
    if (const auto* truth = std::get_if<bool>(&value(*place))) return *truth;
  wrong(i, "bool");
}

std::string_view Call::text(size_t i) {
  if (const auto* text = std::get_if<std::string>(&at(i))) return *text;
  wrong(i, "string");
}

const Scalar& Call::scalar(size_t i) {
  if (const auto* number = std::get_if<Scalar>(&at(i))) return *number;
  if (const auto* place = std::get_if<Place>(&at(i)))
    if (const auto number = as_scalar(value(*place))) return scalars_.emplace_front(*number);
  wrong(i, "number");
}

DType Call::dtype(size_t i) {
  if (const auto* dtype = std::get_if<DType>(&at(i))) return *dtype;
  wrong(i, "dtype");
}

MemoryFormat Call::memory_format(size_t i) {
  if (const auto* format = std::get_if<MemoryFormat>(&at(i))) return *format;
  wrong(i, "memory format");
}

Device Call::device(size_t i) {
  if (const auto* device = std::get_if<Device>(&at(i))) return device_.value_or(*device);
  wrong(i, "device");
}

IntArrayRef Call::integers(size_t i) {
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&at(i))) return *numbers;
  const auto* open = std::get_if<OpenNumbers>(&at(i));
  if (!open) wrong(i, "list of whole numbers");
  std::vector<int64_t>& numbers = numbers_.emplace_front();
  numbers.reserve(open->size());
  for (const auto& [slot, known] : *open) {
    const auto number = slot == kNone ? known : as_integer(values_[static_cast<size_t>(slot)]);
    if (!number) wrong(i, "list of whole numbers");
    numbers.push_back(*number);
  }
  return numbers;
}

ArrayRef<double> Call::reals(size_t i) {
  if (const auto* numbers = std::get_if<std::vector<double>>(&at(i))) return *numbers;
  wrong(i, "list of numbers");
}

ArrayRef<bool> Call::booleans(size_t i) {
  if (const auto* truths = std::get_if<Bools>(&at(i))) return ArrayRef<bool>(truths->values.data(), truths->count);
  wrong(i, "list of bools");
}

// clang-format off
std::optional<int64_t> Call::integer_if(size_t i) { if (is_none(i)) return std::nullopt; return integer(i); }
std::optional<double> Call::real_if(size_t i) { if (is_none(i)) return std::nullopt; return real(i); }
std::optional<bool> Call::boolean_if(size_t i) { if (is_none(i)) return std::nullopt; return boolean(i); }
std::optional<std::string_view> Call::text_if(size_t i) { if (is_none(i)) return std::nullopt; return text(i); }
std::optional<Scalar> Call::scalar_if(size_t i) { if (is_none(i)) return std::nullopt; return scalar(i); }
std::optional<DType> Call::dtype_if(size_t i) { if (is_none(i)) return std::nullopt; return dtype(i); }
std::optional<MemoryFormat> Call::memory_format_if(size_t i) { if (is_none(i)) return std::nullopt; return memory_format(i); }
std::optional<Device> Call::device_if(size_t i) { if (is_none(i)) return std::nullopt; return device(i); }
std::optional<IntArrayRef> Call::integers_if(size_t i) { if (is_none(i)) return std::nullopt; return integers(i); }
std::optional<ArrayRef<double>> Call::reals_if(size_t i) { if (is_none(i)) return std::nullopt; return reals(i); }
// clang-format on

std::optional<Layout> Call::layout_if(size_t i) {
  if (is_none(i)) return std::nullopt;
  if (const auto* layout = std::get_if<Layout>(&at(i))) return *layout;
  wrong(i, "layout");
}

TensorOptions Call::options(size_t i) {
  const std::optional<Device> device = device_if(i + 2);
  return TensorOptions()
      .dtype(dtype_if(i))
      .layout(layout_if(i + 1))
      .device(device ? device : device_)
      .pinned_memory(boolean_if(i + 3));
}

const Graph& Call::graph(size_t i) {
  if (i < size())
    if (const auto* graph = std::get_if<std::shared_ptr<const Graph>>(&at(i))) return **graph;
  wrong(i, "graph");
}

std::vector<Value> Call::values(size_t i) {
  if (i >= size()) wrong(i, "value");
  const Operand& given = at(i);
  const auto of_slot = [&](int32_t slot) { return slot == kNone ? Value() : values_[static_cast<size_t>(slot)]; };
  std::vector<Value> found;
  if (const auto* place = std::get_if<Place>(&given)) {
    found.push_back(of_slot(place->slot));
  } else if (const auto* places = std::get_if<Places>(&given)) {
    for (const int32_t slot : places->slots) found.push_back(of_slot(slot));
  } else if (const auto* whole = std::get_if<int64_t>(&given)) {
    found.emplace_back(*whole);
  } else if (const auto* real = std::get_if<double>(&given)) {
    found.emplace_back(*real);
  } else if (const auto* truth = std::get_if<bool>(&given)) {
    found.emplace_back(*truth);
  } else if (const auto* open = std::get_if<OpenNumbers>(&given)) {
    for (const auto& [slot, known] : *open) found.push_back(slot == kNone ? Value(known) : of_slot(slot));
  } else if (const auto* numbers = std::get_if<std::vector<int64_t>>(&given)) {
    for (const int64_t number : *numbers) found.emplace_back(number);
  } else {
    wrong(i, "value");
  }
  return found;
}

std::vector<Value> Call::values_from(size_t first) {
  std::vector<Value> found;
  for (size_t i = first; i < size(); ++i)
    for (Value& value : values(i)) found.push_back(std::move(value));
  return found;
}

void Call::give_value(Value value) {
  if (given_ < step_.results.size() && step_.results[given_] != kNone)
    values_[static_cast<size_t>(step_.results[given_])] = std::move(value);
  ++given_;
}

void Call::give(const Tensor& result) { give_value(result.defined() ? Value(result) : Value()); }

void Call::give(const std::vector<Tensor>& results) {
  for (const Tensor& result : results) give(result);
}

void Call::give(const Scalar& result) {
  MICA_CHECK(!result.is_complex(), "a complex number as a value of a program (", step_.target, ") is not read");
  if (result.is_bool()) return give(result.to<bool>());
  result.is_floating() ? give(result.to<double>()) : give(result.to<int64_t>());
}

void Call::give_values(std::vector<Value> results) {
  for (Value& result : results) give_value(std::move(result));
}

void Call::finish() const {
  // An operation that only changes its argument may be written without results.
  MICA_CHECK(given_ == step_.results.size() || step_.results.empty(), step_.target, " returned ", given_,
             " values, and the program names ", step_.results.size());
}

}  // namespace mica::program
