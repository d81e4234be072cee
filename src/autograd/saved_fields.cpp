#include "autograd/saved_fields.h"

#include <cstring>

namespace mica {

static constinit const SavedFieldsTable* first_table = nullptr;

SavedFieldsTable::SavedFieldsTable(const SavedFields* fields, size_t count)
    : fields_(fields), count_(count), next_(first_table) {
  first_table = this;
}

void SavedFieldSearch::operator()(const char* name, const SavedTensor& value) {
  if (is_wanted(name)) found = value.defined() ? SavedValue(value.unpack(&node_, true)) : SavedValue();
}

void SavedFieldSearch::operator()(const char* name, const std::vector<SavedTensor>& value) {
  if (!is_wanted(name)) return;
  TensorVec list;
  for (const SavedTensor& t : value) list.push_back(t.unpack(&node_, true));
  found = SavedValue(std::move(list));
}

void show_saved_fields(Node& node, SavedFieldSearch& search) {
  for (const SavedFieldsTable* table = first_table; table; table = table->next_) {
    for (size_t i = 0; i < table->count_; ++i) {
      // Overloads share a name: each looks whether the node is its own.
      if (std::strcmp(table->fields_[i].node, node.name()) == 0) table->fields_[i].show(node, search);
    }
  }
}

}  // namespace mica
