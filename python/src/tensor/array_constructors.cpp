// Tensors that share memory where they can: torch.as_tensor, asarray, frombuffer, from_file.
#include "core/default_device.h"
#include "arguments/torch_function.h"
#include "interop/foreign_memory.h"
#include "mica/mapped_memory.h"
#include "mica/warning.h"
#include "operations/entry.h"
#include "tensor/tensor_new.h"
#include "types/storage_object.h"

namespace mica::python {

static std::optional<DType> optional_dtype(PyObject* o, const char* function) {
  if (o == Py_None) return std::nullopt;
  if (!is_dtype_like(o))
    fail(ErrorKind::Type, cat(function, "(): argument 'dtype' must be torch.dtype, not ", Py_TYPE(o)->tp_name));
  return dtype_from_object(o);
}

static std::optional<Device> optional_device(PyObject* o) {
  return o == Py_None ? std::nullopt : std::optional(device_from_object(o));
}

static Tensor converted(const Tensor& x, std::optional<DType> dtype, std::optional<Device> device, bool copy) {
  TensorOptions options;
  options = options.dtype(dtype);
  options = options.device(device);
  return mica::to(x, options, false, copy, std::nullopt);
}

// A tensor over the memory of an object that can share it; undefined for one that cannot.
static Tensor shared_tensor(PyObject* o) {
  if (is_tensor(o)) return unwrap(o);
  if (is_numpy_array(o)) return lifted(tensor_from_numpy(o));
  if (is_numpy_scalar(o)) return Tensor();
  if (PyCapsule_CheckExact(o) || has_dlpack(o)) return tensor_from_dlpack(o, std::nullopt, std::nullopt);
  return Tensor();
}

// The given device, or the chosen one, to which memory is moved that could be shared otherwise. The device of the
// default tensor type does not move it.
static std::optional<Device> given_or_chosen(PyObject* device) {
  const auto given = optional_device(device);
  return given ? given : chosen_device();
}

// A function of tensors with those of `dtype` and `device` that were given, and with `copy`, as keywords.
static PyObject* called_with(PyObject* function, PyObject* args, PyObject* dtype, PyObject* device, bool copy) {
  const Owned called(function), given(checked(PyDict_New()));
  if (dtype != Py_None && PyDict_SetItemString(given.get(), "dtype", dtype) < 0) return nullptr;
  if (device != Py_None && PyDict_SetItemString(given.get(), "device", device) < 0) return nullptr;
  if (copy && PyDict_SetItemString(given.get(), "copy", Py_True) < 0) return nullptr;
  return PyObject_Call(called.get(), args, given.get());
}

// The tensor in another form, by its method `to`, which modes and the tensor's class see: a graph may be recorded.
static PyObject* converted_visibly(PyObject* tensor, PyObject* dtype, PyObject* device, bool copy) {
  if (dtype == Py_None && device == Py_None)
    return copy ? PyObject_CallMethod(tensor, "clone", nullptr) : Py_NewRef(tensor);
  const Owned none(checked(PyTuple_New(0)));
  return called_with(checked(PyObject_GetAttrString(tensor, "to")), none.get(), dtype, device, copy);
}

static PyObject* as_tensor(PyObject*, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"data", "dtype", "device", nullptr};
  PyObject *data, *dtype_object = Py_None, *device_object = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:as_tensor", const_cast<char**>(names), &data, &dtype_object,
                                   &device_object))
    return nullptr;
  if (is_tensor(data) && may_be_asked(data)) return converted_visibly(data, dtype_object, device_object, false);
  const auto dtype = optional_dtype(dtype_object, "as_tensor");
  const auto device = given_or_chosen(device_object);
  Tensor shared = shared_tensor(data);
  if (!shared.defined() && (thread_modes & mode_bit::kFunctionMode)) {  // modes see torch.tensor
    const Owned module(checked(PyImport_ImportModule("mica"))), given(checked(PyTuple_Pack(1, data)));
    return called_with(checked(PyObject_GetAttrString(module.get(), "tensor")), given.get(), dtype_object,
                       device_object, false);
  }
  if (!shared.defined()) return wrap(lifted(tensor_from_data(data, dtype, device.value_or(default_device()))));
  return wrap(converted(shared, dtype, device, false));
} catch (...) {
  return raise_current_exception();
}

// ---- buffers

static void release_buffer(void* context, void*, size_t) {
  if (!Py_IsInitialized()) return;
  Locked locked;
  auto* view = static_cast<Py_buffer*>(context);
  PyBuffer_Release(view);
  delete view;
}

// The buffer stays locked for as long as the tensor lives, so that a bytearray cannot move under it.
static Tensor tensor_over_buffer(PyObject* object, DType dtype, int64_t count, int64_t offset) {
  MICA_CHECK_KIND(PyObject_CheckBuffer(object), Value, "object does not implement Python buffer protocol.");
  auto view = std::make_unique<Py_buffer>();
  bool writable = true;
  if (PyObject_GetBuffer(object, view.get(), PyBUF_WRITABLE) < 0) {
    PyErr_Clear();
    writable = false;
    if (PyObject_GetBuffer(object, view.get(), PyBUF_SIMPLE) < 0) throw PythonError();
  }
  std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> held(view.release(),
                                                        [](Py_buffer* v) { release_buffer(v, nullptr, 0); });
  const int64_t width = element_size(dtype), bytes = held->len;
  MICA_CHECK_KIND(bytes > 0 && count != 0, Value, "both buffer length (", bytes, ") and count (", count,
                  ") must not be 0");
  MICA_CHECK_KIND(offset >= 0 && offset < bytes, Value, "offset (", offset,
                  " bytes) must be non-negative and no greater than buffer length (", bytes, " bytes) minus 1");
  MICA_CHECK_KIND(count > 0 || (bytes - offset) % width == 0, Value, "buffer length (", bytes - offset,
                  " bytes) after offset (", offset, " bytes) must be a multiple of element size (", width, ")");
  if (count < 0) count = (bytes - offset) / width;
  MICA_CHECK_KIND(count <= (bytes - offset) / width, Value, "requested buffer length (", count, " * ", width,
                  " bytes) after offset (", offset, " bytes) must not be greater than actual buffer length (", bytes,
                  " bytes)");
  if (!writable)
    MICA_WARN_ONCE(
        "The given buffer is not writable, and PyTorch does not support non-writable tensors. This means you can write "
        "to the underlying (supposedly non-writable) buffer using the tensor. You may want to copy the buffer to "
        "protect its data or make it writable before converting it to a tensor. This type of warning will be "
        "suppressed for the rest of this program.");
  char* first = static_cast<char*>(held->buf) + offset;
  return tensor_over(first, dtype, kCPU, {count}, {1}, release_buffer, held.release());
}

static PyObject* frombuffer(PyObject*, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"buffer", "dtype", "count", "offset", "requires_grad", nullptr};
  PyObject *buffer, *dtype = nullptr;
  Py_ssize_t count = -1, offset = 0;
  int requires_grad = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$Onnp:frombuffer", const_cast<char**>(names), &buffer, &dtype,
                                   &count, &offset, &requires_grad))
    return nullptr;
  if (!dtype || !is_dtype_like(dtype))
    return PyErr_Format(PyExc_TypeError, "frombuffer() missing 1 required positional arguments: \"dtype\"");
  Tensor t = tensor_over_buffer(buffer, dtype_from_object(dtype), count, offset);
  if (requires_grad) t.requires_grad_(true);
  return wrap(std::move(t));
} catch (...) {
  return raise_current_exception();
}

static PyObject* from_file(PyObject*, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"filename", "shared",     "size",          "dtype", "layout",
                                "device",   "pin_memory", "requires_grad", nullptr};
  PyObject *path, *shared = Py_None, *size = Py_None, *dtype = Py_None, *layout = Py_None, *device = Py_None;
  int pin_memory = 0, requires_grad = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|OO$OOOpp:from_file", const_cast<char**>(names),
                                   PyUnicode_FSConverter, &path, &shared, &size, &dtype, &layout, &device, &pin_memory,
                                   &requires_grad))
    return nullptr;
  Owned encoded(path);
  MICA_CHECK(!pin_memory, "tensors constructed from a file cannot be pinned");
  const Device place = optional_device(device).value_or(kCPU);
  MICA_CHECK_KIND(place.is_cpu(), NotImplemented, "from_file: a file is mapped into the CPU's memory, not on ", place);
  if (layout != Py_None) {
    const Owned text(PyObject_Str(layout));
    if (!text) return nullptr;
    if (PyUnicode_CompareWithASCIIString(text.get(), "torch.strided") != 0)
      return PyErr_Format(PyExc_NotImplementedError, "from_file: a file holds a strided tensor, not one of %U",
                          text.get());
  }
  const DType type = optional_dtype(dtype, "from_file").value_or(default_dtype());
  const int64_t count = size == Py_None ? 0 : int_from_object(size);
  MICA_CHECK(count >= 0, "from_file: size must not be negative, got ", count);
  const bool is_shared = shared != Py_None && PyObject_IsTrue(shared);
  Storage storage = map_file(PyBytes_AS_STRING(path), static_cast<size_t>(count * element_size(type)), is_shared);
  // The object of a storage stays while a tensor holds the storage, and with it the file's name.
  const Owned object(storage_object(storage)), name(PyUnicode_DecodeFSDefault(PyBytes_AS_STRING(path)));
  if (!object || !name) return nullptr;
  if (is_shared && PyObject_SetAttrString(object.get(), "_filename", name.get()) < 0) return nullptr;
  Tensor t = Tensor::adopt(TensorImpl::create(std::move(storage), type, kCPU, {count}, {1}, 0));
  if (requires_grad) t.requires_grad_(true);
  return wrap(std::move(t));
} catch (...) {
  return raise_current_exception();
}

// ---- asarray

static Tensor array_like(PyObject* o, std::optional<DType> dtype, std::optional<Device> device,
                         std::optional<bool> copy) {
  Tensor x = shared_tensor(o);
  if (!x.defined() && PyObject_CheckBuffer(o) && !is_numpy_scalar(o))
    x = tensor_over_buffer(o, dtype.value_or(default_dtype()), -1, 0);
  if (!x.defined()) {
    MICA_CHECK(copy != false || !is_numpy_scalar(o),
               "can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray.");
    MICA_CHECK_KIND(copy != false, Value, "can't alias arbitrary sequence into a tensor.");
    return lifted(tensor_from_data(o, dtype, device.value_or(default_device())));
  }
  const bool other_dtype = dtype && *dtype != x.dtype(), other_device = device && *device != x.device();
  if (copy == false) {
    MICA_CHECK_KIND(!other_device, Value, "can't alias tensor with device '", x.device(), "' into device '", *device,
                    "'.");
    MICA_CHECK_KIND(!other_dtype, Value, "can't alias tensor with dtype '", info(x.dtype()).legacy, "' into dtype '",
                    info(*dtype).legacy, "'.");
  }
  if (copy == true && !other_dtype && !other_device) return mica::clone(x);
  return converted(x, dtype, device, copy == true);
}

static PyObject* asarray(PyObject*, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"obj", "dtype", "device", "copy", "requires_grad", nullptr};
  PyObject *o, *dtype = Py_None, *device = Py_None, *copy = Py_None, *requires_grad = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOO:asarray", const_cast<char**>(names), &o, &dtype, &device,
                                   &copy, &requires_grad))
    return nullptr;
  std::optional<bool> copy_flag;
  if (copy != Py_None) copy_flag = PyObject_IsTrue(copy) != 0;
  if (is_tensor(o) && may_be_asked(o) && requires_grad == Py_None && copy_flag.value_or(true))
    return converted_visibly(o, dtype, device, copy_flag.value_or(false));
  Tensor x = array_like(o, optional_dtype(dtype, "asarray"), given_or_chosen(device), copy_flag);
  if (requires_grad == Py_None && x.requires_grad())
    MICA_WARN_ONCE(
        "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad instead of False. Pass "
        "requires_grad=False explicitly to get the old behavior and silence this warning.");
  const bool wanted = requires_grad != Py_None && PyObject_IsTrue(requires_grad);
  if (requires_grad == Py_None || wanted == x.requires_grad()) return wrap(std::move(x));
  if (!wanted || is_tensor(o)) x = mica::detach(x);
  if (wanted) x.requires_grad_(true);
  return wrap(std::move(x));
} catch (...) {
  return raise_current_exception();
}

bool add_array_constructors(PyObject* module) {
  static PyMethodDef functions[] = {
      {"as_tensor", as_cfunction(as_tensor), METH_VARARGS | METH_KEYWORDS,
       "A tensor of the data, sharing its memory where it can."},
      {"asarray", as_cfunction(asarray), METH_VARARGS | METH_KEYWORDS,
       "A tensor of an array, a buffer, a sequence or a number; copy says whether it may, must or must not share "
       "memory."},
      {"frombuffer", as_cfunction(frombuffer), METH_VARARGS | METH_KEYWORDS,
       "A one-dimensional tensor over an object's buffer."},
      {"from_file", as_cfunction(from_file), METH_VARARGS | METH_KEYWORDS,
       "A one-dimensional tensor over a file's bytes."},
      {}};
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
