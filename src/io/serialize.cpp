#include "mica/serialize.h"

#include <istream>
#include <iterator>
#include <ostream>
#include <unordered_map>

#include "core/exported_storage.h"
#include "io/archive.h"
#include "io/pickle_values.h"
#include "mica/mapped_memory.h"
#include "mica/ops.h"

namespace mica {

namespace {

class StreamSink : public io::Sink {
 public:
  explicit StreamSink(std::ostream& stream) : stream_(stream) {}
  void write(const void* data, size_t nbytes) override {
    stream_.write(static_cast<const char*>(data), static_cast<std::streamsize>(nbytes));
    MICA_CHECK(stream_.good(), "save: the stream takes no more bytes");
  }

 private:
  std::ostream& stream_;
};

Tensor bytes_over(const Storage& storage) {
  const auto n = static_cast<int64_t>(storage->nbytes());
  return Tensor::adopt(TensorImpl::create(storage, DType::UInt8, storage->device(), {n}, {1}, 0));
}

Storage moved_to(const Storage& storage, Device device) {
  if (storage->device() == device) return storage;
  if (device.is_meta()) return StorageImpl::allocate(storage->nbytes(), device);
  return bytes_over(storage).to(device).storage();
}

void write_archive(const Value& value, io::Sink& sink, std::string folder) {
  io::ArchiveWriter archive(sink, std::move(folder));
  std::vector<Storage> storages;
  std::unordered_map<StorageImpl*, size_t> keys;
  const std::string pickle = io::pickle(value, [&](const Storage& storage) {
    const auto [found, is_new] = keys.emplace(storage.get(), storages.size());
    if (is_new) storages.push_back(storage);
    return std::to_string(found->second);
  });
  archive.write("data.pkl", pickle.data(), pickle.size());
  archive.write(".format_version", "1", 1);
  archive.write(".storage_alignment", "64", 2);
  archive.write("byteorder", "little", 6);
  for (size_t i = 0; i < storages.size(); ++i) {
    const Storage on_cpu = moved_to(storages[i], kCPU);
    archive.write("data/" + std::to_string(i), on_cpu->data() ? on_cpu->data() : "", on_cpu->nbytes());
  }
  archive.finish();
}

Value read_archive(const io::ArchiveReader& archive, const Storage& mapped, const LoadOptions& options) {
  for (const std::string& name : archive.names())
    MICA_CHECK(archive.record(name).method == io::Record::kStored, "record ", name, " of ", archive.file(),
               " is compressed; save it again uncompressed, or load it from Python");
  if (archive.has("byteorder"))
    MICA_CHECK(archive.read("byteorder") == "little", archive.file(), " was written on a big-endian machine");
  std::unordered_map<std::string, Storage> loaded;
  auto fetch = [&](const io::StorageReference& reference) {
    Storage& storage = loaded[reference.key];
    const std::string name = "data/" + reference.key;
    const uint64_t nbytes = archive.record(name).nbytes;
    MICA_CHECK(static_cast<uint64_t>(reference.count) <= nbytes / static_cast<uint64_t>(element_size(reference.dtype)),
               "PytorchStreamReader failed reading file ", name, ": it has ", nbytes, " bytes in ", archive.file(),
               ", and ", reference.count, " elements of ", reference.dtype, " are asked for");
    if (!storage) {
      if (mapped) {
        storage = part_of(mapped, archive.offset(name), nbytes);
      } else {
        storage = StorageImpl::allocate(nbytes, kCPU);
        archive.read(name, storage->data());
      }
      storage = moved_to(storage, options.device ? *options.device : Device(reference.location));
    }
    return storage;
  };
  return io::unpickle(archive.read("data.pkl"), fetch);
}

}  // namespace

void save(const Value& value, const std::string& path) {
  io::AtomicFile file(path);
  write_archive(value, file, io::archive_folder(path));
  file.commit();
}

void save(const Value& value, std::ostream& stream) {
  StreamSink sink(stream);
  write_archive(value, sink, "archive");
}

Value load(const std::string& path, const LoadOptions& options) {
  const io::ArchiveReader archive(std::make_unique<io::FileSource>(path), path);
  const Storage mapped = options.mmap ? map_file(path, archive.source().size(), false) : Storage();
  return read_archive(archive, mapped, options);
}

Value load(std::istream& stream, const LoadOptions& options) {
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  const io::ArchiveReader archive(std::make_unique<io::MemorySource>(bytes.data(), bytes.size()), "the stream");
  return read_archive(archive, {}, options);
}

}  // namespace mica
