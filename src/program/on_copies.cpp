// auto_functionalized_v2: an operator that changes arguments runs on copies of them, whose new values are further
// results. Arguments may be views of what is copied, so that two views of one tensor see each other's changes. The file
// says how each view is made (`_x_base_index` and what stands beside it); here they become steps of their own.
#include "mica/error.h"
#include "program/graph_reader.h"

namespace mica::program {

namespace {

constexpr const char* kTarget = "torch.ops.higher_order.auto_functionalized_v2";

bool returns_nothing(const Operator& op) { return std::string_view(op.schema).ends_with("-> ()"); }

// Takes an argument out of what is given, so that what nobody takes is seen; null: it is not there.
template <class Map>
const Json* taken(Map& given, const std::string& name) {
  const auto found = given.find(name);
  if (found == given.end()) return nullptr;
  const Json* const argument = found->second;
  given.erase(found);
  return argument;
}

}  // namespace

int32_t GraphReader::add_copy(int32_t base, const std::string& name) {
  Step step;
  step.op = find_operator("higher_order.copy_with_strides");
  step.target = kTarget;
  step.operands = {Place{base}};
  step.results = {add(name)};
  graph_.steps.push_back(std::move(step));
  return graph_.steps.back().results[0];
}

// The copy itself, or the view of it that the arguments `<prefix>...` describe; none where the operator is given None.
std::optional<int32_t> GraphReader::part_of_copies(const std::string& prefix, const std::vector<int32_t>& copies,
                                                   Given& given) {
  const Json* const at = taken(given, cat(prefix, "base_index"));
  if (!at) damaged(cat("there is no valid ", prefix, "base_index"));
  const auto [kind, value] = only(*at);
  if (kind == "as_none") return std::nullopt;
  const int64_t index = kind == "as_int" ? whole_number(value) : -1;
  if (index < 0 || index >= static_cast<int64_t>(copies.size())) damaged(cat(prefix, "base_index is no copy's"));
  const int32_t copy = copies[static_cast<size_t>(index)];
  taken(given, cat(prefix, "alias"));
  const bool is_slice = given.contains(cat(prefix, "slice_dim"));
  if (!is_slice && !given.contains(cat(prefix, "size"))) return copy;
  Step step;
  step.op = find_operator(is_slice ? "slice.Tensor" : "as_strided");
  step.target = kTarget;
  step.operands = {Place{copy}};
  const std::vector<Declared> declared = read_schema(*step.op).arguments;
  const auto words = is_slice ? std::vector<const char*>{"slice_dim", "slice_start", "slice_end"}
                              : std::vector<const char*>{"size", "stride", "storage_offset"};
  for (size_t i = 0; i < words.size(); ++i) {
    const Json* const argument = taken(given, cat(prefix, words[i]));
    const auto found = argument ? operand(*argument, declared[i + 1]) : std::nullopt;
    if (!found) damaged(cat("there is no valid ", prefix, words[i]));
    step.operands.push_back(*found);
  }
  for (size_t i = step.operands.size(); i < declared.size(); ++i) step.operands.push_back(declared[i].fallback);
  step.results = {static_cast<int32_t>(graph_.slots++)};
  graph_.steps.push_back(std::move(step));
  return graph_.steps.back().results[0];
}

Operand GraphReader::changed_argument(const Declared& declared, const std::vector<int32_t>& copies, Given& given) {
  const std::string prefix = cat("_", declared.name, "_");
  if (!declared.is_list) {
    const auto part = part_of_copies(prefix, copies, given);
    if (!part && !declared.optional) damaged(cat("the changed argument ", declared.name, " is None"));
    return part ? Operand(Place{*part, declared.optional}) : Operand();
  }
  const Json* const length = taken(given, cat(prefix, "length"));
  if (!length) damaged(cat("there is no valid ", prefix, "length"));
  const auto [kind, value] = only(*length);
  if (kind == "as_none" && declared.optional) return {};
  const int64_t count = kind == "as_int" ? whole_number(value) : -1;
  if (count < 0) damaged(cat("there is no valid ", prefix, "length"));
  Places places{{}, declared.element_optional};
  for (int64_t i = 0; i < count; ++i) {  // a length that is too large ends at the first part that is not there
    const auto part = part_of_copies(cat(prefix, i, "_"), copies, given);
    if (!part && !declared.element_optional) damaged(cat("a tensor of the list ", declared.name, " is None"));
    places.slots.push_back(part.value_or(kNone));
  }
  return places;
}

void GraphReader::read_on_copies(const Json& row) {
  const Json& inputs = member(row, "inputs", Json::Kind::Array);
  const Json& outputs = member(row, "outputs", Json::Kind::Array);
  if (inputs.items.empty()) damaged("auto_functionalized_v2 calls nothing");
  const auto [kind, target] = only(member(inputs.items[0], "arg", Json::Kind::Object));
  MICA_CHECK_KIND(kind == "as_operator" && target.kind == Json::Kind::String, NotImplemented,
                  "the program calls auto_functionalized_v2 of what is no operator, which Mica does not run from C++");
  Step step;
  step.target = target.text;
  step.op = &operator_of(step.target);
  Given given;
  for (size_t i = 1; i < inputs.items.size(); ++i)
    given[text_member(inputs.items[i], "name")] = &member(inputs.items[i], "arg", Json::Kind::Object);

  const Json* const bases = taken(given, "_all_bases");
  if (!bases) damaged("there is no valid _all_bases");
  const std::vector<int32_t> originals = places(only(*bases).value, false).slots;
  if (outputs.items.size() < originals.size()) damaged("auto_functionalized_v2 has too few results");
  const size_t own_results = outputs.items.size() - originals.size();
  std::vector<int32_t> copies;
  for (size_t i = 0; i < originals.size(); ++i) {
    const auto [what, value] = only(outputs.items[own_results + i]);
    copies.push_back(
        add_copy(originals[i], what == "as_tensor" ? text_member(value, "name") : cat(kTarget, ".", graph_.slots)));
  }

  const Declaration declaration = read_schema(*step.op);
  for (const Declared& declared : declaration.arguments) {
    if (declared.changed) {
      step.operands.push_back(changed_argument(declared, copies, given));
      continue;
    }
    const Json* const argument = taken(given, declared.name);
    const auto found = argument ? operand(*argument, declared) : std::nullopt;
    MICA_CHECK_KIND(found || (!argument && declared.has_default), NotImplemented, "the program calls ", step.target,
                    " with arguments that it does not take: ", declared.name, " of ", step.op->schema);
    step.operands.push_back(found ? *found : declared.fallback);
  }
  MICA_CHECK_KIND(given.empty(), NotImplemented, "the program calls ", step.target,
                  " with arguments that it does not take: there is no argument ", given.begin()->first);
  Json own = outputs;
  own.items.resize(returns_nothing(*step.op) ? 0 : own_results);
  add_results(own, step);
  note_state(declaration, step);
  graph_.steps.push_back(std::move(step));
}

}  // namespace mica::program
