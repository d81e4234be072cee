// mica.inspect: the engine's facts about tensors, as Python values.
#include "mica/inspect.h"

#include "mica/allocator.h"
#include "mica/observe.h"
#include "modes/modes.h"
#include "tensor/tensor_object.h"
#include "types/objects.h"
#include "watch/inspect.h"

namespace mica::python {

namespace {

// Takes over the value, which must not be null.
void put(PyObject* dict, const char* key, PyObject* value) {
  Owned owned(checked(value));
  if (PyDict_SetItemString(dict, key, owned.get()) < 0) throw PythonError();
}
PyObject* number(int64_t n) { return PyLong_FromLongLong(n); }
PyObject* text(const std::string& s) {
  return PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
}
PyObject* integers(IntArrayRef list) {
  Owned tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(list.size()))));
  for (size_t i = 0; i < list.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), checked(number(list[i])));
  return tuple.release();
}

PyObject* contiguity_dict(const inspect::Contiguity& c) {
  Owned d(checked(PyDict_New()));
  put(d.get(), "format", text(inspect::name(c.format)));
  put(d.get(), "contiguous", PyBool_FromLong(c.holds));
  if (!c.holds) {
    put(d.get(), "dimension", number(c.dimension));
    put(d.get(), "expected_stride", number(c.expected));
    put(d.get(), "stride", number(c.found));
  }
  return d.release();
}

PyObject* step_dict(const inspect::ViewStep& s) {
  Owned d(checked(PyDict_New()));
  put(d.get(), "operation", text(s.operation));
  put(d.get(), "shape", integers(s.sizes));
  put(d.get(), "strides", integers(s.strides));
  put(d.get(), "offset", number(s.offset));
  return d.release();
}

template <class List, class Make>
PyObject* list_of(const List& list, Make make) {
  Owned result(checked(PyList_New(static_cast<Py_ssize_t>(list.size()))));
  for (size_t i = 0; i < list.size(); ++i)
    PyList_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), checked(make(list[i])));
  return result.release();
}

PyObject* storage_dict(const inspect::Anatomy& a) {
  Owned d(checked(PyDict_New()));
  put(d.get(), "bytes", number(a.storage_bytes));
  put(d.get(), "address", PyLong_FromUnsignedLongLong(a.storage_address));
  put(d.get(), "holders", number(a.storage_users));
  put(d.get(), "reached_bytes", number(a.reached_bytes));
  put(d.get(), "hole_bytes", number(a.hole_bytes));
  put(d.get(), "lowest", number(a.reached.lowest));
  put(d.get(), "highest", number(a.reached.highest));
  put(d.get(), "counted", PyBool_FromLong(a.reached.exact));
  put(d.get(), "foreign", PyBool_FromLong(a.foreign_memory));
  return d.release();
}

PyObject* part_dict(const inspect::Part& p) {
  Owned d(checked(PyDict_New()));
  put(d.get(), "name", text(p.name));
  put(d.get(), "shape", integers(p.sizes));
  put(d.get(), "strides", integers(p.strides));
  put(d.get(), "dtype", text(name(p.dtype)));
  put(d.get(), "bytes", number(p.bytes));
  put(d.get(), "address", PyLong_FromUnsignedLongLong(p.address));
  return d.release();
}

PyObject* sparse_dict(const inspect::SparseAnatomy& s) {
  return Py_BuildValue("{sLsLsLsLsLsLsO}", "specified", static_cast<long long>(s.specified), "stored",
                       static_cast<long long>(s.stored), "break_even", static_cast<long long>(s.break_even),
                       "bytes_each", static_cast<long long>(s.bytes_each), "sparse_dims",
                       static_cast<long long>(s.sparse_dims), "dense_dims", static_cast<long long>(s.dense_dims),
                       "coalesced", s.coalesced ? Py_True : Py_False);
}
PyObject* quantized_dict(const inspect::QuantizedAnatomy& q) {
  if (q.axis >= 0)
    return Py_BuildValue("{sssL}", "scheme", "per_channel_affine", "axis", static_cast<long long>(q.axis));
  return Py_BuildValue("{sssdsLsdsd}", "scheme", "per_tensor_affine", "scale", q.scale, "zero_point",
                       static_cast<long long>(q.zero_point), "lowest", q.lowest, "highest", q.highest);
}
PyObject* nested_dict(const inspect::NestedAnatomy& n) {
  Owned d(checked(PyDict_New()));
  put(d.get(), "shape", integers(n.sizes));
  put(d.get(), "lengths", integers(n.lengths));
  put(d.get(), "ragged_dim", number(n.ragged_dim));
  return d.release();
}
PyObject* name_or_none(const std::string& name) { return name.empty() ? Py_NewRef(Py_None) : text(name); }

// Facts that only tensors of other layouts have.
void put_parts(PyObject* d, const inspect::Anatomy& a) {
  put(d, "layout", text(a.nested ? "jagged" : inspect::layout_name(a.layout)));
  put(d, "names", a.names.empty() ? Py_NewRef(Py_None) : list_of(a.names, name_or_none));
  put(d, "parts", list_of(a.parts, part_dict));
  put(d, "part_bytes", number(a.part_bytes));
  put(d, "dense_bytes", number(a.dense_bytes));
  if (a.sparse) put(d, "sparse", sparse_dict(*a.sparse));
  if (a.quantized) put(d, "quantized", quantized_dict(*a.quantized));
  if (a.nested) put(d, "nested", nested_dict(*a.nested));
}

PyObject* anatomy_dict(const inspect::Anatomy& a) {
  Owned d(checked(PyDict_New()));
  put(d.get(), "shape", integers(a.sizes));
  put(d.get(), "strides", integers(a.strides));
  put(d.get(), "offset", number(a.offset));
  put(d.get(), "numel", number(a.numel));
  put(d.get(), "dtype", text(cat(a.quantized ? "q" : "", name(a.dtype))));
  put_parts(d.get(), a);
  put(d.get(), "element_size", number(a.element_size));
  put(d.get(), "bytes", number(a.numel * a.element_size));
  put(d.get(), "device", text(a.device.str()));
  put(d.get(), "address", PyLong_FromUnsignedLongLong(a.address));
  put(d.get(), "storage", storage_dict(a));
  put(d.get(), "formats", list_of(a.formats, contiguity_dict));
  put(d.get(), "dense", PyBool_FromLong(a.dense));
  put(d.get(), "overlaps", PyBool_FromLong(a.overlaps));
  put(d.get(), "conjugated", PyBool_FromLong(a.conjugated));
  put(d.get(), "negated", PyBool_FromLong(a.negated));
  put(d.get(), "version", number(a.version));
  put(d.get(), "is_view", PyBool_FromLong(a.is_view));
  if (a.is_view) {
    put(d.get(), "base", step_dict({"base", a.base_sizes, a.base_strides, a.base_offset}));
    put(d.get(), "steps", list_of(a.steps, step_dict));
  }
  put(d.get(), "requires_grad", PyBool_FromLong(a.requires_grad));
  put(d.get(), "is_leaf", PyBool_FromLong(a.is_leaf));
  put(d.get(), "grad_fn", a.grad_fn.empty() ? Py_NewRef(Py_None) : text(a.grad_fn));
  put(d.get(), "history", list_of(a.history, text));
  return d.release();
}

PyObject* explain(PyObject*, PyObject* tensor) try {
  if (!is_tensor(tensor))
    return PyErr_Format(PyExc_TypeError, "explain() takes a Tensor, not %s", Py_TYPE(tensor)->tp_name);
  return anatomy_dict(inspect::explain(unwrap(tensor)));
} catch (...) {
  return raise_current_exception();
}

PyObject* explain_text(PyObject*, PyObject* args) try {
  PyObject* tensor;
  int colours = 0;
  if (!PyArg_ParseTuple(args, "O|p", &tensor, &colours)) return nullptr;
  if (!is_tensor(tensor))
    return PyErr_Format(PyExc_TypeError, "explain() takes a Tensor, not %s", Py_TYPE(tensor)->tp_name);
  return text(inspect::to_text(inspect::explain(unwrap(tensor)), colours));
} catch (...) {
  return raise_current_exception();
}

// (numbers, text, coloured text) of sequences of different lengths.
PyObject* explain_nested(PyObject*, PyObject* args) try {
  PyObject *values, *offsets, *lengths;
  long long ragged;
  if (!PyArg_ParseTuple(args, "OOOL", &values, &offsets, &lengths, &ragged)) return nullptr;
  if (!is_tensor(values) || !is_tensor(offsets) || !(lengths == Py_None || is_tensor(lengths)))
    return PyErr_Format(PyExc_TypeError, "explain() takes the values, offsets and lengths of a nested tensor");
  const inspect::Anatomy a =
      inspect::explain_nested(unwrap(values), unwrap(offsets), lengths == Py_None ? Tensor() : unwrap(lengths), ragged);
  Owned facts(anatomy_dict(a)), plain(checked(text(inspect::to_text(a)))),
      coloured(checked(text(inspect::to_text(a, true))));
  return PyTuple_Pack(3, facts.get(), plain.get(), coloured.get());
} catch (...) {
  return raise_current_exception();
}

// A number that two tensors have in common exactly when they share a storage; 0 for a tensor without one.
PyObject* storage_identity(PyObject*, PyObject* tensor) {
  if (!is_tensor(tensor) || !unwrap(tensor).defined()) return PyLong_FromLong(0);
  return PyLong_FromVoidPtr(unwrap(tensor).storage().get());
}

// ---- copies

PyObject* copies_start(PyObject*, PyObject* args) try {
  int strict = 0, asked = 0;
  long long least = 1;
  if (!PyArg_ParseTuple(args, "|ppL", &strict, &asked, &least)) return nullptr;
  inspect::start_copies({.strict = strict != 0, .asked = asked != 0, .least_bytes = least});
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

PyObject* copy_dict(const inspect::Copy& c) {
  Owned d(checked(PyDict_New()));
  put(d.get(), "operation", text(c.operation));
  put(d.get(), "within", text(c.within));
  put(d.get(), "reason", text(inspect::name(c.reason)));
  put(d.get(), "hidden", PyBool_FromLong(c.hidden));
  put(d.get(), "bytes", number(c.bytes));
  put(d.get(), "shape", integers(c.sizes));
  put(d.get(), "strides", integers(c.strides));
  put(d.get(), "from_dtype", text(name(c.from)));
  put(d.get(), "dtype", text(name(c.to)));
  put(d.get(), "from_device", text(c.from_device.str()));
  put(d.get(), "device", text(c.to_device.str()));
  put(d.get(), "place", number(c.place));
  put(d.get(), "why", text(inspect::describe(c)));
  return d.release();
}

PyObject* copies_stop(PyObject*, PyObject*) try { return list_of(inspect::stop_copies(), copy_dict); } catch (...) {
  return raise_current_exception();
}

PyObject* place(PyObject*, PyObject* id) {
  const unsigned long n = PyLong_AsUnsignedLong(id);
  if (PyErr_Occurred()) return nullptr;
  const inspect::Place p = inspect::place(static_cast<uint32_t>(n));
  return Py_BuildValue("(sisI)", p.file.c_str(), p.line, p.function.c_str(), p.caller);
}

// ---- time

PyObject* operations_start(PyObject*, PyObject*) try {
  inspect::start_operations();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}
PyObject* total_tuple(const inspect::OperationTotal& t) {
  return Py_BuildValue("(sILL)", t.operation.c_str(), t.place, static_cast<long long>(t.calls),
                       static_cast<long long>(t.nanoseconds));
}
PyObject* operations_so_far(PyObject*, PyObject*) try {
  return list_of(inspect::operations_so_far(), total_tuple);
} catch (...) {
  return raise_current_exception();
}
PyObject* operations_stop(PyObject*, PyObject*) try {
  return list_of(inspect::stop_operations(), total_tuple);
} catch (...) {
  return raise_current_exception();
}

// ---- memory

PyObject* host_memory(PyObject*, PyObject*) {
  const AllocatorStats s = cpu_allocator_stats();
  return Py_BuildValue("(LLLL)", static_cast<long long>(s.allocated_bytes), static_cast<long long>(s.reserved_bytes),
                       static_cast<long long>(s.peak_allocated), static_cast<long long>(s.peak_reserved));
}

PyObject* block_tuple(const inspect::Block& b) {
  return Py_BuildValue("(KLsIsOOiLLLL)", static_cast<unsigned long long>(b.address), static_cast<long long>(b.bytes),
                       b.device.str().c_str(), b.place, b.operation, b.in_backward ? Py_True : Py_False,
                       b.before ? Py_True : Py_False, static_cast<int>(b.kind), static_cast<long long>(b.born),
                       static_cast<long long>(b.died), static_cast<long long>(b.born_ns),
                       static_cast<long long>(b.died_ns));
}
PyObject* record_tuple(const inspect::MemoryRecord& r) {
  Owned blocks(list_of(r.blocks, block_tuple));
  return Py_BuildValue("(OLLL)", blocks.get(), static_cast<long long>(r.events), static_cast<long long>(r.started_ns),
                       static_cast<long long>(r.ended_ns));
}

PyObject* memory_start(PyObject*, PyObject*) try {
  inspect::start_memory();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}
PyObject* memory_stop(PyObject*, PyObject*) try { return record_tuple(inspect::stop_memory()); } catch (...) {
  return raise_current_exception();
}
PyObject* memory_so_far(PyObject*, PyObject*) try { return record_tuple(inspect::memory_so_far()); } catch (...) {
  return raise_current_exception();
}
PyObject* next_memory(PyObject*, PyObject*) try { return record_tuple(inspect::next_memory()); } catch (...) {
  return raise_current_exception();
}
PyObject* memory_recording(PyObject*, PyObject*) { return PyBool_FromLong(inspect::memory_recording()); }
PyObject* memory_mark(PyObject*, PyObject* args) try {
  PyObject* tensor;
  int kind;
  if (!PyArg_ParseTuple(args, "Oi", &tensor, &kind)) return nullptr;
  if (is_tensor(tensor) && kind >= 0 && kind <= static_cast<int>(inspect::MemoryKind::Other))
    inspect::mark_memory(unwrap(tensor), static_cast<inspect::MemoryKind>(kind));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

}  // namespace

bool add_inspect(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_copies_start", copies_start, METH_VARARGS, "(strict, asked, least_bytes)"},
      {"_copies_stop", copies_stop, METH_NOARGS, nullptr},
      {"_place", place, METH_O, "(file, line, function, caller) of a number."},
      {"_operations_start", operations_start, METH_NOARGS, nullptr},
      {"_operations_so_far", operations_so_far, METH_NOARGS, nullptr},
      {"_operations_stop", operations_stop, METH_NOARGS, "(operation, place, calls, nanoseconds) of each."},
      {"_cpu_memory_stats", host_memory, METH_NOARGS, "Bytes allocated, reserved, and the peaks of both."},
      {"_memory_start", memory_start, METH_NOARGS, nullptr},
      {"_memory_stop", memory_stop, METH_NOARGS, nullptr},
      {"_memory_so_far", memory_so_far, METH_NOARGS, nullptr},
      {"_memory_next", next_memory, METH_NOARGS, nullptr},
      {"_memory_recording", memory_recording, METH_NOARGS, nullptr},
      {"_memory_mark", memory_mark, METH_VARARGS, "(tensor, kind)"},
      {"_explain", explain, METH_O, "The anatomy of a tensor as a dict."},
      {"_explain_nested", explain_nested, METH_VARARGS, "(values, offsets, lengths, ragged_dim)"},
      {"_explain_text", explain_text, METH_VARARGS, "The same as text."},
      {"_storage_identity", storage_identity, METH_O, nullptr},
      {}};
  watch_places();
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
