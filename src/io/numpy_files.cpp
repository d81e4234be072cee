// NumPy's files: .npy, a header that is a Python dict's text and then the array's bytes; .npz, a zip archive of such.
#include <algorithm>

#include "core/geometry.h"
#include "io/crc32.h"
#include "io/file.h"
#include "io/storage_view.h"
#include "io/zip_layout.h"
#include "mica/mapped_memory.h"
#include "mica/ops.h"
#include "mica/tensor_files.h"

namespace mica {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kAlignment = 64;  // where the bytes of an array begin

struct TypeName {
  DType dtype;
  const char* name;
};
constexpr TypeName kTypes[] = {
    {DType::Bool, "|b1"},      {DType::Int8, "|i1"},        {DType::UInt8, "|u1"},   {DType::Int16, "<i2"},
    {DType::UInt16, "<u2"},    {DType::Int32, "<i4"},       {DType::UInt32, "<u4"},  {DType::Int64, "<i8"},
    {DType::UInt64, "<u8"},    {DType::Float16, "<f2"},     {DType::Float32, "<f4"}, {DType::Float64, "<f8"},
    {DType::Complex64, "<c8"}, {DType::Complex128, "<c16"},
};

// The text after 'key': in the header, up to the comma that ends the entry.
std::string_view entry_of(std::string_view header, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string name = std::string(1, quote) + std::string(key) + quote;
    const size_t at = header.find(name);
    if (at == std::string_view::npos) continue;
    const size_t colon = header.find(':', at + name.size());
    if (colon == std::string_view::npos) break;
    std::string_view rest = header.substr(colon + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return rest;
  }
  fail(cat("its header has no ", key, ": ", header));
}

struct Header {
  DType dtype = DType::Undefined;
  bool fortran = false;
  DimVector sizes;
  uint64_t begin = 0;  // where the array's bytes begin, counted from the magic
};

Header parse_header(std::string_view text) {
  Header header;
  const std::string_view descr = entry_of(text, "descr");
  MICA_CHECK(!descr.empty() && (descr[0] == '\'' || descr[0] == '"'), "its elements are no numbers: ", text);
  const std::string type(descr.substr(1, descr.find(descr[0], 1) - 1));
  for (const TypeName& known : kTypes)
    if (type == known.name || (known.name[0] == '|' && type.size() == 3 && type.substr(1) == known.name + 1))
      header.dtype = known.dtype;
  MICA_CHECK(header.dtype != DType::Undefined, "its elements are of type ", type, ", which Mica does not read");
  header.fortran = entry_of(text, "fortran_order").substr(0, 4) == "True";
  std::string_view shape = entry_of(text, "shape");
  const size_t close = shape.find(')');
  MICA_CHECK(!shape.empty() && shape[0] == '(' && close != std::string_view::npos, "its shape is none: ", text);
  int64_t n = 0;
  bool digits = false;
  for (const char c : shape.substr(1, close)) {
    if (c >= '0' && c <= '9') {
      MICA_CHECK(!__builtin_mul_overflow(n, int64_t{10}, &n) && !__builtin_add_overflow(n, c - '0', &n),
                 "its shape is too large: ", text);
      digits = true;
    } else {
      MICA_CHECK(c == ',' || c == ' ' || c == ')' || c == 'L', "its shape is none: ", text);
      if (digits && c != 'L') header.sizes.push_back(n);
      if (c != 'L') n = 0, digits = false;
    }
  }
  return header;
}

Header read_header(const io::Source& source, uint64_t at, uint64_t nbytes) {
  char start[12] = {};
  MICA_CHECK(nbytes >= 10, "it is shorter than a header");
  source.read(at, start, std::min<uint64_t>(12, nbytes));
  MICA_CHECK(std::string_view(start, 6) == kMagic, "it does not begin as an array does");
  const bool wide = start[6] >= 2;
  const uint64_t prefix = wide ? 12 : 10;
  const uint64_t length = wide ? io::zip::get<uint32_t>(start + 8) : io::zip::get<uint16_t>(start + 8);
  MICA_CHECK(nbytes >= prefix && length <= nbytes - prefix && length < (1 << 20), "its header is longer than it");
  std::string text(length, ' ');
  source.read(at + prefix, text.data(), length);
  Header header = parse_header(text);
  header.begin = prefix + length;
  return header;
}

DimVector strides_of(const Header& header) {
  if (!header.fortran) return contiguous_strides(header.sizes);
  DimVector strides;
  int64_t step = 1;
  for (const int64_t n : header.sizes) {
    strides.push_back(step);
    step *= std::max<int64_t>(n, 1);
  }
  return strides;
}

// The array whose file is bytes [at, at + nbytes) of the source. `mapped` is the whole source as mapped memory, or
// null.
Tensor read_array(const io::Source& source, const Storage& mapped, uint64_t at, uint64_t nbytes) {
  const Header header = read_header(source, at, nbytes);
  const int64_t elements = count_elements(header.sizes);
  int64_t wanted = 0;
  MICA_CHECK(!__builtin_mul_overflow(elements, element_size(header.dtype), &wanted) &&
                 static_cast<uint64_t>(wanted) <= nbytes - header.begin,
             "its shape wants more bytes than it has");
  const uint64_t begin = at + header.begin;
  Storage storage;
  if (mapped && begin % static_cast<uint64_t>(element_size(header.dtype)) == 0) {
    Storage held = mapped;
    auto release = [](void* context, void*, size_t) { static_cast<StorageImpl*>(context)->release(); };
    storage = StorageImpl::wrap(static_cast<char*>(mapped->data()) + begin, static_cast<size_t>(wanted), kCPU, release,
                                held.leak());
  } else {
    storage = StorageImpl::allocate(static_cast<size_t>(wanted), kCPU);
    if (wanted) source.read(begin, storage->data(), static_cast<size_t>(wanted));
  }
  return io::view_storage(storage, header.dtype, 0, header.sizes, strides_of(header));
}

std::string header_of(const Tensor& tensor) {
  const char* type = nullptr;
  for (const TypeName& known : kTypes)
    if (known.dtype == tensor.dtype()) type = known.name;
  MICA_CHECK(type, "NumPy has no dtype for ", tensor.dtype(), "; convert the tensor first");
  std::string text = cat("{'descr': '", type, "', 'fortran_order': False, 'shape': (");
  for (int64_t d = 0; d < tensor.dim(); ++d)
    text += std::to_string(tensor.size(d)) + (tensor.dim() == 1 ? "," : d + 1 < tensor.dim() ? ", " : "");
  text += "), }";
  const size_t whole = (10 + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.append(whole - 10 - text.size() - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  io::zip::put16(header, static_cast<uint16_t>(text.size()));
  return header + text;
}

Tensor plain_of(const Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().to(TensorOptions(kCPU)).contiguous();
}

template <class Read>
auto reading(const std::string& path, const char* kind, const Read& read) {
  const io::FileSource source(path);
  try {
    return read(source);
  } catch (const Error& e) {
    fail(cat(path, " (", source.size(), " bytes) is not ", kind, ", or damaged: ", e.what()));
  }
}

struct ZipEntry {
  std::string name;
  uint64_t header = 0, nbytes = 0, unpacked = 0;
  uint16_t method = 0;
};

// The archive's directory; sizes beyond 32 bits come from the extra fields.
std::vector<ZipEntry> read_directory(const io::Source& source) {
  using namespace io::zip;  // NOLINT
  const uint64_t size = source.size(), tail = std::min<uint64_t>(size, kEndBytes + 65535 + kEnd64LocatorBytes);
  MICA_CHECK(size >= kEndBytes, "it is shorter than an archive");
  std::string end(tail, '\0');
  source.read(size - tail, end.data(), tail);
  size_t at = tail - kEndBytes;
  while (get<uint32_t>(end.data() + at) != kEnd) {
    MICA_CHECK(at > 0, "it has no directory");
    --at;
  }
  uint64_t count = get<uint16_t>(end.data() + at + 10), bytes = get<uint32_t>(end.data() + at + 12);
  uint64_t begin = get<uint32_t>(end.data() + at + 16);
  if (count == kCountIn64 || bytes == kIn64 || begin == kIn64) {
    MICA_CHECK(at >= kEnd64LocatorBytes && get<uint32_t>(end.data() + at - kEnd64LocatorBytes) == kEnd64Locator,
               "it has no directory");
    const uint64_t place = get<uint64_t>(end.data() + at - kEnd64LocatorBytes + 8);
    MICA_CHECK(size >= kEnd64Bytes && place <= size - kEnd64Bytes, "its directory lies outside of it");
    char record[kEnd64Bytes];
    source.read(place, record, kEnd64Bytes);
    count = get<uint64_t>(record + 32), bytes = get<uint64_t>(record + 40), begin = get<uint64_t>(record + 48);
  }
  MICA_CHECK(begin <= size && bytes <= size - begin && count <= bytes / kDirectoryEntryBytes,
             "its directory lies outside of it");
  std::string directory(bytes, '\0');
  source.read(begin, directory.data(), bytes);
  std::vector<ZipEntry> entries;
  size_t place = 0;
  for (uint64_t i = 0; i < count; ++i) {
    MICA_CHECK(place + kDirectoryEntryBytes <= directory.size(), "its directory ends early");
    const char* const e = directory.data() + place;
    MICA_CHECK(get<uint32_t>(e) == kDirectoryEntry, "its directory is damaged");
    const size_t name = get<uint16_t>(e + 28), extra = get<uint16_t>(e + 30), comment = get<uint16_t>(e + 32);
    MICA_CHECK(place + kDirectoryEntryBytes + name + extra + comment <= directory.size(), "its directory ends early");
    ZipEntry entry;
    entry.method = get<uint16_t>(e + 10);
    entry.nbytes = get<uint32_t>(e + 20);
    entry.unpacked = get<uint32_t>(e + 24);
    entry.header = get<uint32_t>(e + 42);
    entry.name.assign(e + kDirectoryEntryBytes, name);
    size_t field = 0;
    const char* const fields = e + kDirectoryEntryBytes + name;
    while (field + 4 <= extra) {
      const uint16_t id = get<uint16_t>(fields + field), length = get<uint16_t>(fields + field + 2);
      if (id == kExtra64) {
        size_t from = field + 4;
        for (uint64_t* value : {&entry.unpacked, &entry.nbytes, &entry.header})
          if (*value == kIn64 && from + 8 <= std::min<size_t>(extra, field + 4 + length)) {
            *value = get<uint64_t>(fields + from);
            from += 8;
          }
      }
      field += 4 + size_t{length};
    }
    entries.push_back(std::move(entry));
    place += kDirectoryEntryBytes + name + extra + comment;
  }
  return entries;
}

}  // namespace

Tensor load_npy(const std::string& path, bool mmap) {
  return reading(path, "a NumPy array", [&](const io::Source& source) {
    const Storage mapped = mmap && source.size() ? map_file(path, source.size(), false) : Storage();
    return read_array(source, mapped, 0, source.size());
  });
}

void save_npy(const Tensor& tensor, const std::string& path) {
  const std::string header = header_of(tensor);
  const Tensor plain = plain_of(tensor);
  io::AtomicFile file(path);
  file.write(header.data(), header.size());
  if (plain.numel()) file.write(plain.data_ptr(), static_cast<size_t>(plain.nbytes()));
  file.commit();
}

NamedTensors load_npz(const std::string& path, bool mmap) {
  return reading(path, "an archive of NumPy arrays", [&](const io::Source& source) {
    const Storage mapped = mmap && source.size() ? map_file(path, source.size(), false) : Storage();
    NamedTensors tensors;
    for (const ZipEntry& entry : read_directory(source)) {
      MICA_CHECK(entry.method == 0, entry.name, " is compressed; write it with numpy.savez, or load it with NumPy");
      char local[io::zip::kLocalHeaderBytes];
      const uint64_t size = source.size();
      MICA_CHECK(size >= sizeof local && entry.header <= size - sizeof local, entry.name, " lies outside of it");
      source.read(entry.header, local, sizeof local);
      MICA_CHECK(io::zip::get<uint32_t>(local) == io::zip::kLocalHeader, entry.name, " is not where it should be");
      const uint64_t begin =
          entry.header + sizeof local + io::zip::get<uint16_t>(local + 26) + io::zip::get<uint16_t>(local + 28);
      MICA_CHECK(begin <= size && entry.nbytes <= size - begin, entry.name, " lies outside of it");
      std::string name = entry.name;
      if (name.ends_with(".npy")) name.resize(name.size() - 4);
      tensors.emplace_back(name, read_array(source, mapped, begin, entry.nbytes));
    }
    return tensors;
  });
}

void save_npz(const NamedTensors& tensors, const std::string& path) {
  using namespace io::zip;  // NOLINT
  io::AtomicFile file(path);
  std::string directory;
  uint64_t at = 0;
  for (const auto& [key, tensor] : tensors) {
    const std::string name = key + ".npy", header = header_of(tensor);
    const Tensor plain = plain_of(tensor);
    const size_t nbytes = static_cast<size_t>(plain.nbytes());
    const uint64_t whole = header.size() + nbytes;
    uint32_t crc = io::crc32(0, header.data(), header.size());
    if (nbytes) crc = io::crc32(crc, plain.data_ptr(), nbytes);
    // The 64-bit sizes stand in an extra field; one more makes the array begin at a multiple of 64.
    const auto common = [&](std::string& out) {
      put16(out, 45);
      put16(out, kNamesAreUtf8);
      put16(out, 0);
      put16(out, 0);
      put16(out, 0x21);  // the first day that the format knows
      put32(out, crc);
      put32(out, kIn64);
      put32(out, kIn64);
      put16(out, static_cast<uint16_t>(name.size()));
    };
    std::string local;
    put32(local, kLocalHeader);
    common(local);
    const uint64_t fixed = at + kLocalHeaderBytes + name.size() + 20 + 4;
    const uint16_t padding = static_cast<uint16_t>((kAlignment - fixed % kAlignment) % kAlignment);
    put16(local, static_cast<uint16_t>(20 + 4 + padding));
    local += name;
    put16(local, kExtra64);
    put16(local, 16);
    put64(local, whole);
    put64(local, whole);
    put16(local, kExtraPadding);
    put16(local, padding);
    local.append(padding, '\0');
    put32(directory, kDirectoryEntry);
    put16(directory, 45);
    common(directory);
    put16(directory, 28);
    put16(directory, 0);
    put16(directory, 0);
    put16(directory, 0);
    put32(directory, 0);
    put32(directory, kIn64);
    directory += name;
    put16(directory, kExtra64);
    put16(directory, 24);
    put64(directory, whole);
    put64(directory, whole);
    put64(directory, at);
    file.write(local.data(), local.size());
    file.write(header.data(), header.size());
    if (nbytes) file.write(plain.data_ptr(), nbytes);
    at += local.size() + whole;
  }
  std::string end;
  put32(end, kEnd64);
  put64(end, kEnd64Bytes - 12);
  put16(end, 45);
  put16(end, 45);
  put32(end, 0);
  put32(end, 0);
  put64(end, tensors.size());
  put64(end, tensors.size());
  put64(end, directory.size());
  put64(end, at);
  put32(end, kEnd64Locator);
  put32(end, 0);
  put64(end, at + directory.size());
  put32(end, 1);
  put32(end, kEnd);
  put16(end, 0);
  put16(end, 0);
  put16(end, kCountIn64);
  put16(end, kCountIn64);
  put32(end, kIn64);
  put32(end, kIn64);
  put16(end, 0);
  file.write(directory.data(), directory.size());
  file.write(end.data(), end.size());
  file.commit();
}

}  // namespace mica
