// LBFGS: its state is a dictionary of numbers, tensors and lists of them, in torch's layout.
#include "mica/optim/lbfgs.h"

#include "training/optim.h"

namespace mica::python {

using optim::LBFGSState;
using optim::Real;

static Real real_of(PyObject* o) { return is_tensor(o) ? Real(unwrap(o)) : Real(real_from_object(o)); }
static PyObject* object_of(const Real& r) { return r.is_tensor() ? wrap(r.tensor()) : PyFloat_FromDouble(r.value()); }

static Tensor tensor_of(PyObject* o) {
  MICA_CHECK_KIND(is_tensor(o), Type, "LBFGS's state holds a ", Py_TYPE(o)->tp_name, " where a Tensor belongs");
  return unwrap(o);
}

template <class T, class Convert>
static std::vector<T> list_of(PyObject* o, Convert convert) {
  std::vector<T> result;
  Owned list(checked(PySequence_Fast(o, "LBFGS's state holds no list where one belongs")));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(list.get(), i);
    result.push_back(item == Py_None ? T() : convert(item));
  }
  return result;
}

template <class List, class Convert>
static PyObject* new_list(const List& values, Convert convert) {
  Owned list(checked(PyList_New(static_cast<Py_ssize_t>(values.size()))));
  for (size_t i = 0; i < values.size(); ++i)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), checked(convert(values[i])));
  return list.release();
}

static LBFGSState read_state(PyObject* dict) {
  const OptionDict state(dict);
  LBFGSState s;
  s.func_evals = state.has("func_evals") ? state.integer("func_evals") : 0;
  s.n_iter = state.has("n_iter") ? state.integer("n_iter") : 0;
  const auto with = [&](const char* name, auto use) {
    if (PyObject* value = state.find(name); value && value != Py_None) use(value);
  };
  with("d", [&](PyObject* o) { s.d = tensor_of(o); });
  with("t", [&](PyObject* o) { s.t = real_of(o); });
  with("old_dirs", [&](PyObject* o) { s.old_dirs = list_of<Tensor>(o, tensor_of); });
  with("old_stps", [&](PyObject* o) { s.old_stps = list_of<Tensor>(o, tensor_of); });
  with("ro", [&](PyObject* o) { s.ro = list_of<Real>(o, real_of); });
  with("al", [&](PyObject* o) { s.al = list_of<Real>(o, real_of); });
  with("H_diag", [&](PyObject* o) { s.h_diag = real_of(o); });
  with("prev_flat_grad", [&](PyObject* o) { s.prev_flat_grad = tensor_of(o); });
  with("prev_loss", [&](PyObject* o) { s.prev_loss = real_from_object(o); });
  return s;
}

static void put(PyObject* dict, const char* name, PyObject* value) {
  Owned owned(checked(value));
  if (PyDict_SetItemString(dict, name, owned.get()) < 0) throw PythonError();
}

static void write_state(PyObject* dict, const LBFGSState& s) {
  put(dict, "func_evals", PyLong_FromLongLong(s.func_evals));
  put(dict, "n_iter", PyLong_FromLongLong(s.n_iter));
  if (!s.d.defined()) return;
  const auto scratch = [](const Real& r) { return r.is_tensor() ? object_of(r) : Py_NewRef(Py_None); };
  if (!s.al.empty()) put(dict, "al", new_list(s.al, scratch));
  put(dict, "d", wrap(s.d));
  put(dict, "t", object_of(s.t));
  const auto wrapped = [](const Tensor& t) { return wrap(t); };
  put(dict, "old_dirs", new_list(s.old_dirs, wrapped));
  put(dict, "old_stps", new_list(s.old_stps, wrapped));
  put(dict, "ro", new_list(s.ro, object_of));
  put(dict, "H_diag", s.h_diag.is_tensor() ? object_of(s.h_diag) : PyLong_FromLong(1));
  put(dict, "prev_flat_grad", wrap(s.prev_flat_grad));
  put(dict, "prev_loss", PyFloat_FromDouble(s.prev_loss));
}

// (params, group, state, closure) -> what the first call of the closure has returned.
PyObject* lbfgs_step(PyObject*, PyObject* const* args, Py_ssize_t nargs) try {
  MICA_CHECK_KIND(nargs == 4, Type, "expected params, a group, a state and a closure");
  const std::vector<Tensor> params = list_of<Tensor>(args[0], tensor_of);
  const OptionDict group(args[1]);
  optim::LBFGSOptions options;
  options.lr = group.number("lr");
  options.max_iter = group.integer("max_iter");
  options.max_eval = group.integer("max_eval");
  options.tolerance_grad = group.real("tolerance_grad");
  options.tolerance_change = group.real("tolerance_change");
  options.history_size = group.integer("history_size");
  if (PyObject* search = group.find("line_search_fn"); search && search != Py_None) {
    MICA_CHECK(PyUnicode_Check(search) && PyUnicode_CompareWithASCIIString(search, "strong_wolfe") == 0,
               "only 'strong_wolfe' is supported");
    options.strong_wolfe = true;
  }
  LBFGSState state = read_state(args[2]);
  Owned first;
  optim::lbfgs_step(params, state, options, [&] {
    Owned loss(checked(PyObject_CallNoArgs(args[3])));
    const NoGradGuard no_grad;  // as torch reads it, without a warning about a number that has a gradient
    const double value = real_from_object(loss.get());
    if (!first) first = std::move(loss);
    return value;
  });
  write_state(args[2], state);
  return first.release();
} catch (...) {
  return raise_current_exception();
}

}  // namespace mica::python
