// safetensors: the length of a JSON header, the header (names, dtypes, shapes, places), then the tensors' bytes.
#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "core/exported_storage.h"
#include "core/geometry.h"
#include "io/file.h"
#include "io/json.h"
#include "io/storage_view.h"
#include "mica/mapped_memory.h"
#include "mica/ops.h"
#include "mica/tensor_files.h"

namespace mica {

namespace {

constexpr uint64_t kLongestHeader = 100'000'000;  // as the format's own library has it
constexpr size_t kHeaderAlignment = 8;            // where the bytes of tensors begin

struct DtypeName {
  DType dtype;
  const char* name;
};
constexpr DtypeName kDtypes[] = {
    {DType::Float64, "F64"},
    {DType::Float32, "F32"},
    {DType::Float16, "F16"},
    {DType::BFloat16, "BF16"},
    {DType::Int64, "I64"},
    {DType::Int32, "I32"},
    {DType::Int16, "I16"},
    {DType::Int8, "I8"},
    {DType::UInt64, "U64"},
    {DType::UInt32, "U32"},
    {DType::UInt16, "U16"},
    {DType::UInt8, "U8"},
    {DType::Bool, "BOOL"},
    {DType::Float8_e4m3fn, "F8_E4M3"},
    {DType::Float8_e5m2, "F8_E5M2"},
    {DType::Complex64, "C64"},
    {DType::Float8_e8m0fnu, "F8_E8M0"},
    {DType::Float4_e2m1fn_x2, "F4"},
};

DType dtype_of(const std::string& name) {
  for (const DtypeName& known : kDtypes)
    if (name == known.name) return known.dtype;
  fail(cat("unknown dtype ", name));
}

const char* name_of(DType dtype) {
  for (const DtypeName& known : kDtypes)
    if (dtype == known.dtype) return known.name;
  fail(cat("safetensors has no dtype for ", dtype));
}

const io::Json& member(const io::Json& entry, const char* key, io::Json::Kind kind) {
  const io::Json* const found = entry.find(key);
  MICA_CHECK(found && found->kind == kind, "an entry of the header has no valid ", key);
  return *found;
}

struct Entry {
  std::string name;
  DType dtype;
  DimVector sizes;
  uint64_t begin, end;
};

Entry read_entry(const std::string& name, const io::Json& json, uint64_t room) {
  using Kind = io::Json::Kind;
  Entry entry{name, dtype_of(member(json, "dtype", Kind::String).text), {}, 0, 0};
  for (const io::Json& n : member(json, "shape", Kind::Array).items) {
    MICA_CHECK(n.kind == Kind::Number && n.number >= 0, "the shape of ", name, " is not a list of sizes");
    entry.sizes.push_back(n.number);
  }
  const io::Json& places = member(json, "data_offsets", Kind::Array);
  MICA_CHECK(places.items.size() == 2 && places.items[0].kind == Kind::Number && places.items[1].kind == Kind::Number,
             "the data_offsets of ", name, " are not two numbers");
  const int64_t begin = places.items[0].number, end = places.items[1].number;
  MICA_CHECK(0 <= begin && begin <= end && static_cast<uint64_t>(end) <= room, "the bytes of ", name, ", ", begin,
             " to ", end, ", lie outside of the file");
  if (entry.dtype == DType::Float4_e2m1fn_x2) {  // the file counts 4-bit numbers, a tensor counts bytes
    MICA_CHECK(!entry.sizes.empty() && entry.sizes.back() % 2 == 0, "the 4-bit numbers of ", name,
               " do not fill whole bytes: the last size has to be even");
    entry.sizes.back() /= 2;
  }
  const int64_t elements = count_elements(entry.sizes);
  int64_t nbytes = 0;
  MICA_CHECK(!__builtin_mul_overflow(elements, element_size(entry.dtype), &nbytes) && nbytes == end - begin, name,
             " has ", end - begin, " bytes, and its shape wants ", elements, " elements of ", entry.dtype);
  entry.begin = static_cast<uint64_t>(begin);
  entry.end = static_cast<uint64_t>(end);
  return entry;
}

TensorFile read_mapped(const Storage& mapped, uint64_t size, Device device) {
  MICA_CHECK(size >= 8, "it is shorter than a header's length");
  const char* const bytes = static_cast<const char*>(mapped->data());
  uint64_t length = 0;
  std::memcpy(&length, bytes, 8);
  MICA_CHECK(length <= kLongestHeader && length <= size - 8, "its header of ", length, " bytes is longer than allowed");
  const io::Json header = io::parse_json(std::string_view(bytes + 8, length));
  MICA_CHECK(header.kind == io::Json::Kind::Object, "its header is not a JSON object");
  TensorFile file;
  std::vector<Entry> entries;
  const uint64_t start = 8 + length;
  for (const auto& [name, json] : header.entries) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : json.entries) file.metadata.emplace_back(key, value.text);
    } else {
      entries.push_back(read_entry(name, json, size - start));
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
  for (const Entry& entry : entries) {
    Storage storage = part_of(mapped, start + entry.begin, entry.end - entry.begin);
    if ((start + entry.begin) % static_cast<uint64_t>(element_size(entry.dtype))) {  // every element must be aligned
      Storage copy = StorageImpl::allocate(entry.end - entry.begin, kCPU);
      std::memcpy(copy->data(), storage->data(), entry.end - entry.begin);
      storage = copy;
    }
    const Tensor tensor = io::view_storage(storage, entry.dtype, 0, entry.sizes, contiguous_strides(entry.sizes));
    file.tensors.emplace_back(entry.name, tensor.to(TensorOptions(device)));
  }
  return file;
}

}  // namespace

TensorFile load_safetensors(const std::string& path, Device device) {
  const uint64_t size = io::FileSource(path).size();
  try {
    MICA_CHECK(size > 0, "it is empty");
    return read_mapped(map_file(path, size, false), size, device);
  } catch (const Error& e) {
    fail(cat(path, " (", size, " bytes) is not a safetensors file, or damaged: ", e.what()));
  }
}

void save_safetensors(const NamedTensors& tensors, const std::string& path, const FileMetadata& metadata) {
  // Large elements first, so that each lies at a multiple of its size; then by name: the same tensors, the same bytes.
  NamedTensors ordered = tensors;
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    const int64_t x = a.second.element_size(), y = b.second.element_size();
    return x != y ? x > y : a.first < b.first;
  });
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : ordered)
    MICA_CHECK(names.insert(name).second, "save_safetensors: two tensors are called ", name);
  std::string header = "{";
  const auto separate = [&] {
    if (header.size() > 1) header += ',';
  };
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (size_t i = 0; i < metadata.size(); ++i)
      header += (i ? "," : "") + io::quoted_json(metadata[i].first) + ":" + io::quoted_json(metadata[i].second);
    header += '}';
  }
  int64_t at = 0;
  for (const auto& [name, tensor] : ordered) {
    separate();
    header += io::quoted_json(name) + ":{\"dtype\":\"" + name_of(tensor.dtype()) + "\",\"shape\":[";
    MICA_CHECK(tensor.dtype() != DType::Float4_e2m1fn_x2 || tensor.dim() > 0,
               "safetensors has no dtype for a pair of 4-bit numbers without dimensions");
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      const bool pairs = tensor.dtype() == DType::Float4_e2m1fn_x2 && d + 1 == tensor.dim();
      header += (d ? "," : "") + std::to_string(tensor.size(d) * (pairs ? 2 : 1));
    }
    header += "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + tensor.nbytes()) + "]}";
    at += tensor.nbytes();
  }
  header += '}';
  while (header.size() % kHeaderAlignment) header += ' ';
  io::AtomicFile file(path);
  const uint64_t length = header.size();
  file.write(&length, 8);
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : ordered) {
    const Tensor plain = tensor.detach().resolve_conj().resolve_neg().to(TensorOptions(kCPU)).contiguous();
    if (plain.numel()) file.write(plain.data_ptr(), static_cast<size_t>(plain.nbytes()));
  }
  file.commit();
}

}  // namespace mica
