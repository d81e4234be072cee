#include "program/graph_reader.h"

#include <algorithm>

#include "mica/error.h"

namespace mica::program {

namespace {

// "torch.ops.aten.add.Tensor" -> "add.Tensor", "torch.ops.aten.relu.default" -> "relu"; others stay as they are.
std::string name_in_table(std::string_view target) {
  constexpr std::string_view kAten = "torch.ops.aten.", kHigher = "torch.ops.", kDefault = ".default";
  if (target.starts_with("torch.ops.higher_order.")) return std::string(target.substr(kHigher.size()));
  if (target.starts_with("operator.")) return cat("_", target);
  for (const std::string_view of_numbers : {"torch.sym_", "_operator.", "math.", "builtins."})
    if (target.starts_with(of_numbers)) return std::string(target);
  if (!target.starts_with(kAten)) return "";
  target.remove_prefix(kAten.size());
  if (target.ends_with(kDefault)) target.remove_suffix(kDefault.size());
  return std::string(target);
}

double real_member(const Json& object, std::string_view key) {
  const Json* const found = member_if(object, key);
  if (!found) damaged(cat("there is no valid ", key));
  return real_number(*found);
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<int64_t> repeated(int64_t number, const Declared& declared) {
  return std::vector<int64_t>(static_cast<size_t>(std::max<int64_t>(declared.list_size, 1)), number);
}

const Json& argument_of(const Json& input) { return member(input, "arg", Json::Kind::Object); }

template <class Visit>
void visit_slots(const Operand& operand, const Visit& visit) {
  if (const auto* place = std::get_if<Place>(&operand)) visit(place->slot);
  if (const auto* places = std::get_if<Places>(&operand))
    for (const int32_t slot : places->slots) visit(slot);
  if (const auto* numbers = std::get_if<OpenNumbers>(&operand))
    for (const auto& number : *numbers) visit(number.slot);
}

}  // namespace

int32_t GraphReader::add(const std::string& name) {
  const auto slot = static_cast<int32_t>(graph_.slots++);
  if (!slots_.emplace(name, slot).second) damaged(cat("two values are called ", name));
  if (of_state_.contains(name)) state_slots_.insert(slot);
  return slot;
}

int32_t GraphReader::slot(const std::string& name) const {
  const auto found = slots_.find(name);
  if (found == slots_.end()) damaged(cat("nothing before its use is called ", name));
  return found->second;
}

Graph GraphReader::read(const Json& data) {
  for (const Json& input : member(data, "inputs", Json::Kind::Array).items) {
    const auto [kind, value] = only(input);
    const bool is_number = kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool";
    const char* const key = is_number ? "as_name" : "name";
    const bool is_named = kind == "as_tensor" || (is_number && member_if(value, key));
    graph_.inputs.push_back(is_named ? add(text_member(value, key)) : kNone);
  }
  for (const Json& row : member(data, "nodes", Json::Kind::Array).items) read_step(row);
  for (const Json& output : member(data, "outputs", Json::Kind::Array).items) {
    Operand made = operand_without_type(output);
    const bool is_told = std::holds_alternative<std::string>(made) || std::holds_alternative<DType>(made);
    graph_.outputs.push_back(is_told ? Operand() : std::move(made));  // a text is not a result
  }
  find_last_uses();
  return std::move(graph_);
}

// ---- steps

const Operator& operator_of(const std::string& target) {
  const std::string name = name_in_table(target);
  const Operator* const found = name.empty() ? find_own_operator(target) : find_operator(name);
  MICA_CHECK_KIND(found, NotImplemented, "the program calls ", target, ", which Mica does not run from C++",
                  name.empty() && target.starts_with("torch.ops.")
                      ? ": mica::define_operator (mica/program.h) says before it is loaded what the operator computes"
                      : "");
  return *found;
}

void GraphReader::read_step(const Json& row) {
  Step step;
  step.target = text_member(row, "target");
  if (step.target == "torch.ops.higher_order.auto_functionalized_v2") return read_on_copies(row);
  const std::string name = name_in_table(step.target);
  step.op = &operator_of(step.target);
  const Json& inputs = member(row, "inputs", Json::Kind::Array);
  if (name.starts_with("higher_order.")) {
    for (const Json& input : inputs.items) step.operands.push_back(operand_without_type(argument_of(input)));
  } else if (!fill(*step.op, inputs, step, true)) {
    // torch writes numbers where an overload of tensors is named (mul.Tensor(x, 2)): another overload takes them.
    const std::string why = why_;
    std::vector<const Operator*> others;
    if (step.target.starts_with("torch.ops.aten.")) others = find_overloads(name.substr(0, name.find('.')));
    const auto fits = [&](const Operator* op) { return op != step.op && fill(*op, inputs, step, false); };
    const auto found = std::find_if(others.begin(), others.end(), fits);
    if (found != others.end()) {
      step.op = *found;
    } else {
      numbers_as_tensors_ = true;  // sub.Tensor(1, x)
      const bool fits_so = step.target.starts_with("torch.ops.aten.") && fill(*step.op, inputs, step, true);
      numbers_as_tensors_ = false;
      MICA_CHECK_KIND(fits_so, NotImplemented, "the program calls ", step.target,
                      " with arguments that it does not take: ", why);
    }
  }
  const Declaration declaration = read_schema(*step.op);
  add_results(member(row, "outputs", Json::Kind::Array), step);
  note_state(declaration, step);
  graph_.steps.push_back(std::move(step));
}

bool GraphReader::fill(const Operator& op, const Json& inputs, Step& step, bool by_position) {
  const std::vector<Declared> declared = read_schema(op).arguments;
  std::vector<std::optional<Operand>> found(declared.size());
  for (size_t i = 0; i < inputs.items.size(); ++i) {
    const Json& input = inputs.items[i];
    const std::string& name = text_member(input, "name");
    const Json& argument = argument_of(input);
    const Json* const kind = member_if(input, "kind");
    size_t at = 0;
    while (at < declared.size() && declared[at].name != name) ++at;
    const bool is_keyword = kind && whole_number(*kind) == 2;
    if (at == declared.size() && by_position && !is_keyword && i < declared.size())
      at = i;  // torch has it under another name
    if (at == declared.size() || found[at]) {
      why_ = cat("there is no argument ", name);
      return false;
    }
    found[at] = operand(argument, declared[at]);
    if (!found[at]) {
      why_ = cat("the argument ", name, " of ", op.schema, " is given as ", only(argument).kind);
      return false;
    }
  }
  step.operands.clear();
  for (size_t i = 0; i < declared.size(); ++i) {
    if (!found[i] && !declared[i].has_default) {
      why_ = cat("the argument ", declared[i].name, " of ", op.schema, " is missing");
      return false;
    }
    step.operands.push_back(found[i] ? std::move(*found[i]) : declared[i].fallback);
  }
  return true;
}

void GraphReader::add_results(const Json& outputs, Step& step) {
  const auto add_one = [&](const Json& output) {
    const auto [kind, value] = only(output);
    if (kind == "as_tensor") {
      step.results.push_back(add(text_member(value, "name")));
    } else if (kind == "as_tensors") {
      for (const Json& each : value.items) step.results.push_back(add(text_member(each, "name")));
    } else if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
      step.results.push_back(member_if(value, "as_name") ? add(text_member(value, "as_name")) : kNone);
    } else if (kind == "as_none") {
      step.results.push_back(kNone);
    } else {
      fail(ErrorKind::NotImplemented, cat("Mica reads no results of the kind ", kind, ": ", step.target));
    }
  };
  for (const Json& output : outputs.items) add_one(output);
}

// Notes whether the program writes to something that outlives a call. One thread at a time runs such a program.
void GraphReader::note_state(const Declaration& declaration, const Step& step) {
  bool is_view = is_one_of(declaration.name, {"dropout", "type_as", "alpha_dropout", "feature_dropout"});
  bool of_state = false, trains = false;
  for (size_t i = 0; i < declaration.arguments.size() && i < step.operands.size(); ++i) {
    const Declared& declared = declaration.arguments[i];
    const auto* const truth = std::get_if<bool>(&step.operands[i]);
    trains |= truth && *truth && is_one_of(declared.name, {"training", "use_input_stats"});
    writes_ |= declared.changed || trains;
    visit_slots(step.operands[i], [&](int32_t slot) {
      if (!state_slots_.contains(slot)) return;
      of_state = true;
      changes_state_ |= declared.changed;
      is_view |= declared.shared && declaration.returns_view;
    });
  }
  changes_state_ |= trains && of_state;
  if (of_state && is_view) state_slots_.insert(step.results.begin(), step.results.end());
}

void GraphReader::find_last_uses() {
  std::unordered_set<int32_t> later;
  for (const Operand& output : graph_.outputs) visit_slots(output, [&](int32_t slot) { later.insert(slot); });
  for (auto step = graph_.steps.rbegin(); step != graph_.steps.rend(); ++step) {
    const auto note = [&](int32_t slot) {
      if (slot != kNone && later.insert(slot).second) step->last_used_here.push_back(slot);
    };
    for (const Operand& operand : step->operands) visit_slots(operand, note);
    for (const int32_t slot : step->results) note(slot);  // those that nobody reads
  }
}

// ---- arguments

Places GraphReader::places(const Json& list, bool optional) {
  if (list.kind != Json::Kind::Array) damaged("a list of tensors is none");
  Places made{{}, optional};
  for (const Json& each : list.items) {
    if (each.find("name")) {
      made.slots.push_back(slot(text_member(each, "name")));
      continue;
    }
    const auto [kind, value] = only(each);
    if (kind == "as_none" && !optional) damaged("a tensor of a list is None");
    made.slots.push_back(kind == "as_none" ? kNone : slot(text_member(value, "name")));
  }
  return made;
}

OpenNumber GraphReader::open_number(const Json& given) {
  const auto [kind, value] = only(given);
  if (kind == "as_int") return {kNone, whole_number(value)};
  if (kind != "as_name" || value.kind != Json::Kind::String) damaged("a size is neither a number nor a name");
  return {slot(value.text), 0};
}

std::optional<Operand> GraphReader::operand(const Json& argument, const Declared& declared) {
  const auto given = only(argument);
  const auto& [kind, value] = given;
  const Base base = declared.base;
  if (kind == "as_none") return declared.optional ? std::optional<Operand>(std::monostate()) : std::nullopt;
  if (declared.is_list) return list_operand(given, declared);
  if (base == Base::Tensor && numbers_as_tensors_ && kind != "as_tensor" && kind != "as_optional_tensor") {
    Declared number = declared;
    number.base = Base::Scalar;
    return operand(argument, number);
  }
  const bool is_number = base == Base::Int || base == Base::Float || base == Base::Scalar;
  if (kind == "as_tensor" && base == Base::Tensor) return Place{slot(text_member(value, "name")), declared.optional};
  if (kind == "as_optional_tensor" && base == Base::Tensor && declared.optional) {
    const auto [inner, what] = only(value);
    return inner == "as_none" ? Operand(std::monostate()) : Operand(Place{slot(text_member(what, "name")), true});
  }
  if (kind == "as_int" && is_number) {
    const int64_t number = whole_number(value);
    if (base == Base::Int) return number;
    return base == Base::Float ? Operand(static_cast<double>(number)) : Operand(Scalar(number));
  }
  if (kind == "as_float" && base == Base::Float) return real_number(value);
  if (kind == "as_float" && base == Base::Scalar) return Scalar(real_number(value));
  if (kind == "as_bool" && base == Base::Bool) return truth(value);
  if (kind == "as_bool" && is_number) {
    if (base == Base::Int) return int64_t{truth(value)};
    return base == Base::Float ? Operand(truth(value) ? 1.0 : 0.0) : Operand(Scalar(truth(value)));
  }
  if (kind == "as_complex" && base == Base::Scalar)
    return Scalar(std::complex<double>(real_member(value, "real"), real_member(value, "imag")));
  if ((kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") && (is_number || base == Base::Bool)) {
    const auto [inner, what] = only(value);
    if (inner == "as_name" && what.kind == Json::Kind::String) return Place{slot(what.text)};
    if (inner == "as_int" || inner == "as_float" || inner == "as_bool") return operand(value, declared);
    damaged("a size is neither a number nor a name");
  }
  if (kind == "as_string" && base == Base::Str && value.kind == Json::Kind::String) return value.text;
  if (kind == "as_scalar_type" && base == Base::ScalarType) return dtype_of_number(value);
  if (kind == "as_memory_format" && base == Base::MemoryFormat) return memory_format_of_number(value);
  if (kind == "as_layout" && base == Base::Layout) return layout_of_number(value);
  if (kind == "as_device" && base == Base::Device) return device_of(value);
  return std::nullopt;
}

std::optional<Operand> GraphReader::list_operand(const Union& given, const Declared& declared) {
  const auto& [kind, value] = given;
  const bool is_empty = value.kind == Json::Kind::Array && value.items.empty();
  switch (declared.base) {
    case Base::Tensor:
      if (kind == "as_tensors" || kind == "as_optional_tensors" || is_empty)
        return places(value, declared.element_optional);
      return std::nullopt;
    case Base::Int: {
      if (kind == "as_int") return repeated(whole_number(value), declared);  // one number stands for equal ones
      if (kind == "as_sym_int")
        return OpenNumbers(static_cast<size_t>(std::max<int64_t>(declared.list_size, 1)), open_number(value));
      if (kind != "as_ints" && kind != "as_sym_ints" && !is_empty) return std::nullopt;
      std::vector<int64_t> numbers;
      OpenNumbers open;
      for (const Json& each : value.items)
        open.push_back(kind == "as_ints" ? OpenNumber{kNone, whole_number(each)} : open_number(each));
      for (const auto& [slot, number] : open)
        if (slot == kNone) numbers.push_back(number);
      if (numbers.size() == open.size()) return numbers;
      return open;
    }
    case Base::Float: {
      if (kind != "as_floats" && kind != "as_ints" && !is_empty) return std::nullopt;
      std::vector<double> numbers;
      for (const Json& each : value.items) numbers.push_back(real_number(each));
      return numbers;
    }
    case Base::Bool: {
      Bools truths;
      if ((kind != "as_bools" && !is_empty) || value.items.size() > truths.values.size()) return std::nullopt;
      for (const Json& each : value.items) truths.values[truths.count++] = truth(each);
      return truths;
    }
    default:
      return std::nullopt;
  }
}

Operand GraphReader::operand_without_type(const Json& argument) {
  const auto [kind, value] = only(argument);
  if (kind == "as_none") return std::monostate();
  if (kind == "as_string" && value.kind == Json::Kind::String) return value.text;
  if (kind == "as_scalar_type") return dtype_of_number(value);
  if (kind == "as_tensor") return Place{slot(text_member(value, "name")), true};
  if (kind == "as_tensors" || kind == "as_optional_tensors") return places(value, true);
  if (kind == "as_int") return whole_number(value);
  if (kind == "as_float") return real_number(value);
  if (kind == "as_bool") return truth(value);
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
    const auto [inner, what] = only(value);
    if (inner == "as_name" && what.kind == Json::Kind::String) return Place{slot(what.text), true};
    return operand_without_type(value);
  }
  if (kind == "as_ints" || kind == "as_sym_ints") {
    OpenNumbers numbers;
    for (const Json& each : value.items)
      numbers.push_back(kind == "as_ints" ? OpenNumber{kNone, whole_number(each)} : open_number(each));
    return numbers;
  }
  if (kind == "as_graph") {
    GraphReader inner;
    auto graph = std::make_shared<const Graph>(inner.read(member(value, "graph", Json::Kind::Object)));
    writes_ |= inner.writes_;
    changes_state_ |= inner.writes_;  // perhaps a write to an operand that outlives the call
    return graph;
  }
  fail(ErrorKind::NotImplemented, cat("Mica reads no values of the kind ", kind, " from .pt2 archives"));
}

}  // namespace mica::program
