// mica._distributed.StoreServer and StoreClient.
#include <memory>

#include "distributed/python/bindings.h"
#include "distributed/store.h"

namespace mica::distributed::python {
namespace {

struct ServerObject {
  PyObject_HEAD StoreServer* server;
  uint64_t forks;  // fork_count() of the process that made it
};

PyObject* server_new(PyTypeObject* type, PyObject* args, PyObject*) {
  int port, listening;
  if (!PyArg_ParseTuple(args, "ii", &port, &listening)) return nullptr;
  std::unique_ptr<StoreServer> server;
  try {
    server = std::make_unique<StoreServer>(port, listening >= 0 ? std::optional(listening) : std::nullopt);
  } catch (...) {
    return raise_current();
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self) {
    reinterpret_cast<ServerObject*>(self)->server = server.release();
    reinterpret_cast<ServerObject*>(self)->forks = fork_count();
  }
  return self;
}

void server_dealloc(PyObject* self) {
  auto* object = reinterpret_cast<ServerObject*>(self);
  delete_of_process(object->server, object->forks);
  Py_TYPE(self)->tp_free(self);
}

PyObject* server_port(PyObject* self, void*) {
  return PyLong_FromLong(reinterpret_cast<ServerObject*>(self)->server->port());
}

PyGetSetDef server_attributes[] = {{"port", server_port, nullptr, nullptr, nullptr}, {}};

struct ClientObject {
  PyObject_HEAD StoreClient* client;
};

StoreClient& client_of(PyObject* self) { return *reinterpret_cast<ClientObject*>(self)->client; }

PyObject* client_new(PyTypeObject* type, PyObject* args, PyObject*) {
  const char* host;
  int port;
  double timeout;
  if (!PyArg_ParseTuple(args, "sid", &host, &port, &timeout)) return nullptr;
  std::unique_ptr<StoreClient> client;
  const std::string name = host;
  if (!unlocked([&] { client = std::make_unique<StoreClient>(name, port, timeout, interrupt()); })) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self) reinterpret_cast<ClientObject*>(self)->client = client.release();
  return self;
}

void client_dealloc(PyObject* self) {
  delete reinterpret_cast<ClientObject*>(self)->client;
  Py_TYPE(self)->tp_free(self);
}

PyObject* bytes_from(const std::string& text) {
  return PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

PyObject* client_set(PyObject* self, PyObject* args) {
  PyObject *keys, *values;
  std::vector<std::string> names, texts;
  if (!PyArg_ParseTuple(args, "OO", &keys, &values) || !texts_of(keys, names) || !texts_of(values, texts))
    return nullptr;
  if (names.size() != texts.size()) return PyErr_Format(PyExc_ValueError, "as many values as keys are needed");
  if (!unlocked([&] { client_of(self).set(names, texts, interrupt()); })) return nullptr;
  Py_RETURN_NONE;
}

// A list of values, or None if not all keys were there in time.
PyObject* client_get(PyObject* self, PyObject* args) {
  PyObject* keys;
  double timeout;
  std::vector<std::string> names;
  if (!PyArg_ParseTuple(args, "Od", &keys, &timeout) || !texts_of(keys, names)) return nullptr;
  std::optional<std::vector<std::string>> values;
  if (!unlocked([&] { values = client_of(self).get(names, timeout, interrupt()); })) return nullptr;
  if (!values) Py_RETURN_NONE;
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(values->size()));
  for (size_t i = 0; list && i < values->size(); ++i) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), bytes_from((*values)[i]));
  }
  return list;
}

PyObject* client_wait(PyObject* self, PyObject* args) {
  PyObject* keys;
  double timeout;
  std::vector<std::string> names;
  if (!PyArg_ParseTuple(args, "Od", &keys, &timeout) || !texts_of(keys, names)) return nullptr;
  bool there = false;
  if (!unlocked([&] { there = client_of(self).wait(names, timeout, interrupt()); })) return nullptr;
  return PyBool_FromLong(there);
}

PyObject* client_add(PyObject* self, PyObject* args) {
  PyObject* key;
  long long amount;
  std::string name;
  if (!PyArg_ParseTuple(args, "OL", &key, &amount) || !text_of(key, name)) return nullptr;
  int64_t value = 0;
  if (!unlocked([&] { value = client_of(self).add(name, amount, interrupt()); })) return nullptr;
  return PyLong_FromLongLong(value);
}

bool key_and_value(PyObject* args, std::string& key, std::string& value) {
  PyObject *name, *text;
  return PyArg_ParseTuple(args, "OO", &name, &text) && text_of(name, key) && text_of(text, value);
}

PyObject* client_append(PyObject* self, PyObject* args) {
  std::string key, value;
  if (!key_and_value(args, key, value)) return nullptr;
  if (!unlocked([&] { client_of(self).append(key, value, interrupt()); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* client_push(PyObject* self, PyObject* args) {
  std::string key, value;
  if (!key_and_value(args, key, value)) return nullptr;
  if (!unlocked([&] { client_of(self).push(key, value, interrupt()); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* client_pop(PyObject* self, PyObject* args) {
  PyObject* key;
  double timeout;
  std::string name;
  if (!PyArg_ParseTuple(args, "Od", &key, &timeout) || !text_of(key, name)) return nullptr;
  std::optional<std::string> value;
  if (!unlocked([&] { value = client_of(self).pop(name, timeout, interrupt()); })) return nullptr;
  if (!value) Py_RETURN_NONE;
  return bytes_from(*value);
}

PyObject* client_compare_set(PyObject* self, PyObject* args) {
  PyObject *key, *expected, *desired;
  std::string name, before, after, present;
  if (!PyArg_ParseTuple(args, "OOO", &key, &expected, &desired) || !text_of(key, name) || !text_of(expected, before) ||
      !text_of(desired, after)) {
    return nullptr;
  }
  if (!unlocked([&] { present = client_of(self).compare_set(name, before, after, interrupt()); })) return nullptr;
  return bytes_from(present);
}

PyObject* client_check(PyObject* self, PyObject* keys) {
  std::vector<std::string> names;
  bool there = false;
  if (!texts_of(keys, names)) return nullptr;
  if (!unlocked([&] { there = client_of(self).check(names, interrupt()); })) return nullptr;
  return PyBool_FromLong(there);
}

PyObject* client_delete(PyObject* self, PyObject* key) {
  std::string name;
  bool was_there = false;
  if (!text_of(key, name)) return nullptr;
  if (!unlocked([&] { was_there = client_of(self).remove(name, interrupt()); })) return nullptr;
  return PyBool_FromLong(was_there);
}

PyObject* client_length(PyObject* self, PyObject* key) {
  std::string name;
  int64_t length = 0;
  if (!text_of(key, name)) return nullptr;
  if (!unlocked([&] { length = client_of(self).length(name, interrupt()); })) return nullptr;
  return PyLong_FromLongLong(length);
}

PyObject* client_count(PyObject* self, PyObject*) {
  int64_t count = 0;
  if (!unlocked([&] { count = client_of(self).count(interrupt()); })) return nullptr;
  return PyLong_FromLongLong(count);
}

PyObject* client_keys(PyObject* self, PyObject*) {
  std::vector<std::string> keys;
  if (!unlocked([&] { keys = client_of(self).keys(interrupt()); })) return nullptr;
  PyObject* list = PyList_New(0);
  for (const std::string& each : keys) {
    PyObject* text =
        list ? PyUnicode_DecodeUTF8(each.data(), static_cast<Py_ssize_t>(each.size()), "replace") : nullptr;
    if (!text || PyList_Append(list, text) != 0) Py_CLEAR(list);
    Py_XDECREF(text);
  }
  return list;
}

PyMethodDef client_methods[] = {
    {"set", client_set, METH_VARARGS, nullptr},       {"get", client_get, METH_VARARGS, nullptr},
    {"wait", client_wait, METH_VARARGS, nullptr},     {"add", client_add, METH_VARARGS, nullptr},
    {"append", client_append, METH_VARARGS, nullptr}, {"push", client_push, METH_VARARGS, nullptr},
    {"pop", client_pop, METH_VARARGS, nullptr},       {"compare_set", client_compare_set, METH_VARARGS, nullptr},
    {"check", client_check, METH_O, nullptr},         {"delete", client_delete, METH_O, nullptr},
    {"length", client_length, METH_O, nullptr},       {"count", client_count, METH_NOARGS, nullptr},
    {"keys", client_keys, METH_NOARGS, nullptr},      {}};

}  // namespace

PyTypeObject StoreServerType = [] {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = "mica._distributed.StoreServer";
  type.tp_basicsize = sizeof(ServerObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_new = server_new;
  type.tp_dealloc = server_dealloc;
  type.tp_getset = server_attributes;
  return type;
}();

PyTypeObject StoreClientType = [] {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = "mica._distributed.StoreClient";
  type.tp_basicsize = sizeof(ClientObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_new = client_new;
  type.tp_dealloc = client_dealloc;
  type.tp_methods = client_methods;
  return type;
}();

}  // namespace mica::distributed::python
