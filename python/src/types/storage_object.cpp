// torch.UntypedStorage: the bytes under tensors, as an object, and how long that object lives. Its methods are in
// storage_methods.cpp and, where a tensor of bytes over the storage is enough to write them, in the package
// (mica/_methods/untyped_storage.py).
#include "types/storage_object.h"

#include <cstddef>

#include "core/storage_object.h"
#include "interop/foreign_memory.h"
#include "operations/entry.h"
#include "tensor/tensor_object.h"
#include "types/storage_methods.h"

#include <structmember.h>

namespace mica::python {

struct StorageObject {
  PyObject_HEAD Storage storage;
  PyObject* dict;
  PyObject* weakrefs;
  bool owned;  // whether the storage owns the object, which then does not count among the storage's holders
};
// torch._C.StorageBase, which is for subclasses, and torch.UntypedStorage.
static PyTypeObject *base_type = nullptr, *storage_type = nullptr;
PyTypeObject* storage_base_type() { return base_type; }

static StorageObject* as_storage_object(PyObject* o) { return reinterpret_cast<StorageObject*>(o); }
bool is_storage(PyObject* o) { return PyObject_TypeCheck(o, base_type); }
const Storage& storage_of(PyObject* o) { return as_storage_object(o)->storage; }

// ---- the object and its storage: a storage has one object as long as a program holds it, or could tell a new one from
// it by its attributes, its type or a weak reference

static void keep_slots(PyTypeObject* subclass);

// An object that its storage owns becomes a holder of the storage again, and the reference becomes the caller's.
static PyObject* take_back(StorageObject* self) {
  self->owned = false;
  self->storage->retain();
  return reinterpret_cast<PyObject*>(self);
}

PyObject* storage_object(const Storage& storage, PyTypeObject* type) {
  if (storage->python_object) {
    auto* self = static_cast<StorageObject*>(storage->python_object);
    return self->owned ? take_back(self) : Py_NewRef(reinterpret_cast<PyObject*>(self));
  }
  if (type != storage_type) keep_slots(type);
  auto* self = as_storage_object(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  new (&self->storage) Storage(storage);
  storage->python_object = self;
  return reinterpret_cast<PyObject*>(self);
}

PyObject* storage_object(const Storage& storage) { return storage_object(storage, storage_type); }

// Called when the object is about to lose its last Python reference. Returns true if tensors hold the storage and the
// object could be missed.
static bool should_outlive_python(StorageObject* self) {
  if (!self->storage || self->owned || self->storage->use_count() == 1) return false;
  return self->dict || self->weakrefs || Py_TYPE(self) != storage_type;
}

// Hands the object to its storage, with a reference that the caller has provided. Another thread may release the
// storage meanwhile: then release() ends in release_object below.
static void give_to_storage(StorageObject* self) {
  self->owned = true;
  self->storage->release();
}

// Called from any thread for a storage that only its own object still uses. At exit both stay.
static void release_object(StorageImpl* storage) {
  if (!Py_IsInitialized()) return;
  Locked locked;
  auto* self = static_cast<StorageObject*>(storage->python_object);
  self->owned = false;
  // The object goes, and the storage with it, unless a weak reference has brought it back to a program.
  Py_DECREF(self);
}

static void storage_dealloc(PyObject* o) {
  StorageObject* self = as_storage_object(o);
  if (should_outlive_python(self)) {
    Py_SET_REFCNT(o, 1);
    if (!PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
    give_to_storage(self);
    return;
  }
  PyTypeObject* type = Py_TYPE(o);
  if (PyObject_GC_IsTracked(o)) PyObject_GC_UnTrack(o);
  // This comes first: callbacks of weak references and destructors of attributes may ask for the storage's object, and
  // must not get this one.
  if (self->storage && self->storage->python_object == o) self->storage->python_object = nullptr;
  if (self->weakrefs) PyObject_ClearWeakRefs(o);
  Py_CLEAR(self->dict);
  self->storage.~Storage();
  type->tp_free(o);
  Py_DECREF(type);
}

// Called by the collector. It saves an object that could be missed, before anything is taken from it.
static void storage_finalize(PyObject* o) {
  if (!should_outlive_python(as_storage_object(o))) return;
  Py_INCREF(o);
  give_to_storage(as_storage_object(o));
}

// Replaces the interpreter's own function, which calls __del__ and clears __slots__ before storage_dealloc.
static void subclass_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (type->tp_dealloc != subclass_dealloc) return storage_dealloc(o);
  const auto is_saved = [o] {
    if (!should_outlive_python(as_storage_object(o))) return false;
    Py_SET_REFCNT(o, 1);
    give_to_storage(as_storage_object(o));
    return true;
  };
  if (is_saved()) return;
  if (type->tp_finalize && type->tp_finalize != storage_finalize) {  // the program's __del__
    if (PyObject_CallFinalizerFromDealloc(o) < 0) return;
    if (is_saved()) return;
  }
  PyObject_GC_UnTrack(o);
  if (as_storage_object(o)->weakrefs) PyObject_ClearWeakRefs(o);
  clear_slots(o, base_type);
  storage_dealloc(o);
}

static void keep_slots(PyTypeObject* subclass) { subclass->tp_dealloc = subclass_dealloc; }

// Called for a weak reference that a program has followed: the object becomes a holder of its storage again.
PyObject* fix_storage_weakref(PyObject* self, PyObject*) {
  if (as_storage_object(self)->owned) Py_DECREF(take_back(as_storage_object(self)));
  Py_RETURN_NONE;
}

static int storage_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  // Tensors hold the storage too, and may hand it to Python again. So the contents of the object are needed, whatever
  // cycle it is in.
  if (should_outlive_python(as_storage_object(self))) return 0;
  Py_VISIT(as_storage_object(self)->dict);
  return 0;
}

static int storage_clear(PyObject* self) {
  if (should_outlive_python(as_storage_object(self))) {
    storage_finalize(self);
    return 0;
  }
  Py_CLEAR(as_storage_object(self)->dict);
  return 0;
}

static PyObject* get_storage_device(PyObject* self, void*) { return device_object(storage_of(self)->device()); }
static PyObject* get_cdata(PyObject* self, void*) { return PyLong_FromVoidPtr(storage_of(self).get()); }

bool add_storage(PyObject* module) {
  static PyGetSetDef attributes[] = {{"device", get_storage_device, nullptr, nullptr, nullptr},
                                     {"_cdata", get_cdata, nullptr, nullptr, nullptr},
                                     {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                                     {}};
  static PyMemberDef members[] = {
      {"__dictoffset__", T_PYSSIZET, offsetof(StorageObject, dict), READONLY, nullptr},
      {"__weaklistoffset__", T_PYSSIZET, offsetof(StorageObject, weakrefs), READONLY, nullptr},
      {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_storage)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(storage_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(storage_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(storage_clear)},
                                {Py_tp_finalize, reinterpret_cast<void*>(storage_finalize)},
                                {Py_mp_length, reinterpret_cast<void*>(storage_length)},
                                {Py_sq_length, reinterpret_cast<void*>(storage_length)},  // safetensors asks for it
                                {Py_tp_methods, storage_methods},
                                {Py_tp_getset, attributes},
                                {Py_tp_members, members},
                                {0, nullptr}};
  constexpr auto flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
  static PyType_Spec base = {"torch._C.StorageBase", sizeof(StorageObject), 0, flags, slots};
  base_type = add_type(module, &base);
  if (!base_type) return false;
  static PyType_Slot nothing_more[] = {{Py_tp_base, base_type},
                                       {Py_tp_dealloc, reinterpret_cast<void*>(storage_dealloc)},
                                       {Py_tp_traverse, reinterpret_cast<void*>(storage_traverse)},
                                       {Py_tp_clear, reinterpret_cast<void*>(storage_clear)},
                                       {0, nullptr}};
  static PyType_Spec spec = {"torch.storage.UntypedStorage", sizeof(StorageObject), 0, flags, nothing_more};
  storage_type = add_type(module, &spec);
  release_storage_object = release_object;
  return storage_type && add_tensor_methods(storage_methods_of_tensors);
}

}  // namespace mica::python
