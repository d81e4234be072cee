// The containers of checkpoint files, under torch's names: PyTorchFileWriter and PyTorchFileReader.
#include "io/archive.h"

#include "operations/entry.h"
#include "types/storage_object.h"

namespace mica::python {

namespace {

// Writes to an object with a write method. The bytes that it gets are valid only during the call.
class ObjectSink : public io::Sink {
 public:
  explicit ObjectSink(PyObject* file) : write_(checked(PyObject_GetAttrString(file, "write"))) {}
  void write(const void* data, size_t nbytes) override {
    const char* p = static_cast<const char*>(data);
    while (nbytes) {
      Owned view(checked(PyMemoryView_FromMemory(const_cast<char*>(p), static_cast<Py_ssize_t>(nbytes), PyBUF_READ)));
      Owned result(checked(PyObject_CallOneArg(write_.get(), view.get())));
      size_t written = nbytes;  // a raw file may write less than it was given
      if (PyLong_Check(result.get())) written = PyLong_AsSize_t(result.get());
      if (PyErr_Occurred()) throw PythonError();
      MICA_CHECK(written > 0 && written <= nbytes, "write() returned ", written, " for ", nbytes, " bytes");
      p += written;
      nbytes -= written;
    }
  }

 private:
  Owned write_;
};

// Reads from an object with seek and read, beginning at its present position.
class ObjectSource : public io::Source {
 public:
  explicit ObjectSource(PyObject* file) : file_(Py_NewRef(file)) {
    begin_ = number(PyObject_CallMethod(file, "tell", nullptr));
    const uint64_t end = number(PyObject_CallMethod(file, "seek", "ii", 0, 2));
    size_ = end > begin_ ? end - begin_ : 0;
    number(PyObject_CallMethod(file, "seek", "K", begin_));
  }
  uint64_t size() const override { return size_; }
  void read(uint64_t offset, void* out, size_t nbytes) const override {
    number(PyObject_CallMethod(file_.get(), "seek", "K", begin_ + offset));
    auto* p = static_cast<char*>(out);
    while (nbytes) {
      Owned bytes(checked(PyObject_CallMethod(file_.get(), "read", "n", static_cast<Py_ssize_t>(nbytes))));
      Py_buffer view;
      if (PyObject_GetBuffer(bytes.get(), &view, PyBUF_SIMPLE) < 0) throw PythonError();
      const auto got = static_cast<size_t>(view.len);
      if (got <= nbytes) std::memcpy(p, view.buf, got);
      PyBuffer_Release(&view);
      MICA_CHECK(got > 0 && got <= nbytes, "unexpected EOF, expected ", nbytes,
                 " more bytes. The file might be corrupted.");
      p += got;
      nbytes -= got;
    }
  }

 private:
  // The number that seek returned. A file that returns none is asked for its position.
  uint64_t number(PyObject* result) const {
    Owned n(checked(result));
    if (n.get() == Py_None) n = Owned(checked(PyObject_CallMethod(file_.get(), "tell", nullptr)));
    const uint64_t value = PyLong_AsUnsignedLongLong(n.get());
    if (PyErr_Occurred()) throw PythonError();
    return value;
  }

  Owned file_;
  uint64_t begin_ = 0, size_ = 0;
};

class BufferSource : public io::MemorySource {
 public:
  explicit BufferSource(const Py_buffer& buffer)
      : MemorySource(buffer.buf, static_cast<size_t>(buffer.len)), buffer_(buffer) {}
  ~BufferSource() override { PyBuffer_Release(&buffer_); }

 private:
  Py_buffer buffer_;
};

struct Writer {
  std::unique_ptr<io::Sink> sink;
  io::AtomicFile* file = nullptr;  // the sink, if it is one
  std::unique_ptr<io::ArchiveWriter> archive;
};

struct WriterObject {
  PyObject_HEAD Writer* writer;
};
struct ReaderObject {
  PyObject_HEAD io::ArchiveReader* archive;
  bool reads_python;  // its source calls Python, so it needs the interpreter lock while it reads
};

Writer& writer_of(PyObject* self) {
  Writer* writer = reinterpret_cast<WriterObject*>(self)->writer;
  MICA_CHECK_KIND(writer && writer->archive, Value, "the archive is closed");
  return *writer;
}
const io::ArchiveReader& reader_of(PyObject* self) { return *reinterpret_cast<ReaderObject*>(self)->archive; }

bool is_path(PyObject* o) { return PyUnicode_Check(o) || PyBytes_Check(o); }

std::string path_of(PyObject* o) {
  PyObject* encoded = nullptr;
  if (!PyUnicode_FSConverter(o, &encoded)) throw PythonError();
  Owned bytes(encoded);
  return {PyBytes_AS_STRING(encoded), static_cast<size_t>(PyBytes_GET_SIZE(encoded))};
}

std::string_view text_of(PyObject* o) {
  Py_ssize_t n;
  const char* s = PyUnicode_AsUTF8AndSize(o, &n);
  if (!s) throw PythonError();
  return {s, static_cast<size_t>(n)};
}

// ---- PyTorchFileWriter(path or object with write, compute_crc32=True, storage_alignment=64)

PyObject* writer_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"file", "compute_crc32", "storage_alignment", nullptr};
  PyObject* file;
  int checksums = 1;
  unsigned alignment = io::kRecordAlignment;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|pI:PyTorchFileWriter", const_cast<char**>(names), &file, &checksums,
                                   &alignment))
    return nullptr;
  auto writer = std::make_unique<Writer>();
  std::string folder = "archive";
  if (is_path(file)) {
    const std::string path = path_of(file);
    auto sink = std::make_unique<io::AtomicFile>(path);
    writer->file = sink.get();
    writer->sink = std::move(sink);
    folder = io::archive_folder(path);
    for (const char c : folder)
      if (static_cast<unsigned char>(c) >= 0x80) folder = "archive";
  } else {
    writer->sink = std::make_unique<ObjectSink>(file);
  }
  writer->archive = std::make_unique<io::ArchiveWriter>(*writer->sink, folder, checksums, alignment);
  auto* self = reinterpret_cast<WriterObject*>(checked(type->tp_alloc(type, 0)));
  self->writer = writer.release();
  return reinterpret_cast<PyObject*>(self);
} catch (...) {
  return raise_current_exception();
}

void writer_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<WriterObject*>(self)->writer;
  type->tp_free(self);
  Py_DECREF(type);
}

// write_record(name, data, nbytes): data is a storage, a string or a buffer.
PyObject* write_record(PyObject* self, PyObject* args) try {
  PyObject *name, *data;
  Py_ssize_t nbytes;
  if (!PyArg_ParseTuple(args, "UOn:write_record", &name, &data, &nbytes)) return nullptr;
  Writer& writer = writer_of(self);
  const std::string_view record = text_of(name);
  auto write = [&](const void* bytes, size_t available) {
    MICA_CHECK_KIND(nbytes >= 0 && static_cast<size_t>(nbytes) <= available, Value, "record ", record, " is given ",
                    available, " bytes, not ", nbytes);
    Unlocked unlocked(writer.file && nbytes > 65536);
    writer.archive->write(record, bytes ? bytes : "", static_cast<size_t>(nbytes));
  };
  if (is_storage(data)) {
    const Storage storage = storage_of(data);
    MICA_CHECK(storage->device().is_cpu(), "record ", record, " lies on ", storage->device(),
               "; copy it to the CPU first");
    write(storage->data(), storage->nbytes());
  } else if (PyUnicode_Check(data)) {
    const std::string_view text = text_of(data);
    write(text.data(), text.size());
  } else {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return nullptr;
    auto release = [](Py_buffer* v) { PyBuffer_Release(v); };
    const std::unique_ptr<Py_buffer, decltype(release)> held(&view, release);
    write(view.buf, static_cast<size_t>(view.len));
  }
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

PyObject* write_record_metadata(PyObject* self, PyObject* args) try {
  PyObject* name;
  Py_ssize_t nbytes;
  if (!PyArg_ParseTuple(args, "Un:write_record_metadata", &name, &nbytes)) return nullptr;
  MICA_CHECK_KIND(nbytes >= 0, Value, "a record cannot have ", nbytes, " bytes");
  writer_of(self).archive->reserve(text_of(name), static_cast<size_t>(nbytes));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

PyObject* write_end_of_file(PyObject* self, PyObject*) try {
  Writer& writer = writer_of(self);
  writer.archive->finish();
  if (writer.file) writer.file->commit();
  writer.archive.reset();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// Closes the file without finishing it. An older file of that name stays.
PyObject* abandon(PyObject* self, PyObject*) {
  auto* object = reinterpret_cast<WriterObject*>(self);
  delete std::exchange(object->writer, nullptr);
  Py_RETURN_NONE;
}

// ---- PyTorchFileReader(path, buffer or file, name=None); an open file of the system's as (descriptor, begin)

PyObject* reader_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"file", "name", nullptr};
  PyObject *file, *name = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:PyTorchFileReader", const_cast<char**>(names), &file, &name))
    return nullptr;
  std::unique_ptr<io::Source> source;
  std::string shown = "the file object";
  bool reads_python = false;
  int fd;
  unsigned long long begin;
  if (PyUnicode_Check(file)) {
    shown = path_of(file);
    source = std::make_unique<io::FileSource>(shown);
  } else if (PyTuple_Check(file)) {
    if (!PyArg_ParseTuple(file, "iK:PyTorchFileReader", &fd, &begin)) return nullptr;
    source = std::make_unique<io::FileSource>(fd, begin);
  } else if (PyObject_CheckBuffer(file)) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(file, &buffer, PyBUF_SIMPLE) < 0) return nullptr;
    source = std::make_unique<BufferSource>(buffer);
  } else {
    source = std::make_unique<ObjectSource>(file);
    reads_python = true;
  }
  if (name != Py_None) shown = path_of(name);
  auto archive = std::make_unique<io::ArchiveReader>(std::move(source), std::move(shown));
  auto* self = reinterpret_cast<ReaderObject*>(checked(type->tp_alloc(type, 0)));
  self->archive = archive.release();
  self->reads_python = reads_python;
  return reinterpret_cast<PyObject*>(self);
} catch (...) {
  return raise_current_exception();
}

void reader_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<ReaderObject*>(self)->archive;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* has_record(PyObject* self, PyObject* name) try {
  return PyBool_FromLong(reader_of(self).has(text_of(name)));
} catch (...) {
  return raise_current_exception();
}

PyObject* get_all_records(PyObject* self, PyObject*) try {
  Owned list(checked(PyList_New(0)));
  for (const std::string& name : reader_of(self).names()) {
    Owned text(checked(PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "surrogateescape")));
    if (PyList_Append(list.get(), text.get()) < 0) return nullptr;
  }
  return list.release();
} catch (...) {
  return raise_current_exception();
}

void read_into(PyObject* self, std::string_view name, uint64_t nbytes, void* out) {
  Unlocked unlocked(nbytes > 65536 && !reinterpret_cast<ReaderObject*>(self)->reads_python);
  reader_of(self).read(name, out);
}

// The bytes as they lie in the archive.
PyObject* raw_record(PyObject* self, PyObject* name) try {
  const uint64_t nbytes = reader_of(self).record(text_of(name)).nbytes;
  Owned bytes(checked(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(nbytes))));
  read_into(self, text_of(name), nbytes, PyBytes_AS_STRING(bytes.get()));
  return bytes.release();
} catch (...) {
  return raise_current_exception();
}

// Under torch's name. torch compresses nothing, and for a record that somebody else has compressed these bytes are not
// its contents.
PyObject* get_record(PyObject* self, PyObject* name) try {
  const auto& record = reader_of(self).record(text_of(name));
  MICA_CHECK(record.nbytes == record.unpacked_nbytes, "record ", text_of(name), " is compressed: load the whole file");
  return raw_record(self, name);
} catch (...) {
  return raise_current_exception();
}

PyObject* storage_record(PyObject* self, PyObject* name) try {
  const uint64_t nbytes = reader_of(self).record(text_of(name)).nbytes;
  const Storage storage = StorageImpl::allocate(nbytes, kCPU);
  read_into(self, text_of(name), nbytes, storage->data());
  return storage_object(storage);
} catch (...) {
  return raise_current_exception();
}

// (bytes in the archive, bytes unpacked, checksum, whether it is compressed)
PyObject* record_info(PyObject* self, PyObject* name) try {
  const io::Record& r = reader_of(self).record(text_of(name));
  return Py_BuildValue("KKIO", static_cast<unsigned long long>(r.nbytes),
                       static_cast<unsigned long long>(r.unpacked_nbytes), r.crc,
                       r.method == io::Record::kStored ? Py_False : Py_True);
} catch (...) {
  return raise_current_exception();
}

PyObject* get_record_offset(PyObject* self, PyObject* name) try {
  return PyLong_FromUnsignedLongLong(reader_of(self).offset(text_of(name)));
} catch (...) {
  return raise_current_exception();
}

PyObject* get_record_header_offset(PyObject* self, PyObject* name) try {
  return PyLong_FromUnsignedLongLong(reader_of(self).record(text_of(name)).header);
} catch (...) {
  return raise_current_exception();
}

PyObject* serialization_id(PyObject* self, PyObject*) try {
  const char* name = ".data/serialization_id";
  const std::string id = reader_of(self).has(name) ? reader_of(self).read(name) : "";
  return PyUnicode_FromStringAndSize(id.data(), static_cast<Py_ssize_t>(id.size()));
} catch (...) {
  return raise_current_exception();
}

PyObject* file_name(PyObject* self, void*) {
  const std::string& name = reader_of(self).file();
  return PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
}

}  // namespace

bool add_archive(PyObject* module) {
  static PyMethodDef writer_methods[] = {
      {"write_record", write_record, METH_VARARGS, "Adds a record of so many bytes."},
      {"write_record_metadata", write_record_metadata, METH_VARARGS, "Leaves room for a record."},
      {"write_end_of_file", write_end_of_file, METH_NOARGS, "Finishes the archive; a file appears under its name."},
      {"_abandon", abandon, METH_NOARGS, nullptr},
      {}};
  static PyType_Slot writer_slots[] = {{Py_tp_new, reinterpret_cast<void*>(writer_new)},
                                       {Py_tp_dealloc, reinterpret_cast<void*>(writer_dealloc)},
                                       {Py_tp_methods, writer_methods},
                                       {0, nullptr}};
  static PyType_Spec writer_spec = {"torch._C.PyTorchFileWriter", sizeof(WriterObject), 0, Py_TPFLAGS_DEFAULT,
                                    writer_slots};
  static PyMethodDef reader_methods[] = {
      {"has_record", has_record, METH_O, "Whether there is a record of this name."},
      {"get_all_records", get_all_records, METH_NOARGS, "The names of all records."},
      {"_raw_record", raw_record, METH_O, nullptr},
      {"get_record", get_record, METH_O, "A record's bytes."},
      {"_storage_record", storage_record, METH_O, nullptr},
      {"_record_info", record_info, METH_O, nullptr},
      {"get_record_offset", get_record_offset, METH_O, "Where a record's bytes begin."},
      {"get_record_header_offset", get_record_header_offset, METH_O, "Where a record's header begins."},
      {"serialization_id", serialization_id, METH_NOARGS, "The archive's fingerprint."},
      {}};
  static PyGetSetDef reader_attributes[] = {{"_file", file_name, nullptr, nullptr, nullptr}, {}};
  static PyType_Slot reader_slots[] = {{Py_tp_new, reinterpret_cast<void*>(reader_new)},
                                       {Py_tp_dealloc, reinterpret_cast<void*>(reader_dealloc)},
                                       {Py_tp_methods, reader_methods},
                                       {Py_tp_getset, reader_attributes},
                                       {0, nullptr}};
  static PyType_Spec reader_spec = {"torch._C.PyTorchFileReader", sizeof(ReaderObject), 0, Py_TPFLAGS_DEFAULT,
                                    reader_slots};
  return add_type(module, &writer_spec) && add_type(module, &reader_spec) && add_checkpoint_functions(module);
}

}  // namespace mica::python
