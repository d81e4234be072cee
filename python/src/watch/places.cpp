// Finds which line of the program runs: the frames of the interpreter outside this package.
#include <string>
#include <unordered_map>

#include "mica/observe.h"
#include "watch/inspect.h"

namespace mica::python {

namespace {

struct Key {
  uint32_t caller;
  PyCodeObject* code;
  int instruction;
  bool operator==(const Key&) const = default;
};
struct Hash {
  size_t operator()(const Key& k) const {
    return (reinterpret_cast<size_t>(k.code) >> 4) * 31 + static_cast<size_t>(k.instruction) * 7919 + k.caller * 104729;
  }
};

// Used with the interpreter lock held only. Code objects are kept alive, because their addresses stand for them.
std::unordered_map<Key, uint32_t, Hash>& known() {
  static auto* map = new std::unordered_map<Key, uint32_t, Hash>;
  return *map;
}
std::unordered_map<PyCodeObject*, bool>& foreign() {
  static auto* map = new std::unordered_map<PyCodeObject*, bool>;
  return *map;
}

std::string text_of(PyObject* unicode) {
  const char* bytes = unicode ? PyUnicode_AsUTF8(unicode) : nullptr;
  if (!bytes) PyErr_Clear();
  return bytes ? bytes : "";
}

// The folder of the package, with its separator.
const std::string& package_folder() {
  static std::string folder;
  if (!folder.empty()) return folder;
  Owned name(PyUnicode_FromString("mica"));
  Owned package(name ? PyImport_GetModule(name.get()) : nullptr);
  Owned file(package ? PyObject_GetAttrString(package.get(), "__file__") : nullptr);
  PyErr_Clear();
  folder = text_of(file.get());
  folder.resize(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/') + 1);
  return folder;
}

bool is_ours(PyCodeObject* code) {
  const auto found = foreign().find(code);
  if (found != foreign().end()) return !found->second;
  Owned file(PyObject_GetAttrString(reinterpret_cast<PyObject*>(code), "co_filename"));
  const std::string path = text_of(file.get());
  const std::string& folder = package_folder();
  const bool ours = (!folder.empty() && path.compare(0, folder.size(), folder) == 0) || path.rfind("<frozen", 0) == 0 ||
                    path.ends_with("/contextlib.py") || path.ends_with("/runpy.py");
  Py_INCREF(code);
  foreign().emplace(code, !ours);
  return ours;
}

uint32_t place_of(PyFrameObject* frame, int depth) {
  if (!frame || depth > 60) return 0;
  Owned back(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame)));
  const uint32_t caller = place_of(reinterpret_cast<PyFrameObject*>(back.get()), depth + 1);
  Owned held(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  auto* code = reinterpret_cast<PyCodeObject*>(held.get());
  if (is_ours(code)) return caller;
  const Key key{caller, code, PyFrame_GetLasti(frame)};
  if (const auto found = known().find(key); found != known().end()) return found->second;
  inspect::Place place;
  Owned file(PyObject_GetAttrString(held.get(), "co_filename")),
      name(PyObject_GetAttrString(held.get(), "co_qualname"));
  place.file = text_of(file.get());
  place.function = text_of(name.get());
  place.line = PyFrame_GetLineNumber(frame);
  place.caller = caller;
  PyErr_Clear();
  Py_INCREF(code);
  return known()[key] = inspect::add_place(std::move(place));
}

uint32_t place_now() {
  if (!Py_IsInitialized()) return 0;
  if (!PyGILState_Check()) return PyGILState_GetThisThreadState() ? inspect::kPlaceLater : 0;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const uint32_t place = place_of(PyEval_GetFrame(), 0);
  PyErr_Restore(type, value, traceback);
  return place;
}

}  // namespace

void settle_places() { inspect::settle_places(place_now()); }

void watch_places() { inspect::current_place = place_now; }

}  // namespace mica::python
