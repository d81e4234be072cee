// Calls of compiled functions: kernels on large tensors are put off while one runs (mica/core/recording.h).
#include "mica/core/recording.h"

#include <structmember.h>

#include <atomic>
#include <utility>

#include "core/kept.h"
#include "modes/modes.h"
#include "operations/entry.h"

namespace mica::python {

// Runs `call` while kernels are put off, or are not. If both the call and the kernels that were put off fail, the
// call's error is the one that is raised.
template <class Function>
static PyObject* call_recorded(bool on, bool whole, const Function& call) {
  recording::Scope scope(on, whole);
  PyObject* result = call();
  if (result && !recording::pending()) [[likely]] {
    scope.end();
    return result;
  }
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  if (!result) PyErr_Fetch(&type, &value, &traceback);
  try {
    Unlocked unlocked(recording::pending());
    scope.end();
  } catch (...) {
    if (result) {
      Py_DECREF(result);
      throw;
    }
  }
  if (!result) PyErr_Restore(type, value, traceback);
  return result;
}

static PyObject* call_uncompiled(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) try {
  if (count < 1) return PyErr_Format(PyExc_TypeError, "_call_uncompiled() takes a function");
  return call_recorded(false, false,
                       [&] { return PyObject_Vectorcall(args[0], args + 1, static_cast<size_t>(count - 1), names); });
} catch (...) {
  return raise_current_exception();
}

// ---- compiled callables

namespace {

// The callable that a compiled function uses: it runs `inner` while calls of kernels are put off.
struct CompiledCall {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* inner;
  bool whole;  // fullgraph=True
};

std::atomic<bool> runs_eagerly{false};  // the stance "force_eager"

PyObject* call_compiled(PyObject* self, PyObject* const* args, size_t count, PyObject* names) try {
  const auto* compiled = reinterpret_cast<CompiledCall*>(self);
  const auto call = [&] { return PyObject_Vectorcall(compiled->inner, args, count, names); };
  if (runs_eagerly.load(std::memory_order_relaxed)) return call();
  return call_recorded(true, compiled->whole, call);
} catch (...) {
  return raise_current_exception();
}

PyObject* new_compiled_call(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"function", "fullgraph", nullptr};
  PyObject* inner;
  int whole = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p", const_cast<char**>(names), &inner, &whole)) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  auto* compiled = reinterpret_cast<CompiledCall*>(self);
  compiled->vectorcall = call_compiled;
  compiled->inner = Py_NewRef(inner);
  compiled->whole = whole != 0;
  return self;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<CompiledCall*>(self)->inner);
  return 0;
}
int clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<CompiledCall*>(self)->inner);
  return 0;
}
void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

bool add_compiled_call(PyObject* module) {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledCall, vectorcall), READONLY, nullptr},
      {"__wrapped__", T_OBJECT_EX, offsetof(CompiledCall, inner), READONLY, nullptr},  // its signature is asked for
      {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_compiled_call)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_members, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch._C._CompiledCall", sizeof(CompiledCall), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};
  return add_type(module, &spec) != nullptr;
}

// mica._dynamo.full_graph.name, a new reference.
PyObject* of_full_graph(const char* name) {
  Owned module(PyImport_ImportModule("mica._dynamo.full_graph"));
  return module ? PyObject_GetAttrString(module.get(), name) : nullptr;
}

// Raises where torch's tracing would refuse the line that asks for values.
void refuse_values(const char* what) {
  Locked locked;
  Owned refuse(checked(of_full_graph("refuse")));
  Owned answer(checked(PyObject_CallFunction(refuse.get(), "s", what)));
}

// The line of the program that runs, with its text.
std::string place() {
  if (!Py_IsInitialized()) return "";
  Locked locked;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  std::string text;
  {
    Owned function(of_full_graph("place"));
    Owned answer(function ? PyObject_CallNoArgs(function.get()) : nullptr);
    const char* bytes = answer ? PyUnicode_AsUTF8(answer.get()) : nullptr;
    if (bytes) text = bytes;
  }
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return text;
}

}  // namespace

static PyObject* set_runs_eagerly(PyObject*, PyObject* on) {
  const int eagerly = PyObject_IsTrue(on);
  if (eagerly < 0) return nullptr;
  runs_eagerly = eagerly;
  Py_RETURN_NONE;
}

static PyObject* is_recording(PyObject*, PyObject*) { return PyBool_FromLong(recording::in_function()); }

static PyObject* flush_recording(PyObject*, PyObject*) try {
  recording::ask_for_values("graph_break");
  recording::flush("a call for it");
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* recording_counts(PyObject*, PyObject*) {
  const recording::Counts c = recording::counts();
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "flushes", static_cast<long long>(c.flushes), "calls",
                       static_cast<long long>(c.calls), "loops", static_cast<long long>(c.loops), "dead",
                       static_cast<long long>(c.dead), "bytes_kept_out_of_memory", static_cast<long long>(c.kept_apart),
                       "generated", static_cast<long long>(c.generated), "bytes_of_arranged_weights",
                       static_cast<long long>(kept::bytes()));
}
static PyObject* reset_recording_counts(PyObject*, PyObject*) {
  recording::reset_counts();
  Py_RETURN_NONE;
}

static PyObject* set_least_elements(PyObject*, PyObject* number) {
  const long long least = PyLong_AsLongLong(number);
  if (least == -1 && PyErr_Occurred()) return nullptr;
  return PyLong_FromLongLong(recording::least_elements.exchange(least));
}

static PyObject* set_least_fused(PyObject*, PyObject* number) {
  const long long least = PyLong_AsLongLong(number);
  if (least == -1 && PyErr_Occurred()) return nullptr;
  return PyLong_FromLongLong(std::exchange(recording::least_fused, least));
}

static PyObject* set_generated_code(PyObject*, PyObject* on) {
  const int wanted = PyObject_IsTrue(on);
  return wanted < 0 ? nullptr : PyBool_FromLong(recording::generate_code(wanted != 0));
}

static PyObject* explain_recording(PyObject*, PyObject*) {
  recording::explain_from_now_on(place);
  Py_RETURN_NONE;
}
static PyObject* recording_explanation(PyObject*, PyObject*) try {
  return PyUnicode_FromString(recording::take_explanation().c_str());
} catch (...) {
  return raise_current_exception();
}

bool add_recording(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_call_uncompiled", as_cfunction(call_uncompiled), METH_FASTCALL | METH_KEYWORDS,
       "Calls a function within a compiled one as if that were not compiled."},
      {"_run_compiled_eagerly", set_runs_eagerly, METH_O, "Whether compiled functions run as they are."},
      {"_is_recording", is_recording, METH_NOARGS, nullptr},
      {"_flush_recording", flush_recording, METH_NOARGS, "Runs what has been put off on this thread."},
      {"_recording_counts", recording_counts, METH_NOARGS, nullptr},
      {"_reset_recording_counts", reset_recording_counts, METH_NOARGS, nullptr},
      {"_set_least_recorded_elements", set_least_elements, METH_O, "For tests; returns the number before."},
      {"_set_least_fused_elements", set_least_fused, METH_O, "Of this thread; returns the number before."},
      {"_set_generated_code", set_generated_code, METH_O, "For tests; returns whether machine code was made before."},
      {"_explain_recording", explain_recording, METH_NOARGS, nullptr},
      {"_recording_explanation", recording_explanation, METH_NOARGS, nullptr},
      {}};
  recording::refuse_values = refuse_values;
  return PyModule_AddFunctions(module, functions) == 0 && add_compiled_call(module);
}

}  // namespace mica::python
