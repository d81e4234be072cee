// From the JSON of an archive to a graph that can be run. Nothing of a file is run: targets are looked up in the table.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "program/document.h"
#include "program/schema.h"

namespace mica::program {

// The operator that a file names, or an error that names it.
const Operator& operator_of(const std::string& target);

class GraphReader {
 public:
  // `of_state` are the names of inputs that outlive a call: parameters, buffers, constants.
  explicit GraphReader(std::unordered_set<std::string> of_state = {}) : of_state_(std::move(of_state)) {}

  Graph read(const Json& data);
  bool changes_state() const { return changes_state_; }
  int32_t slot(const std::string& name) const;  // throws if nothing has the name

 private:
  using Given = std::unordered_map<std::string, const Json*>;  // arguments by their names

  int32_t add(const std::string& name);
  void read_step(const Json& row);
  // The steps of auto_functionalized_v2 (on_copies.cpp).
  void read_on_copies(const Json& row);
  int32_t add_copy(int32_t base, const std::string& name);
  std::optional<int32_t> part_of_copies(const std::string& prefix, const std::vector<int32_t>& copies, Given& given);
  Operand changed_argument(const Declared& declared, const std::vector<int32_t>& copies, Given& given);
  // Fills in an operator with the arguments of a row; makes the operand of one argument. Where they do not fit, they
  // return false or nothing, and why_ says why.
  bool fill(const Operator& op, const Json& inputs, Step& step, bool by_position);
  std::optional<Operand> operand(const Json& argument, const Declared& declared);
  std::optional<Operand> list_operand(const Union& given, const Declared& declared);
  Operand operand_without_type(const Json& argument);
  Places places(const Json& list, bool optional);
  OpenNumber open_number(const Json& member);
  void add_results(const Json& outputs, Step& step);
  void note_state(const Declaration& declaration, const Step& step);
  void find_last_uses();

  Graph graph_;
  std::unordered_map<std::string, int32_t> slots_;
  std::unordered_set<std::string> of_state_;
  std::unordered_set<int32_t> state_slots_;
  bool changes_state_ = false;       // writes to something that outlives a call
  bool writes_ = false;              // writes to any tensor
  bool numbers_as_tensors_ = false;  // whether a number may stand for a tensor
  std::string why_;
};

}  // namespace mica::program
