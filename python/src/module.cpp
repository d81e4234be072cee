// The module mica._C.
#include "core/default_device.h"
#include "devices/backend_module.h"
#include "modes/dispatch_modes.h"
#include "exceptions.h"
#include "operations/aliases.h"
#include "operations/entry.h"
#include "interop/extension_api.h"
#include "interop/foreign_memory.h"
#include "watch/inspect.h"
#include "mica/parallel.h"
#include "modes/modes.h"
#include "modes/tensor_form.h"
#include "training/module_object.h"
#include "tensor/names.h"
#include "graph/node_object.h"
#include "training/optim.h"
#include "types/storage_object.h"
#include "graph/tensor_autograd.h"
#include "tensor/tensor_new.h"
#include "arguments/torch_function.h"
#include "operations/weight_only_functions.h"

namespace mica::python {

// ---- modes of the calling thread

static PyObject* set_mode(uint32_t bit, bool on) {
  set_modes(bit, on);
  Py_RETURN_NONE;
}
static bool given(PyObject* flag) { return PyObject_IsTrue(flag) != 0; }

static PyObject* set_grad_enabled(PyObject*, PyObject* on) { return set_mode(mode_bit::kNoGrad, !given(on)); }
// The setting of no_grad and enable_grad. Inference mode records nothing, whatever this says.
static PyObject* is_grad_enabled(PyObject*, PyObject*) { return PyBool_FromLong(!(thread_modes & mode_bit::kNoGrad)); }
static PyObject* set_inference_mode(PyObject*, PyObject* on) { return set_mode(mode_bit::kInference, given(on)); }
static PyObject* is_inference_mode_enabled(PyObject*, PyObject*) { return PyBool_FromLong(inference_mode_enabled()); }
static PyObject* set_anomaly_enabled(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"mode", "check_nan", nullptr};
  int mode, check_nan = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "p|p", const_cast<char**>(names), &mode, &check_nan)) return nullptr;
  set_modes(mode_bit::kAnomaly, mode);
  return set_mode(mode_bit::kAnomalySkipNan, !check_nan);
}
static PyObject* is_anomaly_enabled(PyObject*, PyObject*) { return PyBool_FromLong(anomaly_enabled()); }
static PyObject* is_anomaly_check_nan_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong(!(thread_modes & mode_bit::kAnomalySkipNan));
}

// ---- defaults

static PyObject* get_default_dtype(PyObject*, PyObject*) { return dtype_object(default_dtype()); }
static PyObject* set_default_dtype(PyObject*, PyObject* dtype) try {
  if (!is_dtype_like(dtype))
    return PyErr_Format(PyExc_TypeError,
                        "invalid dtype object: only floating-point types are supported as the default type");
  MICA_CHECK_KIND(is_floating(dtype_from_object(dtype)), Type,
                  "only floating-point types are supported as the default type");
  mica::set_default_dtype(dtype_from_object(dtype));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}
static PyObject* get_default_device(PyObject*, PyObject*) { return device_object(default_device()); }
static PyObject* set_default_device(PyObject*, PyObject* device) try {
  if (device != Py_None && !is_device_like(device))
    return PyErr_Format(PyExc_TypeError, "set_default_device(): argument 'device' must be torch.device, not %s",
                        Py_TYPE(device)->tp_name);
  choose_device(device == Py_None ? std::nullopt : std::optional(device_from_object(device)));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}
static PyObject* set_tensor_type_device(PyObject*, PyObject* device) try {
  mica::set_tensor_type_device(device_from_object(device));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}
static PyObject* get_num_threads(PyObject*, PyObject*) { return PyLong_FromLong(mica::get_num_threads()); }
static PyObject* set_num_threads(PyObject*, PyObject* count) try {
  if (!is_int_like(count))
    return PyErr_Format(PyExc_TypeError, "set_num_threads expects an int, but got %s", Py_TYPE(count)->tp_name);
  int64_t n = int_from_object(count);
  MICA_CHECK(n > 0, "set_num_threads expects a positive integer");
  mica::set_num_threads(static_cast<int>(n));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// ---- dtypes

static PyObject* two_dtypes(PyObject* args, const char* name, DType& a, DType& b) {
  PyObject *first, *second;
  if (!PyArg_UnpackTuple(args, name, 2, 2, &first, &second)) return nullptr;
  for (PyObject* o : {first, second})
    if (!is_dtype_like(o))
      return PyErr_Format(PyExc_TypeError, "%s(): argument (position %d) must be torch.dtype, not %s", name,
                          o == first ? 1 : 2, Py_TYPE(o)->tp_name);
  a = dtype_from_object(first);
  b = dtype_from_object(second);
  return args;
}
static PyObject* promote_types(PyObject*, PyObject* args) try {
  DType a, b;
  return two_dtypes(args, "promote_types", a, b) ? dtype_object(mica::promote_types(a, b)) : nullptr;
} catch (...) {
  return raise_current_exception();
}
static PyObject* can_cast(PyObject*, PyObject* args) try {
  DType a, b;
  return two_dtypes(args, "can_cast", a, b) ? PyBool_FromLong(mica::can_cast(a, b)) : nullptr;
} catch (...) {
  return raise_current_exception();
}

static PyObject* is_tensor_object(PyObject*, PyObject* o) { return PyBool_FromLong(is_tensor(o)); }

// Exchanges what two objects stand for: tensors and attributes. The caller exchanges their types.
static PyObject* swap_tensor_impl(PyObject*, PyObject* args) {
  PyObject *first, *second;
  if (!PyArg_ParseTuple(args, "O!O!:_swap_tensor_impl", tensor_type, &first, tensor_type, &second)) return nullptr;
  auto *a = reinterpret_cast<TensorObject*>(first), *b = reinterpret_cast<TensorObject*>(second);
  if (a == b) Py_RETURN_NONE;
  // An object that a weak reference has brought back may still belong to its impl; then its pointer does not count as a
  // reference.
  Owned given_back[2];
  for (TensorObject* o : {a, b}) {
    TensorImpl* impl = o->tensor.impl();
    if (!impl || !impl->python_owned) continue;
    impl->python_owned = false;
    impl->retain();
    given_back[o == b] = Owned(&o->ob_base);
  }
  std::swap(a->tensor, b->tensor);
  std::swap(a->dict, b->dict);
  for (TensorObject* o : {a, b}) {
    if (o->tensor.defined()) o->tensor->python_object = o;
    // An object of a subclass, or with attributes, may be part of a cycle.
    if ((!is_exact_tensor(&o->ob_base) || o->dict) && !PyObject_GC_IsTracked(&o->ob_base))
      PyObject_GC_Track(&o->ob_base);
    o->tracked = PyObject_GC_IsTracked(&o->ob_base);
  }
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_swap_tensor_impl", swap_tensor_impl, METH_VARARGS, nullptr},
    {"_set_grad_enabled", set_grad_enabled, METH_O, nullptr},
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS, "Whether autograd records in this thread."},
    {"_set_inference_mode", set_inference_mode, METH_O, nullptr},
    {"is_inference_mode_enabled", is_inference_mode_enabled, METH_NOARGS, "Whether inference_mode is on."},
    {"set_anomaly_enabled", as_cfunction(set_anomaly_enabled), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"is_anomaly_enabled", is_anomaly_enabled, METH_NOARGS, nullptr},
    {"is_anomaly_check_nan_enabled", is_anomaly_check_nan_enabled, METH_NOARGS, nullptr},
    {"get_default_dtype", get_default_dtype, METH_NOARGS, "The dtype of new floating-point tensors."},
    {"set_default_dtype", set_default_dtype, METH_O, "Sets the dtype of new floating-point tensors."},
    {"get_default_device", get_default_device, METH_NOARGS, "The device of new tensors."},
    {"set_default_device", set_default_device, METH_O, "Sets the device of new tensors."},
    {"_set_tensor_type_device", set_tensor_type_device, METH_O, "Sets the device of the default tensor type."},
    {"get_num_threads", get_num_threads, METH_NOARGS, "How many threads an operation may use."},
    {"set_num_threads", set_num_threads, METH_O, "Sets how many threads an operation may use."},
    {"promote_types", promote_types, METH_VARARGS, "The smallest dtype that both can be converted to."},
    {"can_cast", can_cast, METH_VARARGS, "Whether promotion allows the conversion."},
    {"is_tensor", is_tensor_object, METH_O, "Whether the object is a tensor."},
    {}};

static int execute(PyObject* module) {
  const bool ready = add_exceptions(module) && install_warning_handler() && add_dtypes(module) && add_device(module) &&
                     add_layouts(module) && add_size(module) && add_type_limits(module) && add_torch_function(module) &&
                     add_dispatch_modes(module) && add_tensor(module) && add_torch_dispatch() && add_names(module) &&
                     add_generator(module) && add_node(module) && add_autograd(module) &&
                     add_tensor_constructors(module) && add_interop(module) && add_module_base(module) &&
                     add_init_functions(module) && add_archive(module) && add_shared_memory(module) &&
                     PyModule_AddFunctions(module, functions) == 0 && add_backends(module) && add_modes(module) &&
                     add_recording(module) && add_tensor_forms(module) && add_snapshots(module) && add_replay(module) &&
                     add_call_list(module) && add_known_call(module) && add_optim(module) && add_inspect(module) &&
                     add_extension_api(module) && add_weight_only_functions(module) && add_entries(module) &&
                     add_aliases(module);
  return ready ? 0 : -1;
}

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "mica._C", "The engine.", -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace mica::python

// Made in one phase: the types are static state of the process, so a second interpreter cannot have its own.
PyMODINIT_FUNC PyInit__C() {
  using namespace mica::python;
  try {
    Owned module(PyModule_Create(&definition));
    if (!module || execute(module.get()) < 0) return nullptr;
#ifdef Py_GIL_DISABLED
    // Objects of tensors, caches of strings and lists of free objects rely on the interpreter's lock: an interpreter
    // without one takes it back as long as this module is loaded.
    if (PyUnstable_Module_SetGIL(module.get(), Py_MOD_GIL_USED) < 0) return nullptr;
#endif
    return module.release();
  } catch (...) {
    return raise_current_exception();
  }
}
