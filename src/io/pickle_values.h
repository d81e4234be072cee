// Reads and writes pickles of values, for mica::save and mica::load. The bytes of tensors lie elsewhere.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "mica/serialize.h"

namespace mica::io {

// Storages as pickles refer to them.
struct StorageReference {
  std::string key;
  std::string location;  // "cpu", "cuda:0"
  DType dtype;
  int64_t count;  // the number of elements
};

// `refer` gives each storage the key under which its bytes are written.
std::string pickle(const Value& value, const std::function<std::string(const Storage&)>& refer);

// `fetch` gives the storage under a reference. Throws for what is not a tensor, a plain value or a container.
Value unpickle(std::string_view pickle, const std::function<Storage(const StorageReference&)>& fetch);

const char* storage_class_name(DType dtype);       // "FloatStorage"; null where the dtype's storages hold bytes
DType storage_class_dtype(std::string_view name);  // Undefined where it is not the name of one

}  // namespace mica::io
