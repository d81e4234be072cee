// What the bindings know of each optimizer: how its options stand in a parameter group.
#pragma once

#include <vector>

#include "mica/optim/states.h"
#include "optim.h"

namespace mica::python {

// A state of an optimizer with its name as a Python string.
template <class Item>
struct StateKey : optim::StateField<Item> {
  PyObject* key;
};

template <class ItemType, class OptionsType, void (*kStep)(std::span<ItemType>, const OptionsType&)>
struct RuleOf {
  using Item = ItemType;
  using Options = OptionsType;
  static void step(std::vector<Item>& items, const Options& o) { kStep(items, o); }
  static bool has_state(const Options&) { return true; }
  static const std::vector<StateKey<Item>>& fields() {
    static const std::vector<StateKey<Item>> list = [] {
      std::vector<StateKey<Item>> keys;
      for (const auto& field : optim::state_fields<Item>())
        keys.push_back({field, PyUnicode_InternFromString(field.name)});
      return keys;
    }();
    return list;
  }
  static bool capturable(const Options& o) {
    if constexpr (requires { o.capturable; }) return o.capturable;
    return false;
  }
  static bool fused(const Options& o) {
    if constexpr (requires { o.fused; }) return o.fused;
    return false;
  }
  static void read_flags(Options& o, const OptionDict& group) {
    o.maximize = group.flag("maximize");
    o.differentiable = group.flag("differentiable");
    o.capturable = group.flag("capturable");
    o.fused = group.flag("fused");
  }
  static std::array<optim::Number, 2> betas(const OptionDict& group) {
    Owned pair(checked(PySequence_Fast(group.at("betas"), "betas must be a pair of numbers")));
    MICA_CHECK_KIND(PySequence_Fast_GET_SIZE(pair.get()) == 2, Value, "betas must be a pair of numbers");
    return {number_from_object(PySequence_Fast_GET_ITEM(pair.get(), 0)),
            number_from_object(PySequence_Fast_GET_ITEM(pair.get(), 1))};
  }
  template <size_t N>
  static std::array<double, N> reals(const OptionDict& group, const char* name) {
    Owned list(checked(PySequence_Fast(group.at(name), "expected a sequence of numbers")));
    MICA_CHECK_KIND(PySequence_Fast_GET_SIZE(list.get()) == static_cast<Py_ssize_t>(N), Value, name, " must be ", N,
                    " numbers");
    std::array<double, N> result;
    for (size_t i = 0; i < N; ++i) result[i] = real_from_object(PySequence_Fast_GET_ITEM(list.get(), i));
    return result;
  }
};

struct SgdRule : RuleOf<optim::SGDItem, optim::SGDOptions, optim::sgd_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.momentum = g.real("momentum");
    o.dampening = g.real("dampening");
    o.weight_decay = g.number("weight_decay");
    o.nesterov = g.flag("nesterov");
    read_flags(o, g);
    return o;
  }
  static bool has_state(const Options& o) { return o.momentum != 0; }
};

struct AdamRule : RuleOf<optim::AdamItem, optim::AdamOptions, optim::adam_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.betas = betas(g);
    o.eps = g.real("eps");
    o.weight_decay = g.number("weight_decay");
    o.amsgrad = g.flag("amsgrad");
    o.decoupled_weight_decay = g.flag("decoupled_weight_decay");
    read_flags(o, g);
    return o;
  }
};

struct AdamaxRule : RuleOf<optim::AdamaxItem, optim::AdamaxOptions, optim::adamax_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.betas = betas(g);
    o.eps = g.real("eps");
    o.weight_decay = g.number("weight_decay");
    read_flags(o, g);
    return o;
  }
};

struct NadamRule : RuleOf<optim::NAdamItem, optim::NAdamOptions, optim::nadam_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.betas = betas(g);
    o.eps = g.real("eps");
    o.weight_decay = g.number("weight_decay");
    o.momentum_decay = g.real("momentum_decay");
    o.decoupled_weight_decay = g.flag("decoupled_weight_decay");
    read_flags(o, g);
    return o;
  }
};

struct RadamRule : RuleOf<optim::RAdamItem, optim::RAdamOptions, optim::radam_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.betas = betas(g);
    o.eps = g.real("eps");
    o.weight_decay = g.number("weight_decay");
    o.decoupled_weight_decay = g.flag("decoupled_weight_decay");
    read_flags(o, g);
    return o;
  }
};

struct RmspropRule : RuleOf<optim::RMSpropItem, optim::RMSpropOptions, optim::rmsprop_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.alpha = g.real("alpha");
    o.eps = g.real("eps");
    o.weight_decay = g.number("weight_decay");
    o.momentum = g.real("momentum");
    o.centered = g.flag("centered");
    read_flags(o, g);
    return o;
  }
};

struct AdagradRule : RuleOf<optim::AdagradItem, optim::AdagradOptions, optim::adagrad_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.lr_decay = g.real("lr_decay");
    o.eps = g.real("eps");
    o.weight_decay = g.number("weight_decay");
    if (g.has("initial_accumulator_value")) o.initial_accumulator_value = g.real("initial_accumulator_value");
    read_flags(o, g);
    return o;
  }
};

struct AdadeltaRule : RuleOf<optim::AdadeltaItem, optim::AdadeltaOptions, optim::adadelta_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.rho = g.real("rho");
    o.eps = g.real("eps");
    o.weight_decay = g.number("weight_decay");
    read_flags(o, g);
    return o;
  }
};

struct RpropRule : RuleOf<optim::RpropItem, optim::RpropOptions, optim::rprop_step> {
  static Options options(const OptionDict& g) {
    Options o;
    if (g.has("lr")) o.lr = g.number("lr");
    o.etas = reals<2>(g, "etas");
    o.step_sizes = reals<2>(g, "step_sizes");
    read_flags(o, g);
    return o;
  }
};

struct AsgdRule : RuleOf<optim::ASGDItem, optim::ASGDOptions, optim::asgd_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.lambd = g.real("lambd");
    o.alpha = g.real("alpha");
    o.t0 = g.real("t0");
    o.weight_decay = g.number("weight_decay");
    read_flags(o, g);
    return o;
  }
};

struct AdafactorRule : RuleOf<optim::AdafactorItem, optim::AdafactorOptions, optim::adafactor_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.beta2_decay = g.real("beta2_decay");
    Owned eps(checked(PySequence_Tuple(g.at("eps"))));
    MICA_CHECK_KIND(PyTuple_GET_SIZE(eps.get()) == 2, Value, "eps must be a pair");
    if (PyTuple_GET_ITEM(eps.get(), 0) != Py_None) o.eps1 = real_from_object(PyTuple_GET_ITEM(eps.get(), 0));
    o.eps2 = real_from_object(PyTuple_GET_ITEM(eps.get(), 1));
    o.d = g.real("d");
    o.weight_decay = g.real("weight_decay");
    o.maximize = g.flag("maximize");
    return o;
  }
};

struct MuonRule : RuleOf<optim::MuonItem, optim::MuonOptions, optim::muon_step> {
  static Options options(const OptionDict& g) {
    Options o;
    o.lr = g.number("lr");
    o.weight_decay = g.real("weight_decay");
    o.momentum = g.real("momentum");
    o.nesterov = g.flag("nesterov");
    o.ns_coefficients = reals<3>(g, "ns_coefficients");
    o.eps = g.real("eps");
    o.ns_steps = g.integer("ns_steps");
    if (PyObject* how = g.find("adjust_lr_fn"); how && how != Py_None) {
      const char* name = PyUnicode_AsUTF8(how);
      if (!name) throw PythonError();
      o.adjust_lr_fn = name;
    }
    return o;
  }
};

}  // namespace mica::python
