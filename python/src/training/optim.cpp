#include "training/optim.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "mica/core/fork.h"
#include "mica/optim/loss_scale.h"
#include "mica/optim/steps.h"
#include "modes/dispatch_modes.h"
#include "training/optim_rules.h"

namespace mica::python {

// ---- options

// Names of options are literals, and each becomes a Python string once. The lock is for interpreters without a lock of
// their own; no Python code runs under it.
static std::mutex names_mutex;
static HeldOverFork names_held(names_mutex, LockOrder::Settings);

static PyObject* interned(const char* name) {
  static constinit std::unordered_map<const void*, PyObject*>* known = nullptr;
  {
    std::lock_guard lock(names_mutex);
    if (!known) known = new std::unordered_map<const void*, PyObject*>;
    if (const auto found = known->find(name); found != known->end()) return found->second;
  }
  PyObject* made = checked(PyUnicode_InternFromString(name));  // interned, so that all threads get the same object
  std::lock_guard lock(names_mutex);
  return known->emplace(name, made).first->second;
}

PyObject* OptionDict::find(const char* name) const {
  PyObject* value = PyDict_GetItemWithError(dict_, interned(name));
  if (!value && PyErr_Occurred()) throw PythonError();
  return value;
}

PyObject* OptionDict::at(const char* name) const {
  PyObject* value = find(name);
  if (!value) {
    PyErr_SetObject(PyExc_KeyError, interned(name));
    throw PythonError();
  }
  return value;
}

double real_from_object(PyObject* o) {
  if (PyFloat_CheckExact(o)) return PyFloat_AS_DOUBLE(o);
  const double value = PyFloat_AsDouble(o);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

optim::Number number_from_object(PyObject* o) {
  return is_tensor(o) ? optim::Number(unwrap(o)) : optim::Number(real_from_object(o));
}

double OptionDict::real(const char* name) const { return real_from_object(at(name)); }
optim::Number OptionDict::number(const char* name) const { return number_from_object(at(name)); }

int64_t OptionDict::integer(const char* name) const {
  const int64_t value = PyLong_AsLongLong(at(name));
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

bool OptionDict::flag(const char* name) const {
  PyObject* value = find(name);
  if (!value || value == Py_False || value == Py_None) return false;
  const int truth = PyObject_IsTrue(value);
  if (truth < 0) throw PythonError();
  return truth;
}

// ---- a rule over parameter groups

static void check_placement(const Tensor& param, bool capturable, bool fused) {
  if (fused && (!param.is_floating_point() || param.is_meta()))
    fail(
        cat("`fused=True` requires all the params to be floating point Tensors of supported devices: ['mps', 'cuda', "
            "'xpu', 'hpu', 'cpu', 'mtia'] but torch.",
            param.dtype(), " and ", device_type_name(param.device().type())));
  if (capturable && (param.is_cpu() || param.is_meta())) {
    PyErr_SetString(PyExc_AssertionError,
                    "If capturable=True, params and state_steps must be on supported devices: ['cuda', 'xpu', 'hpu', "
                    "'privateuseone', 'xla'].");
    throw PythonError();
  }
}

static Tensor state_tensor(PyObject* value, const char* name) {
  MICA_CHECK(is_tensor(value) || std::string_view(name) != "step",
             "API has changed, `state_steps` argument must contain a list of singleton tensors");
  MICA_CHECK_KIND(is_tensor(value), Type, "the optimizer's state '", name, "' must be a Tensor, not ",
                  Py_TYPE(value)->tp_name);
  return unwrap(value);
}

// The dict of a parameter's states, made where there is none, as defaultdict does.
static Owned state_of(PyObject* state, PyObject* param) {
  PyObject* found = PyDict_Check(state) ? PyDict_GetItemWithError(state, param) : nullptr;
  if (!found && PyErr_Occurred()) throw PythonError();
  Owned dict = found ? Owned::borrow(found) : Owned(checked(PyObject_GetItem(state, param)));
  MICA_CHECK_KIND(PyDict_Check(dict.get()), Type, "the optimizer's state of a parameter must be a dict, not ",
                  Py_TYPE(dict.get())->tp_name);
  return dict;
}

struct Unfinished {
  size_t item;
  Owned dict;
};

// Whether a class answers for what is computed with a parameter or its gradient.
template <class Item>
ClassPass::Wanted class_pass(const std::vector<Item>& items) {
  for (const Item& item : items)
    if (is_of_dispatched_class(item.param) || is_of_dispatched_class(item.grad)) return ClassPass::Wanted::Yes;
  return ClassPass::Wanted::No;
}

template <class Item>
void unscale(std::vector<Item>& items, const Tensor& grad_scale) {
  NoGradGuard no_grad;
  for (Item& item : items) item.grad.div_(grad_scale);
}

template <class Rule>
void step_group(PyObject* group_object, PyObject* state, const Tensor& grad_scale) {
  using Item = typename Rule::Item;
  const OptionDict group(group_object);
  const auto options = Rule::options(group);
  Owned params(checked(PySequence_Fast(group.at("params"), "params must be a list")));
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(params.get());
  std::vector<Item> items;
  std::vector<Unfinished> unfinished;  // items whose state is made by the step
  items.reserve(static_cast<size_t>(count));
  int64_t elements = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* param = PySequence_Fast_GET_ITEM(params.get(), i);
    MICA_CHECK_KIND(is_tensor(param), Type, "optimizer can only optimize Tensors, but one of the params is ",
                    Py_TYPE(param)->tp_name);
    const Tensor& p = unwrap(param);
    Tensor grad = p.grad();
    if (!grad.defined()) continue;
    check_placement(p, Rule::capturable(options), Rule::fused(options));
    Item& item = items.emplace_back();
    item.param = p;
    item.grad = std::move(grad);
    elements += p.numel();
    if (!optim::has_state(options)) continue;
    Owned dict = state_of(state, param);
    bool complete = true;
    for (const auto& field : Rule::fields()) {
      PyObject* value = PyDict_GetItemWithError(dict.get(), field.key);
      if (value && value != Py_None) {
        item.*field.member = state_tensor(value, field.name);
      } else {
        complete = false;
      }
    }
    if (!complete) unfinished.push_back({items.size() - 1, std::move(dict)});
  }
  if (items.empty()) return;

  {
    const ClassPass classes(class_pass(items));
    Unlocked unlocked(elements > kUnlockElements);
    if (grad_scale.defined()) unscale(items, grad_scale);
    Rule::step(items, options);
  }
  for (const Unfinished& u : unfinished) {
    for (const auto& field : Rule::fields()) {
      const Tensor& made = items[u.item].*field.member;
      PyObject* present = PyDict_GetItemWithError(u.dict.get(), field.key);
      if (!present && PyErr_Occurred()) throw PythonError();
      if (!made.defined() || (present && present != Py_None)) continue;  // a loaded state may say None
      Owned object(checked(wrap(made)));
      if (PyDict_SetItem(u.dict.get(), field.key, object.get()) < 0) throw PythonError();
    }
  }
}

// (param_groups, state, grad_scale=None, found_inf=None). The last two come from a GradScaler: gradients are divided by
// grad_scale, and nothing happens if found_inf is not zero.
template <class Rule>
PyObject* step_groups(PyObject*, PyObject* const* args, Py_ssize_t nargs) try {
  MICA_CHECK_KIND(nargs >= 2 && nargs <= 4, Type, "expected param_groups, state and at most a scale and a flag");
  const auto given = [&](Py_ssize_t i) { return nargs > i && args[i] != Py_None; };
  if (given(3) && state_tensor(args[3], "found_inf").item().to_double() != 0) Py_RETURN_NONE;
  const Tensor scale = given(2) ? state_tensor(args[2], "grad_scale") : Tensor();
  Owned groups(checked(PySequence_Fast(args[0], "param_groups must be a list")));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(groups.get()); ++i)
    step_group<Rule>(PySequence_Fast_GET_ITEM(groups.get(), i), args[1], scale);
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// ---- the same over lists, for the functions beside torch's classes

// (options, params, grads, a list for each state, grad_scale=None, found_inf=None): states that are made are put into
// their lists; the last two are as in step_groups.
template <class Rule>
PyObject* step_lists(PyObject*, PyObject* const* args, Py_ssize_t nargs) try {
  using Item = typename Rule::Item;
  const auto& fields = Rule::fields();
  const auto lists = static_cast<Py_ssize_t>(fields.size()) + 3;
  MICA_CHECK_KIND(nargs == lists || nargs == lists + 2, Type, "expected options, params, grads, ", fields.size(),
                  " lists of states and perhaps a scale and a flag");
  const auto given = [&](Py_ssize_t i) { return nargs > i && args[i] != Py_None; };
  if (given(lists + 1) && state_tensor(args[lists + 1], "found_inf").item().to_double() != 0) Py_RETURN_NONE;
  const Tensor scale = given(lists) ? state_tensor(args[lists], "grad_scale") : Tensor();
  const auto options = Rule::options(OptionDict(args[0]));
  for (Py_ssize_t i = 1; i < lists; ++i) MICA_CHECK_KIND(PyList_Check(args[i]), Type, "expected lists of tensors");
  std::vector<Item> items(static_cast<size_t>(PyList_GET_SIZE(args[1])));
  const auto entry = [&](size_t list, size_t i) -> PyObject* {
    if (static_cast<Py_ssize_t>(i) >= PyList_GET_SIZE(args[list])) return Py_None;
    return PyList_GET_ITEM(args[list], static_cast<Py_ssize_t>(i));
  };
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].param = state_tensor(entry(1, i), "params");
    items[i].grad = state_tensor(entry(2, i), "grads");
    check_placement(items[i].param, Rule::capturable(options), Rule::fused(options));
    for (size_t f = 0; f < fields.size(); ++f) {
      PyObject* value = entry(3 + f, i);
      if (value != Py_None) items[i].*fields[f].member = state_tensor(value, fields[f].name);
    }
  }
  {
    const ClassPass classes(class_pass(items));
    if (scale.defined()) unscale(items, scale);
    Rule::step(items, options);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t f = 0; f < fields.size(); ++f) {
      const Tensor& made = items[i].*fields[f].member;
      if (!made.defined() || entry(3 + f, i) != Py_None) continue;
      if (static_cast<Py_ssize_t>(i) >= PyList_GET_SIZE(args[3 + f])) continue;
      if (PyList_SetItem(args[3 + f], static_cast<Py_ssize_t>(i), checked(wrap(made))) < 0) throw PythonError();
    }
  }
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// ---- what is no rule

using Adagrad = RuleOf<optim::AdagradItem, optim::AdagradOptions, optim::adagrad_step>;

// Adagrad's state is made with the optimizer: (param_groups, state).
static PyObject* adagrad_init(PyObject*, PyObject* const* args, Py_ssize_t nargs) try {
  MICA_CHECK_KIND(nargs == 2, Type, "expected param_groups and state");
  Owned groups(checked(PySequence_Fast(args[0], "param_groups must be a list")));
  for (Py_ssize_t g = 0; g < PySequence_Fast_GET_SIZE(groups.get()); ++g) {
    const OptionDict group(PySequence_Fast_GET_ITEM(groups.get(), g));
    const auto options = Adagrad::options(group);
    Owned params(checked(PySequence_Fast(group.at("params"), "params must be a list")));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(params.get()); ++i) {
      PyObject* param = PySequence_Fast_GET_ITEM(params.get(), i);
      optim::AdagradItem item{state_tensor(param, "params"), {}, {}, {}};
      {
        NoGradGuard no_grad;
        const ClassPass classes(class_pass(std::vector{item}));
        optim::adagrad_init(item, options);
      }
      Owned dict = state_of(args[1], param);
      for (const auto& field : Adagrad::fields()) {
        Owned object(checked(wrap(item.*field.member)));
        if (PyDict_SetItem(dict.get(), field.key, object.get()) < 0) throw PythonError();
      }
    }
  }
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static void clear_gradient(const Tensor& param, bool set_to_none) {
  const Tensor grad = param.grad();
  if (!grad.defined()) return;
  if (set_to_none) return param.set_grad(Tensor());
  if (grad.grad_fn()) {
    autograd::detach_in_place(grad);
  } else {
    grad.requires_grad_(false);
  }
  NoGradGuard no_grad;
  const ClassPass classes(is_of_dispatched_class(grad) ? ClassPass::Wanted::Yes : ClassPass::Wanted::No);
  grad.zero_();
}

// (param_groups, set_to_none)
static PyObject* zero_grad(PyObject*, PyObject* const* args, Py_ssize_t nargs) try {
  MICA_CHECK_KIND(nargs == 2, Type, "expected param_groups and set_to_none");
  const int set_to_none = PyObject_IsTrue(args[1]);
  if (set_to_none < 0) return nullptr;
  Owned groups(checked(PySequence_Fast(args[0], "param_groups must be a list")));
  for (Py_ssize_t g = 0; g < PySequence_Fast_GET_SIZE(groups.get()); ++g) {
    const OptionDict group(PySequence_Fast_GET_ITEM(groups.get(), g));
    Owned params(checked(PySequence_Fast(group.at("params"), "params must be a list")));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(params.get()); ++i)
      clear_gradient(state_tensor(PySequence_Fast_GET_ITEM(params.get(), i), "params"), set_to_none);
  }
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// ---- GradScaler's two operations

// (gradients, found_inf, inv_scale)
static PyObject* unscale_gradients(PyObject*, PyObject* const* args, Py_ssize_t nargs) try {
  MICA_CHECK_KIND(nargs == 3, Type, "_amp_foreach_non_finite_check_and_unscale_() takes 3 arguments");
  Owned list(checked(PySequence_Fast(args[0], "expected a list of tensors")));
  std::vector<Tensor> gradients;
  int64_t elements = 0;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
    gradients.push_back(state_tensor(PySequence_Fast_GET_ITEM(list.get(), i), "gradient"));
    elements += gradients.back().numel();
  }
  const Tensor found = state_tensor(args[1], "found_inf"), scale = state_tensor(args[2], "inv_scale");
  {
    const bool asks = std::any_of(gradients.begin(), gradients.end(), is_of_dispatched_class);
    const ClassPass classes(asks ? ClassPass::Wanted::Yes : ClassPass::Wanted::No);
    Unlocked unlocked(elements > kUnlockElements);
    optim::unscale_gradients(gradients, found, scale);
  }
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// (scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval)
static PyObject* update_scale(PyObject*, PyObject* const* args, Py_ssize_t nargs) try {
  MICA_CHECK_KIND(nargs == 6, Type, "_amp_update_scale_() takes 6 arguments");
  const int64_t interval = PyLong_AsLongLong(args[5]);
  if (interval == -1 && PyErr_Occurred()) return nullptr;
  optim::update_scale(state_tensor(args[0], "scale"), state_tensor(args[1], "growth_tracker"),
                      state_tensor(args[2], "found_inf"), real_from_object(args[3]), real_from_object(args[4]),
                      interval);
  return Py_NewRef(args[0]);
} catch (...) {
  return raise_current_exception();
}

bool add_optim(PyObject* module) {
#define MICA_RULE(Name, name, Item)                                                                                 \
  {"_" #name "_step", as_cfunction(step_groups<RuleOf<optim::Item, optim::Name##Options, optim::name##_step>>),     \
   METH_FASTCALL, nullptr},                                                                                         \
      {"_" #name "_lists", as_cfunction(step_lists<RuleOf<optim::Item, optim::Name##Options, optim::name##_step>>), \
       METH_FASTCALL, nullptr},
  static PyMethodDef functions[] = {
      MICA_FOR_EACH_RULE(MICA_RULE)  // _sgd_step, _sgd_lists...: those of ops/optim/
      {"_adagrad_init", as_cfunction(adagrad_init), METH_FASTCALL, nullptr},
      {"_lbfgs_step", as_cfunction(lbfgs_step), METH_FASTCALL, nullptr},
      {"_optimizer_zero_grad", as_cfunction(zero_grad), METH_FASTCALL, nullptr},
      {"_amp_foreach_non_finite_check_and_unscale_", as_cfunction(unscale_gradients), METH_FASTCALL, nullptr},
      {"_amp_update_scale_", as_cfunction(update_scale), METH_FASTCALL, nullptr},
      {}};
#undef MICA_RULE
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
