#include "autograd/saved_fields.h"

#include <cstring>
#include <utility>

#include "autograd/raw_saved.h"

namespace mica {

static constinit const SavedFieldsTable* first_table = nullptr;

SavedFieldsTable::SavedFieldsTable(const SavedFields* fields, size_t count)
    : fields_(fields), count_(count), next_(first_table) {
  first_table = this;
}

// Where a search for the saved tensors themselves notes them, instead of unpacking them. Null outside of such a search.
static thread_local RawSaved* noted = nullptr;

void SavedFieldSearch::operator()(const char* name, const SavedTensor& value) {
  if (!is_wanted(name)) return;
  if (noted) return noted->tensors.push_back(const_cast<SavedTensor*>(&value));
  found = value.defined() ? SavedValue(value.unpack(&node_, true)) : SavedValue();
}

void SavedFieldSearch::operator()(const char* name, const std::vector<SavedTensor>& value) {
  if (!is_wanted(name)) return;
  if (noted) {
    noted->is_list = true;
    for (const SavedTensor& t : value) noted->tensors.push_back(const_cast<SavedTensor*>(&t));
    return;
  }
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

std::optional<RawSaved> raw_saved_field(Node& node, std::string_view name) {
  RawSaved result;
  SavedFieldSearch search(node, name);
  RawSaved* const before = std::exchange(noted, &result);
  show_saved_fields(node, search);
  noted = before;
  if (result.tensors.empty() && !result.is_list) return std::nullopt;
  return result;
}

}  // namespace mica
