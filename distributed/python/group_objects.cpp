// mica._distributed.Group, the engine of one group of processes; and Work, which stands for a call that was started.
#include <memory>

#include "distributed/engine.h"
#include "distributed/python/plain_tensor.h"
#include "distributed/shared_group.h"

namespace mica::distributed::python {
namespace {

struct WorkObject {
  PyObject_HEAD std::shared_ptr<Work>* work;
  uint64_t forks;  // fork_count() of the process that made it
};

struct GroupObject {
  PyObject_HEAD std::shared_ptr<Engine>* engine;
  std::shared_ptr<SharedGroup>* shared;  // null for other backends
  double timeout;                        // the time limit of all_reduce
  uint64_t forks;                        // fork_count() of the process that made it
};

Work& work_of(PyObject* self) { return **reinterpret_cast<WorkObject*>(self)->work; }
Engine& engine_of(PyObject* self) { return **reinterpret_cast<GroupObject*>(self)->engine; }

PyObject* work_object(std::shared_ptr<Work> work) {
  PyObject* self = WorkType.tp_alloc(&WorkType, 0);
  if (self) {
    reinterpret_cast<WorkObject*>(self)->work = new std::shared_ptr<Work>(std::move(work));
    reinterpret_cast<WorkObject*>(self)->forks = fork_count();
  }
  return self;
}

void work_dealloc(PyObject* self) {
  auto* object = reinterpret_cast<WorkObject*>(self);
  delete_of_process(object->work, object->forks);
  Py_TYPE(self)->tp_free(self);
}

// Returns True, or False if it was not done in time. Raises the error with which it failed.
PyObject* work_wait(PyObject* self, PyObject* seconds) {
  const double limit = PyFloat_AsDouble(seconds);
  if (limit == -1 && PyErr_Occurred()) return nullptr;
  bool done = false;
  if (!unlocked([&] { done = work_of(self).wait(limit, interrupt()); })) return nullptr;
  return PyBool_FromLong(done);
}

PyObject* work_done(PyObject* self, PyObject*) {
  bool done = false;
  if (!unlocked([&] { done = work_of(self).done(); })) return nullptr;
  return PyBool_FromLong(done);
}

PyObject* work_sender(PyObject* self, PyObject*) { return PyLong_FromLong(work_of(self).sender()); }

PyMethodDef work_methods[] = {{"wait", work_wait, METH_O, nullptr},
                              {"done", work_done, METH_NOARGS, nullptr},
                              {"sender", work_sender, METH_NOARGS, nullptr},
                              {}};

// Group(name, rank, world_ranks, world, process, descriptor, late_after): uses the segment of the process, or makes a
// new one for -1.
PyObject* group_new(PyTypeObject* type, PyObject* args, PyObject*) {
  const char* name;
  PyObject *ranks, *world;
  int rank, process, descriptor;
  SharedOptions options;
  if (!PyArg_ParseTuple(args, "siOOiid", &name, &rank, &ranks, &world, &process, &descriptor, &options.late_after))
    return nullptr;
  if (!ranks_of(ranks, options.world_ranks)) return nullptr;
  if (rank < 0 || static_cast<size_t>(rank) >= options.world_ranks.size()) {
    return PyErr_Format(PyExc_ValueError, "rank %d is not in a group of %zu", rank, options.world_ranks.size());
  }
  if (world != Py_None && !PyObject_TypeCheck(world, &GroupType))
    return PyErr_Format(PyExc_TypeError, "expected a Group");
  options.name = name;
  options.rank = rank;
  try {
    Segment segment = descriptor < 0 ? Segment::create(static_cast<int>(options.world_ranks.size()))
                                     : Segment::open(process, descriptor);
    if (segment.size() != static_cast<int>(options.world_ranks.size())) {
      throw BackendError("ranks do not agree about the size of the group '" + options.name + "'");
    }
    auto* outer = world == Py_None ? nullptr : reinterpret_cast<GroupObject*>(world)->shared;
    auto shared = std::make_shared<SharedGroup>(std::move(segment), options, outer ? *outer : nullptr);
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    auto* object = reinterpret_cast<GroupObject*>(self);
    object->engine = new std::shared_ptr<Engine>(std::make_shared<Engine>(shared));
    object->shared = new std::shared_ptr<SharedGroup>(shared);
    object->forks = fork_count();
    return self;
  } catch (...) {
    return raise_current();
  }
}

void group_dealloc(PyObject* self) {
  auto* object = reinterpret_cast<GroupObject*>(self);
  {
    Unlocked guard;
    delete_of_process(object->engine, object->forks);
    delete_of_process(object->shared, object->forks);
  }
  Py_TYPE(self)->tp_free(self);
}

PyObject* group_descriptor(PyObject* self, void*) {
  auto* object = reinterpret_cast<GroupObject*>(self);
  if (!object->shared) return PyLong_FromLong(-1);
  return PyLong_FromLong((*object->shared)->segment().descriptor());
}

PyObject* group_meet(PyObject* self, PyObject* seconds) {
  const double limit = PyFloat_AsDouble(seconds);
  if (limit == -1 && PyErr_Occurred()) return nullptr;
  auto* shared = reinterpret_cast<GroupObject*>(self)->shared;
  if (shared && !unlocked([&] { (*shared)->meet(limit, interrupt()); })) return nullptr;
  Py_RETURN_NONE;
}

// A flat sequence of addresses and sizes: address, bytes, address, bytes...
bool buffers_of(PyObject* sequence, std::vector<Bytes>& buffers) {
  if (!PyTuple_Check(sequence)) return PyErr_Format(PyExc_TypeError, "expected a tuple of addresses and sizes"), false;
  const Py_ssize_t count = PyTuple_GET_SIZE(sequence) / 2;
  buffers.resize(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    auto& each = buffers[static_cast<size_t>(i)];
    each.data = static_cast<std::byte*>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(sequence, 2 * i)));
    each.size = PyLong_AsSize_t(PyTuple_GET_ITEM(sequence, 2 * i + 1));
  }
  return !PyErr_Occurred();
}

bool shape_of(PyObject* shape, std::vector<int64_t>& out) {
  if (!PyTuple_Check(shape)) return true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); ++i) out.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i)));
  return !PyErr_Occurred();
}

// run(kind, dtype, reduction, factor, root, tag, timeout, inputs, outputs, shape, later): None, or Work if `later`.
PyObject* group_run(PyObject* self, PyObject* args) {
  int kind, dtype, reduction, root, later;
  long long tag;
  double factor, timeout;
  PyObject *inputs, *outputs, *shape;
  Call call;
  if (!PyArg_ParseTuple(args, "iiidiLdOOOp", &kind, &dtype, &reduction, &factor, &root, &tag, &timeout, &inputs,
                        &outputs, &shape, &later) ||
      !buffers_of(inputs, call.inputs) || !buffers_of(outputs, call.outputs) || !shape_of(shape, call.shape)) {
    return nullptr;
  }
  call.kind = static_cast<Kind>(kind);
  call.dtype = static_cast<DType>(dtype);
  call.reduction = static_cast<Reduction>(reduction);
  call.factor = factor;
  call.root = root;
  call.tag = tag;
  call.timeout = timeout;
  call.place = current_place();
  Engine& engine = engine_of(self);
  const bool message = call.kind == Kind::Send || call.kind == Kind::Recv;
  if (!later) call.interrupt = interrupt();
  if (!later && !message) {
    if (!unlocked([&] { engine.run(call); })) return nullptr;
    Py_RETURN_NONE;
  }
  std::shared_ptr<Work> work;
  if (!unlocked([&] { work = message ? engine.post(std::move(call)) : engine.start(std::move(call)); })) return nullptr;
  return work_object(std::move(work));
}

// For the default group: waits until another rank asks where this program is. Returns False when the group is closed.
PyObject* group_wait_for_question(PyObject* self, PyObject*) {
  auto* shared = reinterpret_cast<GroupObject*>(self)->shared;
  bool asked = false;
  if (shared && !unlocked([&] { asked = (*shared)->wait_for_question(); })) return nullptr;
  return PyBool_FromLong(asked);
}

PyObject* group_answer(PyObject* self, PyObject* place) {
  std::string text;
  if (!text_of(place, text)) return nullptr;
  if (auto* shared = reinterpret_cast<GroupObject*>(self)->shared) (*shared)->answer(text);
  Py_RETURN_NONE;
}

// stand_still(rank, what, seconds): the program waits for a rank elsewhere; raises if that rank cannot come.
PyObject* group_stand_still(PyObject* self, PyObject* args) {
  int rank;
  const char* what;
  double seconds;
  if (!PyArg_ParseTuple(args, "isd", &rank, &what, &seconds)) return nullptr;
  auto* shared = reinterpret_cast<GroupObject*>(self)->shared;
  if (!shared) Py_RETURN_NONE;
  if (rank < 0 || rank >= (*shared)->size()) return PyErr_Format(PyExc_ValueError, "rank %d is not in the group", rank);
  const std::string text = std::string(what) + " at " + current_place();
  if (!unlocked([&] { (*shared)->stand_still(rank, text, seconds); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* group_stand_no_more(PyObject* self, PyObject*) {
  if (auto* shared = reinterpret_cast<GroupObject*>(self)->shared) (*shared)->stand_no_more();
  Py_RETURN_NONE;
}

// all_reduce(tensor, reduction): True when it is done. False where the tensor or the reduction needs the longer way.
PyObject* group_all_reduce(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) return PyErr_Format(PyExc_TypeError, "all_reduce takes a tensor and a reduction");
  thread_local Call call;  // kept, so that its memory is used again
  call.inputs.resize(1);
  call.shape.clear();
  const long reduction = PyLong_Check(args[1]) ? PyLong_AsLong(args[1]) : -1;
  if (reduction < 0 || reduction >= static_cast<long>(Reduction::PremulSum) ||
      !plain_tensor(args[0], call.inputs[0], call.dtype, call.shape)) {
    Py_RETURN_FALSE;
  }
  call.outputs.assign(1, call.inputs[0]);
  call.kind = Kind::AllReduce;
  call.reduction = static_cast<Reduction>(reduction);
  call.root = 0;
  call.timeout = reinterpret_cast<GroupObject*>(self)->timeout;
  call.place = current_place();
  call.interrupt = interrupt();
  Engine& engine = engine_of(self);
  if (!unlocked([&] { engine.run(call); })) return nullptr;
  Py_RETURN_TRUE;
}

// The time limit of all_reduce, in seconds.
PyObject* group_set_timeout(PyObject* self, PyObject* seconds) {
  const double limit = PyFloat_AsDouble(seconds);
  if (limit == -1 && PyErr_Occurred()) return nullptr;
  reinterpret_cast<GroupObject*>(self)->timeout = limit;
  Py_RETURN_NONE;
}

PyObject* group_abort(PyObject* self, PyObject* why) {
  std::string text;
  if (!text_of(why, text)) return nullptr;
  if (!unlocked([&] { engine_of(self).abort(text); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* group_close(PyObject* self, PyObject*) {
  if (!unlocked([&] { engine_of(self).close(); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* group_log(PyObject* self, PyObject* on) {
  engine_of(self).log(PyObject_IsTrue(on) == 1);
  Py_RETURN_NONE;
}

// The entries that were logged since the last call: (operation, dtype, bytes, time, seconds, line, waited, late).
PyObject* group_take_log(PyObject* self, PyObject*) {
  PyObject* list = PyList_New(0);
  for (const LogEntry& each : engine_of(self).take_log()) {
    PyObject* entry = list ? Py_BuildValue("ssKddsdi", name_of(each.kind), name_of_dtype(each.dtype),
                                           static_cast<unsigned long long>(each.bytes), each.began, each.seconds,
                                           each.place.c_str(), each.waited, each.late)
                           : nullptr;
    if (!entry || PyList_Append(list, entry) != 0) Py_CLEAR(list);
    Py_XDECREF(entry);
  }
  return list;
}

// Seconds that this rank has waited for each other one.
PyObject* group_waited(PyObject* self, PyObject*) {
  const std::vector<double> waited = engine_of(self).backend().waited();
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(waited.size()));
  for (size_t i = 0; list && i < waited.size(); ++i) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), PyFloat_FromDouble(waited[i]));
  }
  return list;
}

PyMethodDef group_methods[] = {
    {"meet", group_meet, METH_O, nullptr},
    {"run", group_run, METH_VARARGS, nullptr},
    {"all_reduce", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(group_all_reduce)), METH_FASTCALL,
     nullptr},
    {"set_timeout", group_set_timeout, METH_O, nullptr},
    {"wait_for_question", group_wait_for_question, METH_NOARGS, nullptr},
    {"answer", group_answer, METH_O, nullptr},
    {"stand_still", group_stand_still, METH_VARARGS, nullptr},
    {"stand_no_more", group_stand_no_more, METH_NOARGS, nullptr},
    {"abort", group_abort, METH_O, nullptr},
    {"close", group_close, METH_NOARGS, nullptr},
    {"log", group_log, METH_O, nullptr},
    {"take_log", group_take_log, METH_NOARGS, nullptr},
    {"waited", group_waited, METH_NOARGS, nullptr},
    {}};
PyGetSetDef group_attributes[] = {{"descriptor", group_descriptor, nullptr, nullptr, nullptr}, {}};

}  // namespace

std::shared_ptr<SharedGroup> shared_group_of(PyObject* object) {
  if (!PyObject_TypeCheck(object, &GroupType)) return nullptr;
  auto* shared = reinterpret_cast<GroupObject*>(object)->shared;
  return shared ? *shared : nullptr;
}

PyObject* group_of_backend(std::shared_ptr<Backend> backend) {
  PyObject* self = GroupType.tp_alloc(&GroupType, 0);
  if (self) {
    auto* object = reinterpret_cast<GroupObject*>(self);
    object->engine = new std::shared_ptr<Engine>(std::make_shared<Engine>(std::move(backend)));
    object->forks = fork_count();
  }
  return self;
}

PyTypeObject WorkType = [] {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = "mica._distributed.Work";
  type.tp_basicsize = sizeof(WorkObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_dealloc = work_dealloc;
  type.tp_methods = work_methods;
  return type;
}();

PyTypeObject GroupType = [] {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = "mica._distributed.Group";
  type.tp_basicsize = sizeof(GroupObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_new = group_new;
  type.tp_dealloc = group_dealloc;
  type.tp_methods = group_methods;
  type.tp_getset = group_attributes;
  return type;
}();

}  // namespace mica::distributed::python
