// MPI as a Python object: rank and size, and groups.
#include "distributed/mpi/mpi_library.h"
#include "distributed/python/bindings.h"

namespace mica::distributed::python {
namespace {

struct MpiObject {
  PyObject_HEAD std::shared_ptr<MpiWorld>* world;
  uint64_t forks;  // fork_count() of the process that made it
};

MpiWorld& world_of(PyObject* self) { return **reinterpret_cast<MpiObject*>(self)->world; }

// Mpi(path): opens the library and begins MPI, unless it has begun.
PyObject* mpi_new(PyTypeObject* type, PyObject* args, PyObject*) {
  const char* path;
  if (!PyArg_ParseTuple(args, "s", &path)) return nullptr;
  std::shared_ptr<MpiWorld> world;
  if (!unlocked([&] { world = MpiWorld::open(path); })) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self) {
    reinterpret_cast<MpiObject*>(self)->world = new std::shared_ptr<MpiWorld>(std::move(world));
    reinterpret_cast<MpiObject*>(self)->forks = fork_count();
  }
  return self;
}

void mpi_dealloc(PyObject* self) {
  {
    Unlocked guard;
    delete_of_process(reinterpret_cast<MpiObject*>(self)->world, reinterpret_cast<MpiObject*>(self)->forks);
  }
  Py_TYPE(self)->tp_free(self);
}

PyObject* mpi_rank(PyObject* self, void*) { return PyLong_FromLong(world_of(self).rank()); }
PyObject* mpi_size(PyObject* self, void*) { return PyLong_FromLong(world_of(self).size()); }
PyObject* mpi_version(PyObject* self, void*) { return PyUnicode_FromString(world_of(self).version().c_str()); }

// The texts of all ranks.
PyObject* mpi_gather(PyObject* self, PyObject* own) {
  std::string text;
  std::vector<std::string> all;
  if (!text_of(own, text) || !unlocked([&] { all = world_of(self).gather(text); })) return nullptr;
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(all.size()));
  for (size_t i = 0; list && i < all.size(); ++i) {
    PyObject* each = PyUnicode_FromString(all[i].c_str());
    if (!each) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), each);
  }
  return list;
}

// group(name, ranks, number, desk): a Group; the desk is one in shared memory, or None.
PyObject* mpi_group(PyObject* self, PyObject* args) {
  const char* name;
  PyObject *sequence, *desk;
  int number;
  if (!PyArg_ParseTuple(args, "sOiO", &name, &sequence, &number, &desk)) return nullptr;
  std::shared_ptr<SharedGroup> shared = shared_group_of(desk);
  std::vector<int> ranks;
  if (!ranks_of(sequence, ranks)) return nullptr;
  const std::string text = name;
  std::shared_ptr<Backend> backend;
  if (!unlocked([&] { backend = world_of(self).group(text, ranks, number, shared); })) return nullptr;
  return group_of_backend(std::move(backend));
}

PyObject* mpi_finish(PyObject* self, PyObject*) {
  if (!unlocked([&] { world_of(self).finish(); })) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef mpi_methods[] = {{"gather", mpi_gather, METH_O, nullptr},
                             {"group", mpi_group, METH_VARARGS, nullptr},
                             {"finish", mpi_finish, METH_NOARGS, nullptr},
                             {}};
PyGetSetDef mpi_attributes[] = {{"rank", mpi_rank, nullptr, nullptr, nullptr},
                                {"size", mpi_size, nullptr, nullptr, nullptr},
                                {"version", mpi_version, nullptr, nullptr, nullptr},
                                {}};

}  // namespace

PyTypeObject MpiType = [] {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = "mica._distributed.Mpi";
  type.tp_basicsize = sizeof(MpiObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_new = mpi_new;
  type.tp_dealloc = mpi_dealloc;
  type.tp_methods = mpi_methods;
  type.tp_getset = mpi_attributes;
  return type;
}();

}  // namespace mica::distributed::python
