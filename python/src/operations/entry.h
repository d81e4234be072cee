// The building blocks of the generated entries of operations.
#pragma once

#include <tuple>

#include "arguments/parser.h"
#include "mica/autograd.h"
#include "mica/core/dispatch.h"
#include "mica/ops.h"
#include "mica/parallel.h"

namespace mica::python {

// ---- results

// The type of a result with several named tensors: torch.return_types.sort. Made when first returned or asked for.
struct ReturnType {
  static constexpr int kMaxFields = 6;
  const char* name;
  const char* fields[kMaxFields + 1];  // ends with null
  PyTypeObject* type = nullptr;
  PyTypeObject* get();
};

inline PyObject* to_python(const Tensor& t) { return wrap(t); }
inline PyObject* to_python(Tensor&& t) { return wrap(std::move(t)); }
inline PyObject* to_python(bool b) { return PyBool_FromLong(b); }
inline PyObject* to_python(int64_t i) { return PyLong_FromLongLong(i); }
inline PyObject* to_python(double d) { return PyFloat_FromDouble(d); }
inline PyObject* to_python(DType t) { return dtype_object(t); }
PyObject* to_python(const Scalar& s);
PyObject* to_python(const std::string& s);
PyObject* to_python(std::vector<Tensor> list);  // a tuple
PyObject* tuple_of(Tensor* tensors, size_t count, ReturnType* type);

// Several tensors: a tuple, or a named one.
template <class... Tensors>
PyObject* to_python(std::tuple<Tensors...>&& tensors, ReturnType* type = nullptr) {
  return std::apply(
      [type](auto&... each) {
        Tensor list[] = {std::move(each)...};
        return tuple_of(list, sizeof...(each), type);
      },
      tensors);
}

PyObject* new_result(const TensorOptions& options, Tensor result);  // applies options.requires_grad()

// A factory with out=: options that are given must be those of `out`, which `fill` then fills.
void fill_out(const Tensor& out, const TensorOptions& options, FunctionRef<void()> fill);

// ---- the body of an entry

// Evaluates a call of the engine, without the interpreter lock if the tensors are large, and returns its result.
#define MICA_RETURN(...)                        \
  do {                                          \
    Unlocked unlocked(a.large());               \
    auto engine_result = __VA_ARGS__;           \
    unlocked.lock();                            \
    return to_python(std::move(engine_result)); \
  } while (0)

// The same for a named tuple.
#define MICA_RETURN_NAMED(return_type, ...)                   \
  do {                                                        \
    Unlocked unlocked(a.large());                             \
    auto engine_result = __VA_ARGS__;                         \
    unlocked.lock();                                          \
    return to_python(std::move(engine_result), &return_type); \
  } while (0)

// The same for a factory.
#define MICA_RETURN_NEW(count, options, ...)                   \
  do {                                                         \
    Unlocked unlocked(a.large() || (count) > kUnlockElements); \
    dispatch::direct = dispatch::active;                       \
    Tensor engine_result = __VA_ARGS__;                        \
    unlocked.lock();                                           \
    return new_result(options, std::move(engine_result));      \
  } while (0)

// The same for a call that changes an argument, which is also the result.
#define MICA_RETURN_ARGUMENT(i, ...) \
  do {                               \
    Unlocked unlocked(a.large());    \
    __VA_ARGS__;                     \
    unlocked.lock();                 \
    return Py_NewRef(a.object(i));   \
  } while (0)

#define MICA_RETURN_NONE(...)     \
  do {                            \
    Unlocked unlocked(a.large()); \
    __VA_ARGS__;                  \
    unlocked.lock();              \
    Py_RETURN_NONE;               \
  } while (0)

// The product of sizes, for a guess of the work; saturates.
int64_t count_of(IntArrayRef sizes);

// ---- registration

struct Entry {
  PyMethodDef definition;  // name, function, flags, docstring; used for the function and for the method
  const char* space;       // "": torch
  uint8_t forms;           // kFunction, kMethod
};

struct Family {
  Entry* entries;
  size_t num_entries;
  ReturnType* const* return_types;
  size_t num_return_types;
};

extern const Family* const kFamilies[];  // generated: registry.cpp
extern const size_t kNumFamilies;

using EntryFunction = PyObject*(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
constexpr int kEntryFlags = METH_FASTCALL | METH_KEYWORDS;

bool add_entries(PyObject* module);  // functions to the module and its namespaces, methods to Tensor

}  // namespace mica::python
