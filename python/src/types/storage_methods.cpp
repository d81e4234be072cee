// The methods of torch.UntypedStorage, and those of tensors that are about storages.
#include "types/storage_methods.h"

#include <cstring>

#include "arguments/torch_function.h"
#include "core/copy_on_write.h"
#include "core/exported_storage.h"
#include "core/geometry.h"
#include "interop/foreign_memory.h"
#include "mica/backend.h"
#include "mica/mapped_memory.h"
#include "operations/entry.h"
#include "tensor/tensor_object.h"

namespace mica::python {

DimVector dims_from_object(PyObject* o) {
  Owned items(checked(PySequence_Fast(o, "a sequence of integers was expected")));
  DimVector dims;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    dims.push_back(int_from_object(PySequence_Fast_GET_ITEM(items.get(), i)));
  return dims;
}

static size_t size_from_object(PyObject* o) {
  const int64_t n = int_from_object(o);
  MICA_CHECK(n >= 0, "Storage size must not be negative, got ", n);
  return static_cast<size_t>(n);
}

// UntypedStorage(), UntypedStorage(nbytes), UntypedStorage(bytes of a sequence), device=...
PyObject* new_storage(PyTypeObject* type, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"", "device", nullptr};
  PyObject *given = nullptr, *device = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$O:UntypedStorage", const_cast<char**>(names), &given, &device))
    return nullptr;
  MICA_CHECK(type != storage_base_type(), "Cannot directly construct StorageBase; subclass it and then construct that");
  const Device where = device == Py_None ? kCPU : device_from_object(device);
  if (!given) return storage_object(StorageImpl::allocate(0, where), type);
  if (is_int_like(given)) return storage_object(StorageImpl::allocate(size_from_object(given), where), type);
  if (!PySequence_Check(given))
    return PyErr_Format(PyExc_TypeError, "torch.UntypedStorage(): Expected a sequence type, but got %s",
                        Py_TYPE(given)->tp_name);
  Owned bytes(checked(PySequence_Fast(given, "a sequence was expected")));
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(bytes.get());
  const Storage storage = StorageImpl::allocate(static_cast<size_t>(n), kCPU);
  for (Py_ssize_t i = 0; i < n; ++i) {
    const int64_t value = int_from_object(PySequence_Fast_GET_ITEM(bytes.get(), i));
    static_cast<uint8_t*>(storage->data())[i] = static_cast<uint8_t>(value);
  }
  if (where.is_cpu()) return storage_object(storage, type);
  const Tensor numbers = mica::empty({static_cast<int64_t>(n)}, TensorOptions(DType::UInt8));
  if (n > 0) std::memcpy(numbers.data_ptr(), storage->data(), static_cast<size_t>(n));
  return storage_object(numbers.to(TensorOptions(where)).storage(), type);
} catch (...) {
  return raise_current_exception();
}

Py_ssize_t storage_length(PyObject* self) { return static_cast<Py_ssize_t>(storage_of(self)->nbytes()); }
static PyObject* nbytes(PyObject* self, PyObject*) { return PyLong_FromSsize_t(storage_length(self)); }
static PyObject* element_size(PyObject*, PyObject*) { return PyLong_FromLong(1); }
static PyObject* data_ptr(PyObject* self, PyObject*) try {
  return PyLong_FromVoidPtr(storage_of(self)->data());
} catch (...) {
  return raise_current_exception();
}
static bool can_grow(const StorageImpl& storage) { return storage.resizable() || copy_on_write::shares(storage); }
static PyObject* resizable(PyObject* self, PyObject*) { return PyBool_FromLong(can_grow(*storage_of(self))); }
static PyObject* address(PyObject* self, PyObject*) { return PyLong_FromVoidPtr(storage_of(self)->address()); }
static PyObject* shares(PyObject* self, PyObject*) { return PyBool_FromLong(copy_on_write::shares(*storage_of(self))); }
static PyObject* use_count(PyObject* self, PyObject*) { return PyLong_FromUnsignedLong(storage_of(self)->use_count()); }
// Memory of a backend's device counts as shared, as in torch.
static bool is_of_backend(Device device) { return !device.is_cpu() && !device.is_meta(); }
static PyObject* is_shared(PyObject* self, PyObject*) {
  return PyBool_FromLong(in_shared_memory(*storage_of(self)) || is_of_backend(storage_of(self)->device()));
}

static PyObject* resize(PyObject* self, PyObject* size) try {
  storage_of(self)->resize(size_from_object(size));
  return Py_NewRef(self);
} catch (...) {
  return raise_current_exception();
}

// storage._lazy_clone(): a second storage with the same bytes, which are copied when one of the two is written.
static PyObject* lazy_clone(PyObject* self, PyObject*) try {
  return storage_object(copy_on_write::share(storage_of(self)));
} catch (...) {
  return raise_current_exception();
}

static PyObject* share_memory(PyObject* self, PyObject*) try {
  const Device device = storage_of(self)->device();
  MICA_CHECK(!device.is_meta(), "_share_fd_: only available on CPU, not on ", device);
  if (!is_of_backend(device)) move_to_shared_memory(*storage_of(self));
  return Py_NewRef(self);
} catch (...) {
  return raise_current_exception();
}

static PyObject* share_fd(PyObject* self, PyObject*) try {
  const Device device = storage_of(self)->device();
  MICA_CHECK(device.is_cpu(), "_share_fd_: only available on CPU, not on ", device);
  move_to_shared_memory(*storage_of(self));
  return Py_BuildValue("(in)", shared_memory_descriptor(*storage_of(self)), storage_length(self));
} catch (...) {
  return raise_current_exception();
}

static PyObject* new_shared_fd(PyObject* cls, PyObject* args) try {
  int fd;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(args, "in:_new_shared_fd_cpu", &fd, &size)) return nullptr;
  return storage_object(open_shared_memory(fd, static_cast<size_t>(size)), reinterpret_cast<PyTypeObject*>(cls));
} catch (...) {
  return raise_current_exception();
}

// UntypedStorage._over(address, nbytes, device, owner): memory of the owner, to which a reference is kept.
static PyObject* over_address(PyObject* cls, PyObject* args) try {
  unsigned long long address;
  Py_ssize_t size;
  PyObject *device, *owner;
  if (!PyArg_ParseTuple(args, "KnOO:_over", &address, &size, &device, &owner)) return nullptr;
  MICA_CHECK(address && size > 0, "memory at ", address, " of ", size, " bytes");
  const int64_t sizes[] = {size}, strides[] = {1};
  const Tensor bytes =
      tensor_over(reinterpret_cast<void*>(address), DType::UInt8, with_index(device_from_object(device)), sizes,
                  strides, drop_object, Py_NewRef(owner));
  return storage_object(bytes.impl()->storage, reinterpret_cast<PyTypeObject*>(cls));
} catch (...) {
  return raise_current_exception();
}

static PyObject* from_file(PyObject* cls, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"filename", "shared", "nbytes", nullptr};
  PyObject* path;
  int shared = 0;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|pn:from_file", const_cast<char**>(names), PyUnicode_FSConverter,
                                   &path, &shared, &size))
    return nullptr;
  Owned encoded(path);
  Owned made(storage_object(map_file(PyBytes_AS_STRING(path), static_cast<size_t>(size), shared),
                            reinterpret_cast<PyTypeObject*>(cls)));
  const Owned name(PyUnicode_DecodeFSDefault(PyBytes_AS_STRING(path)));
  if (!made || !name) return nullptr;
  if (shared && PyObject_SetAttrString(made.get(), "_filename", name.get()) < 0) return nullptr;
  return made.release();
} catch (...) {
  return raise_current_exception();
}

// storage._part(begin, end): a storage over some of the bytes, which keeps the whole alive.
static PyObject* part(PyObject* self, PyObject* args) try {
  Py_ssize_t begin, end;
  if (!PyArg_ParseTuple(args, "nn:_part", &begin, &end)) return nullptr;
  MICA_CHECK(0 <= begin && begin <= end && end <= storage_length(self), "bytes ", begin, " to ", end,
             " are not within a storage of ", storage_length(self), " bytes");
  return storage_object(part_of(storage_of(self), static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
} catch (...) {
  return raise_current_exception();
}

static PyObject* as_bytes(PyObject* self, PyObject*) try {
  MICA_CHECK(storage_of(self)->device().is_cpu(), "the bytes of a storage on ", storage_of(self)->device(),
             " cannot be read; copy it to the CPU first");
  return PyBytes_FromStringAndSize(static_cast<const char*>(storage_of(self)->data()), storage_length(self));
} catch (...) {
  return raise_current_exception();
}

// storage._tensor(dtype): a one-dimensional tensor over all of it.
static PyObject* tensor_over_storage(PyObject* self, PyObject* dtype) try {
  if (!is_dtype(dtype)) return PyErr_Format(PyExc_TypeError, "a dtype was expected, not %s", Py_TYPE(dtype)->tp_name);
  const DType type = dtype_from_object(dtype);
  const Storage& storage = storage_of(self);
  const int64_t count = static_cast<int64_t>(storage->nbytes()) / mica::element_size(type);
  return wrap(Tensor::adopt(TensorImpl::create(storage, type, storage->device(), {count}, {1}, 0)));
} catch (...) {
  return raise_current_exception();
}

// ---- tensors and their storages

static PyObject* fix_tensor_weakref(PyObject* self, PyObject*) {
  if (unwrap(self).defined() && unwrap(self)->python_object == self) Py_XDECREF(wrap(unwrap(self)));
  Py_RETURN_NONE;
}

void require_strided(const Tensor& x, const char* wanted) {
  MICA_CHECK_KIND(x.layout() == Layout::Strided, NotImplemented, "Cannot access ", wanted,
                  " of a sparse tensor (layout ", x.layout(),
                  "): sparse tensors do not have strides nor one storage. Use to_dense(), or its parts.");
}

static PyObject* untyped_storage(PyObject* self, PyObject*) try {
  if (may_be_asked(self)) [[unlikely]] {
    if (PyObject* answer = ask_about(self, "untyped_storage"); answer || PyErr_Occurred()) return answer;
  }
  require_strided(unwrap(self), "storage");
  return storage_object(unwrap(self).storage());
} catch (...) {
  return raise_current_exception();
}

// tensor._set_storage(storage, offset, size, stride): a storage that is too small grows.
static PyObject* set_storage(PyObject* self, PyObject* args) try {
  PyObject *source, *size, *stride;
  Py_ssize_t offset;
  if (!PyArg_ParseTuple(args, "O!nOO:_set_storage", storage_base_type(), &source, &offset, &size, &stride))
    return nullptr;
  const Tensor& x = unwrap(self);
  const Storage& storage = storage_of(source);
  MICA_CHECK(storage->device() == x.device(), "Attempted to set the storage of a tensor on device \"", x.device(),
             "\" to a storage on different device \"", storage->device(),
             "\". This is no longer allowed; the devices must match.");
  MICA_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  const DimVector sizes = dims_from_object(size);
  count_elements(sizes);
  const DimVector strides = stride == Py_None ? contiguous_strides(sizes) : dims_from_object(stride);
  MICA_CHECK(strides.size() == sizes.size(), "mismatch in length of strides and shape: ", strides.size(), " and ",
             sizes.size());
  const Extent reach = extent(sizes, strides);
  MICA_CHECK(reach.low + offset >= 0, "set_: the strides reach before the storage's first element");
  const auto needed = static_cast<size_t>(storage_bytes_needed(sizes, strides, offset, x.element_size()));
  if (needed > storage->nbytes()) {
    // As in torch, a tensor that keeps its sizes does not make the storage grow.
    const bool same = x.sizes() == sizes.ref() && (stride == Py_None || x.strides() == strides.ref());
    MICA_CHECK(!same && can_grow(*storage), "setStorage: sizes ", sizes, ", strides ", strides, ", storage offset ",
               offset, ", and itemsize ", x.element_size(), " requiring a storage size of ", needed,
               " are out of bounds for storage of size ", storage->nbytes());
    storage->resize(needed);
  }
  x.impl()->storage = storage;
  x.impl()->set_own_version(nullptr);
  x.impl()->set_geometry(sizes, strides, offset);
  return Py_NewRef(self);
} catch (...) {
  return raise_current_exception();
}

PyMethodDef storage_methods[] = {
    {"nbytes", nbytes, METH_NOARGS, "The number of bytes."},
    {"size", nbytes, METH_NOARGS, "The number of bytes."},
    {"element_size", element_size, METH_NOARGS, nullptr},
    {"data_ptr", data_ptr, METH_NOARGS, "The address of the first byte."},
    {"resizable", resizable, METH_NOARGS, "Whether resize_ can change its size."},
    {"resize_", resize, METH_O, "Changes the number of bytes, keeping what fits."},
    {"is_shared", is_shared, METH_NOARGS, "Whether other processes can see the memory."},
    {"share_memory_", share_memory, METH_NOARGS, "Moves the bytes to memory that other processes can see."},
    {"_share_fd_cpu_", share_fd, METH_NOARGS, nullptr},
    {"_new_shared_fd_cpu", new_shared_fd, METH_VARARGS | METH_CLASS, nullptr},
    {"_over", over_address, METH_VARARGS | METH_CLASS, nullptr},
    {"from_file", as_cfunction(from_file), METH_VARARGS | METH_KEYWORDS | METH_CLASS, "A storage over a file's bytes."},
    {"_part", part, METH_VARARGS, nullptr},
    {"_tensor", tensor_over_storage, METH_O, nullptr},
    {"__bytes__", as_bytes, METH_NOARGS, nullptr},
    {"_use_count", use_count, METH_NOARGS, nullptr},
    {"_lazy_clone", lazy_clone, METH_NOARGS, nullptr},
    {"_fix_weakref", fix_storage_weakref, METH_NOARGS, nullptr},
    {"_is_cow", shares, METH_NOARGS, nullptr},
    {"_address", address, METH_NOARGS, nullptr},
    {}};

PyMethodDef storage_methods_of_tensors[] = {
    {"untyped_storage", untyped_storage, METH_NOARGS, "The storage that the tensor views."},
    {"_set_storage", set_storage, METH_VARARGS, nullptr},
    {"_fix_weakref", fix_tensor_weakref, METH_NOARGS, nullptr},
    {}};

}  // namespace mica::python
