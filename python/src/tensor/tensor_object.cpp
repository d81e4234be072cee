// The life of a tensor's Python object.
//
// Usually the object owns the impl. When the last Python reference goes while C++ still holds the impl (a graph that
// saved it, a gradient, a list), an object that Python could miss - of a subclass, with attributes or with weak
// references - is kept: ownership turns round, and the impl owns the object until it comes back to Python or dies. A
// plain object is let go and made anew on demand.
#include "tensor/tensor_object.h"

#include <structmember.h>

#include "graph/hooks.h"

namespace mica::python {

static constexpr int kMaxFree = 128;
static PyObject* free_objects[kMaxFree];  // they hold a reference to the base type; their own count is zero
static int num_free = 0;

static TensorObject* as_tensor_object(PyObject* o) { return reinterpret_cast<TensorObject*>(o); }

// A new object of the base type for a tensor that has none. Not tracked by the collector until it has attributes: a
// tensor alone is part of no cycle.
static PyObject* new_object(Tensor&& tensor) {
  PyObject* o;
  if (num_free > 0) [[likely]] {
    o = free_objects[--num_free];
    _Py_NewReference(o);
  } else {
    o = reinterpret_cast<PyObject*>(PyObject_GC_New(TensorObject, tensor_type));
    if (!o) return nullptr;
  }
  TensorObject* self = as_tensor_object(o);
  self->dict = nullptr;
  self->weakrefs = nullptr;
  self->tracked = false;
  tensor->python_object = o;
  new (&self->tensor) Tensor(std::move(tensor));
  return o;
}

static void keep_slots(PyTypeObject* subclass);

PyObject* wrap(Tensor tensor) {
  TensorImpl* impl = tensor.impl();
  if (!impl) [[unlikely]]
    Py_RETURN_NONE;
  if (impl->python_object) {
    auto* o = static_cast<PyObject*>(impl->python_object);
    if (!impl->python_owned) return Py_NewRef(o);
    impl->python_owned = false;
    impl->retain();
    return o;  // the reference that the impl held
  }
  return new_object(std::move(tensor));
}

PyObject* wrap_as(PyTypeObject* subclass, Tensor tensor) {
  TensorImpl* impl = tensor.impl();
  if (impl->python_object) {
    PyErr_Format(PyExc_RuntimeError,
                 "creating a new Tensor subclass %s but the raw Tensor object is already associated "
                 "to a python object of type %s",
                 subclass->tp_name, Py_TYPE(static_cast<PyObject*>(impl->python_object))->tp_name);
    return nullptr;
  }
  if (subclass == tensor_type) return new_object(std::move(tensor));
  if (subclass->tp_basicsize != tensor_type->tp_basicsize) keep_slots(subclass);
  PyObject* o = subclass->tp_alloc(subclass, 0);
  if (!o) return nullptr;
  impl->python_object = o;
  as_tensor_object(o)->tracked = true;  // and stays tracked if a program gives the object the base type
  new (&as_tensor_object(o)->tensor) Tensor(std::move(tensor));
  return o;
}

static PyObject* before_class = nullptr;  // _before_class(tensor), of mica._dynamo.capture

bool fulfil_for_class(PyObject* source) {
  if (!before_class || Py_TYPE(source) == tensor_type || !is_tensor(source)) [[likely]]
    return true;
  return Owned(PyObject_CallOneArg(before_class, source)).get() != nullptr;
}

PyObject* set_before_class(PyObject*, PyObject* function) {
  Py_XSETREF(before_class, Py_NewRef(function));
  Py_RETURN_NONE;
}

// Called when the object is about to lose its last Python reference. Returns true if the impl has to own it from now
// on.
static bool should_outlive_python(TensorObject* self) {
  TensorImpl* impl = self->tensor.impl();
  if (!impl || impl->python_owned || impl->use_count() == 1) return false;
  return self->dict || self->weakrefs || Py_TYPE(self) != tensor_type || PyObject_GC_IsTracked(&self->ob_base);
}

// Hands the object to its impl, with a reference that the caller has provided. Another thread may drop the last C++
// reference meanwhile: then release() ends in release_object below.
static void give_to_impl(TensorObject* self) {
  TensorImpl* impl = self->tensor.impl();
  impl->python_owned = true;
  impl->release();
}

// Called by a dying impl that owns its object, from any thread.
static void release_object(TensorImpl* impl) {
  auto* self = static_cast<TensorObject*>(std::exchange(impl->python_object, nullptr));
  if (!Py_IsInitialized()) {
    // At exit the object's memory goes with the interpreter, whose last collections still look at the object.
    new (&self->tensor) Tensor();
    return;
  }
  Locked locked;
  new (&self->tensor) Tensor();  // the earlier pointer there did not count
  if (Py_REFCNT(self) > 1) {
    // A weak reference has brought the object back to a program: it goes on with an impl of its own.
    const TensorView& v = impl->view;
    TensorImpl* heir = TensorImpl::create(impl->storage, v.dtype, v.device, v.shape(),
                                          IntArrayRef(v.strides, static_cast<size_t>(v.ndim)), impl->offset);
    heir->autograd = std::exchange(impl->autograd, nullptr);
    heir->base = std::move(impl->base);
    heir->creation = impl->creation;
    heir->view_version = impl->view_version;
    heir->requires_grad_leaf = impl->requires_grad_leaf;
    heir->has_grad_fn = impl->has_grad_fn;
    heir->bits = impl->bits;
    heir->layout = impl->layout;
    heir->share_rare_facts(*impl);
    heir->python_object = self;
    self->tensor = Tensor::adopt(heir);
  }
  Py_DECREF(self);
}

void install_release_hook() { TensorImpl::release_python_object = release_object; }

// An object of the base type that nobody can miss.
static void dealloc_plain(PyObject* o) {
  TensorObject* self = as_tensor_object(o);
  self->tensor->python_object = nullptr;
  self->tensor.~Tensor();
  if (num_free < kMaxFree) [[likely]] {
    free_objects[num_free++] = o;
  } else {
    PyObject_GC_Del(o);
    Py_DECREF(tensor_type);
  }
}

void tensor_dealloc(PyObject* o) {
  TensorObject* self = as_tensor_object(o);
  if (Py_TYPE(o) == tensor_type && !self->tracked && !self->dict && !self->weakrefs && self->tensor.defined())
      [[likely]]
    return dealloc_plain(o);
  if (should_outlive_python(self)) {
    Py_SET_REFCNT(o, 1);
    // Python no longer tracks an object of a subclass that it has finalised before.
    if ((self->tracked || Py_TYPE(o) != tensor_type) && !PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
    give_to_impl(self);
    return;
  }
  PyTypeObject* type = Py_TYPE(o);
  // Not decided by the dict, which the collector may have cleared.
  if (PyObject_GC_IsTracked(o)) PyObject_GC_UnTrack(o);
  if (self->weakrefs) PyObject_ClearWeakRefs(o);
  Py_CLEAR(self->dict);
  if (TensorImpl* impl = self->tensor.impl()) impl->python_object = nullptr;
  self->tensor.~Tensor();
  type->tp_free(o);
  Py_DECREF(type);
}

// For subclasses, and for objects that the collector has found: the object is saved before anything is taken from it.
void tensor_finalize(PyObject* o) {
  TensorObject* self = as_tensor_object(o);
  if (!should_outlive_python(self)) return;
  Py_INCREF(o);
  give_to_impl(self);
}

void clear_slots(PyObject* o, PyTypeObject* base) {
  for (PyTypeObject* type = Py_TYPE(o); type && type != base; type = type->tp_base) {
    for (PyMemberDef* member = type->tp_members; member && member->name; ++member) {
      if (member->type != T_OBJECT_EX || (member->flags & READONLY)) continue;
      PyObject*& value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(o) + member->offset);
      Py_CLEAR(value);
    }
  }
}

// Replaces the interpreter's own function in classes with __slots__. That one clears the slots before it calls
// tensor_dealloc; only a finaliser comes before it, and Python calls that once in the life of an object.
static void subclass_dealloc(PyObject* o) {
  TensorObject* self = as_tensor_object(o);
  PyTypeObject* type = Py_TYPE(o);
  const auto is_saved = [&] {
    if (!should_outlive_python(self)) return false;
    Py_SET_REFCNT(o, 1);
    give_to_impl(self);
    return true;
  };
  if (type->tp_dealloc != subclass_dealloc) return tensor_dealloc(o);  // called for a derived class, which is done
  if (is_saved()) return;
  if (type->tp_finalize && type->tp_finalize != tensor_finalize) {  // the program's __del__
    if (PyObject_CallFinalizerFromDealloc(o) < 0) return;
    if (is_saved()) return;
  }
  PyObject_GC_UnTrack(o);
  if (self->weakrefs) PyObject_ClearWeakRefs(o);
  clear_slots(o, tensor_type);
  tensor_dealloc(o);
}

static void keep_slots(PyTypeObject* subclass) { subclass->tp_dealloc = subclass_dealloc; }

// Whether the object alone keeps alive what its tensor keeps alive.
static bool is_sole_owner(const TensorImpl* impl) { return impl && !impl->python_owned && impl->use_count() == 1; }

int tensor_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  // C++ holds the tensor too, and may hand it to Python again. So the contents of the object are needed, whatever cycle
  // it is in.
  if (should_outlive_python(as_tensor_object(o))) return 0;
  Py_VISIT(as_tensor_object(o)->dict);
  const TensorImpl* impl = as_tensor_object(o)->tensor.impl();
  return is_sole_owner(impl) ? visit_hooks(impl, visit, arg) : 0;
}

int tensor_clear(PyObject* o) {
  if (should_outlive_python(as_tensor_object(o))) {  // in a later life: the collector does not finalise it again
    tensor_finalize(o);
    return 0;
  }
  Py_CLEAR(as_tensor_object(o)->dict);
  const TensorImpl* impl = as_tensor_object(o)->tensor.impl();
  if (is_sole_owner(impl)) clear_hooks(impl);
  return 0;
}

void track(PyObject* o) {
  as_tensor_object(o)->tracked = true;
  if (!PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
}

static void track_if_it_has_attributes(PyObject* o) {
  if (as_tensor_object(o)->dict) track(o);
}

int tensor_setattr(PyObject* o, PyObject* name, PyObject* value) {
  int status = PyObject_GenericSetAttr(o, name, value);
  track_if_it_has_attributes(o);
  return status;
}

PyObject* tensor_get_dict(PyObject* o, void*) {
  PyObject* dict = PyObject_GenericGetDict(o, nullptr);
  track_if_it_has_attributes(o);
  return dict;
}

}  // namespace mica::python
