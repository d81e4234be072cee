// What a node keeps for its backward pass, by name, as programs look at it: x.grad_fn._saved_self.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mica/autograd.h"
#include "mica/core/scalar.h"

namespace mica {

using SavedValue = std::variant<std::monostate, Tensor, TensorVec, bool, int64_t, double, Scalar, DimVector, DType,
                                std::string, std::vector<double>, std::vector<DimVector>>;

// Looks for one field of a node, and notes the names of all that it is shown.
class SavedFieldSearch {
 public:
  explicit SavedFieldSearch(Node& node, std::string_view wanted = {}) : node_(node), wanted_(wanted) {}

  void operator()(const char* name, const SavedTensor& value);
  void operator()(const char* name, const std::vector<SavedTensor>& value);
  template <class T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (is_wanted(name)) found = value ? SavedValue(*value) : SavedValue();
  }
  template <class T>
  void operator()(const char* name, const T& value) {
    if (is_wanted(name)) found = SavedValue(value);
  }
  void operator()(const char* name, const TensorOptions&) { names.push_back(name); }
  void operator()(const char* name, const std::vector<DType>&) { names.push_back(name); }

  std::optional<SavedValue> found;
  std::vector<const char*> names;

 private:
  bool is_wanted(const char* name) {
    names.push_back(name);
    return wanted_ == name;
  }
  Node& node_;
  std::string_view wanted_;
};

struct SavedFields {
  const char* node;
  void (*show)(Node& node, SavedFieldSearch& search);
};

// The fields of a family's nodes, linked into a list as the library is loaded.
class SavedFieldsTable {
 public:
  SavedFieldsTable(const SavedFields* fields, size_t count);

 private:
  friend void show_saved_fields(Node& node, SavedFieldSearch& search);
  const SavedFields* fields_;
  size_t count_;
  const SavedFieldsTable* next_;
};

// Shows all fields of a node to a search; none for nodes that the table does not make.
void show_saved_fields(Node& node, SavedFieldSearch& search);

}  // namespace mica
