// Calls of compiled functions: kernels on large tensors are put off while one runs (mica/core/recording.h).
#include "mica/core/recording.h"

#include <Python.h>
#include <structmember.h>

#include <atomic>
#include <utility>

#include "core/kept.h"
#include "modes/known_call.h"
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

// The callable that a compiled function uses: it runs `inner` while calls of kernels are put off. After some calls it
// asks mica._dynamo.replay whether further ones can be made again without Python.
struct CompiledCall {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* inner;
  PyObject* known;     // a tuple of calls that are made again (modes/known_call.h), or null
  PyObject* replayed;  // takes the other calls and learns from them, or null
  PyObject* weakrefs;
  Py_ssize_t until_replay;  // how many calls there are before the replay begins; 0: it does not begin
  bool whole;               // fullgraph=True
};

std::atomic<bool> runs_eagerly{false};  // the stance "force_eager"

// One call less is to come before the replay begins. An error in its beginning is reported, and the call goes on.
void count_call(CompiledCall* compiled) {
  if (--compiled->until_replay > 0) return;
  Owned module(PyImport_ImportModule("mica._dynamo.replay"));
  auto* self = reinterpret_cast<PyObject*>(compiled);
  Owned answer(module ? PyObject_CallMethod(module.get(), "begin", "O", self) : nullptr);
  if (!answer) PyErr_WriteUnraisable(self);
}

// The result of the first of these calls that is this one. Null without an error: there is none.
PyObject* make_known(PyObject* known, PyObject* const* args, size_t count, PyObject* names) {
  const Owned calls = Owned::borrow(known);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(known); ++i)
    if (PyObject* call = PyTuple_GET_ITEM(known, i); is_this_call(call, args, count, names))
      return make_again(call, args);
  return nullptr;
}

PyObject* call_compiled(PyObject* self, PyObject* const* args, size_t count, PyObject* names) try {
  auto* compiled = reinterpret_cast<CompiledCall*>(self);
  const auto call = [&] { return PyObject_Vectorcall(compiled->inner, args, count, names); };
  if (runs_eagerly.load(std::memory_order_relaxed)) return call();
  if (recording::in_function()) return call_recorded(true, compiled->whole, call);  // the outer one is replayed
  if (compiled->known) {
    PyObject* result = call_recorded(true, compiled->whole, [&]() -> PyObject* {
      PyObject* made = make_known(compiled->known, args, count, names);
      if (made || PyErr_Occurred()) return made;
      return Py_NewRef(Py_NotImplemented);
    });
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  if (compiled->until_replay > 0) count_call(compiled);
  if (compiled->replayed) {
    const Owned replayed = Owned::borrow(compiled->replayed);
    return PyObject_Vectorcall(replayed.get(), args, count, names);
  }
  return call_recorded(true, compiled->whole, call);
} catch (...) {
  return raise_current_exception();
}

PyObject* new_compiled_call(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"function", "fullgraph", "until_replay", nullptr};
  PyObject* inner;
  int whole = 0;
  Py_ssize_t until_replay = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|pn", const_cast<char**>(names), &inner, &whole, &until_replay))
    return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  auto* compiled = reinterpret_cast<CompiledCall*>(self);
  compiled->vectorcall = call_compiled;
  compiled->inner = Py_NewRef(inner);
  compiled->until_replay = until_replay;
  compiled->whole = whole != 0;
  return self;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  const auto* compiled = reinterpret_cast<CompiledCall*>(self);
  Py_VISIT(Py_TYPE(self));
  for (PyObject* each : {compiled->inner, compiled->known, compiled->replayed}) Py_VISIT(each);
  return 0;
}
int clear(PyObject* self) {
  auto* compiled = reinterpret_cast<CompiledCall*>(self);
  Py_CLEAR(compiled->inner);
  Py_CLEAR(compiled->known);
  Py_CLEAR(compiled->replayed);
  return 0;
}
void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (reinterpret_cast<CompiledCall*>(self)->weakrefs) PyObject_ClearWeakRefs(self);
  clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// compiled.known: a tuple of known calls, or None.
PyObject* get_known(PyObject* self, void*) {
  PyObject* known = reinterpret_cast<CompiledCall*>(self)->known;
  return Py_NewRef(known ? known : Py_None);
}
int set_known(PyObject* self, PyObject* value, void*) {
  bool fits = value && (value == Py_None || PyTuple_CheckExact(value));
  for (Py_ssize_t i = 0; fits && value != Py_None && i < PyTuple_GET_SIZE(value); ++i)
    fits = is_known_call(PyTuple_GET_ITEM(value, i));
  if (!fits) {
    PyErr_SetString(PyExc_TypeError, "known is a tuple of known calls, or None");
    return -1;
  }
  PyObject* before =
      std::exchange(reinterpret_cast<CompiledCall*>(self)->known, value == Py_None ? nullptr : Py_NewRef(value));
  Py_XDECREF(before);
  return 0;
}
PyObject* get_replayed(PyObject* self, void*) {
  PyObject* replayed = reinterpret_cast<CompiledCall*>(self)->replayed;
  return Py_NewRef(replayed ? replayed : Py_None);
}
int set_replayed(PyObject* self, PyObject* value, void*) {
  PyObject* before = std::exchange(reinterpret_cast<CompiledCall*>(self)->replayed,
                                   !value || value == Py_None ? nullptr : Py_NewRef(value));
  Py_XDECREF(before);
  return 0;
}

bool add_compiled_call(PyObject* module) {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledCall, vectorcall), READONLY, nullptr},
      {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledCall, weakrefs), READONLY, nullptr},
      {"__wrapped__", T_OBJECT_EX, offsetof(CompiledCall, inner), READONLY, nullptr},  // its signature is asked for
      {"fullgraph", T_BOOL, offsetof(CompiledCall, whole), READONLY, nullptr},
      {"until_replay", T_PYSSIZET, offsetof(CompiledCall, until_replay), 0, nullptr},
      {}};
  static PyGetSetDef attributes[] = {{"known", get_known, set_known, "Calls that are made again.", nullptr},
                                     {"replayed", get_replayed, set_replayed, "Takes all other calls.", nullptr},
                                     {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_compiled_call)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_members, members},
                                {Py_tp_getset, attributes},
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

// Whether somebody watches operations: a profiler, a trace, inspection of copies.
static PyObject* is_observed(PyObject*, PyObject*) {
  return PyBool_FromLong(thread_modes & (mode_bit::kObserve | mode_bit::kProfile));
}

// _flush_recording(what="graph_break"): `what` names the request where the function is to be one graph.
static PyObject* flush_recording(PyObject*, PyObject* args) try {
  const char* what = "graph_break";
  if (!PyArg_ParseTuple(args, "|s", &what)) return nullptr;
  recording::ask_for_values(what);
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
      {"_is_observed", is_observed, METH_NOARGS, "Whether a profiler or a trace sees each operation of this thread."},
      {"_flush_recording", flush_recording, METH_VARARGS, "Runs what has been put off on this thread."},
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
