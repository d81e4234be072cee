// The states and options of optimizers as torch's state_dict has them.
#include "mica/optim/optimizer.h"
#include "optim/fields.h"

namespace mica::optim {

double Optimizer::initial_lr(size_t group) {
  if (initial_lrs_.size() <= group) initial_lrs_.resize(group + 1);
  if (!initial_lrs_[group]) initial_lrs_[group] = lr(group);
  return *initial_lrs_[group];
}
void Optimizer::set_initial_lr(size_t group, double lr) {
  if (initial_lrs_.size() <= group) initial_lrs_.resize(group + 1);
  initial_lrs_[group] = lr;
}

Value Optimizer::state_dict() const {
  Value states = Value::dict(), groups = Value::list();
  int64_t number = 0;
  for (size_t g = 0; g < num_groups(); ++g) {
    Value numbers = Value::list();
    for (size_t i = 0; i < params(g).size(); ++i, ++number) {
      numbers.push_back(number);
      if (Value own = states_of(g, i); own.size() != 0) states.set(number, std::move(own));
    }
    Value group = options_of(g);
    if (g < initial_lrs_.size() && initial_lrs_[g]) group.set("initial_lr", *initial_lrs_[g]);
    group.set("params", std::move(numbers));
    groups.push_back(std::move(group));
  }
  return Value::dict({{"state", std::move(states)}, {"param_groups", std::move(groups)}});
}

void Optimizer::load_state_dict(const Value& state) {
  const Value &states = state.at("state"), &groups = state.at("param_groups");
  MICA_CHECK_KIND(groups.size() == num_groups(), Value, "loaded state dict has a different number of parameter groups");
  for (size_t g = 0; g < num_groups(); ++g)
    MICA_CHECK_KIND(groups[g].at("params").size() == params(g).size(), Value,
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
  const Value nothing = Value::dict();
  for (size_t g = 0; g < num_groups(); ++g) {
    const Value& numbers = groups[g].at("params");
    set_options(g, groups[g]);
    if (const Value* initial = groups[g].find("initial_lr")) set_initial_lr(g, initial->as_double());
    for (size_t i = 0; i < params(g).size(); ++i) {
      const Value* own = states.find(numbers[i]);
      set_states(g, i, own ? *own : nothing);
    }
  }
}

Tensor loaded_state(const Tensor& param, const char* name, const Value& states) {
  const Value* found = states.find(name);
  if (!found || found->is_none()) return {};
  NoGradGuard no_grad;
  const Tensor state = found->is_tensor() ? found->as_tensor() : full({}, found->as_double());
  if (std::string_view(name) == "step" || state.dim() == 0) return state.clone();
  const Tensor moved = param.is_floating_point() ? state.to(param.device(), param.dtype()) : state.to(param.device());
  return moved.is_same(state) ? moved.clone() : moved;
}

// ---- options

static void visit_options(LBFGSOptions& o, Fields& f) {
  f("lr", o.lr);
  f("max_iter", o.max_iter);
  int64_t max_eval = o.max_eval < 0 ? o.max_iter * 5 / 4 : o.max_eval;
  f("max_eval", max_eval);
  o.max_eval = max_eval;
  f("tolerance_grad", o.tolerance_grad);
  f("tolerance_change", o.tolerance_change);
  f("history_size", o.history_size);
  if (!f.loads())
    f.dict().set("line_search_fn", o.strong_wolfe ? Value("strong_wolfe") : Value());
  else if (const Value* name = f.dict().find("line_search_fn"))
    o.strong_wolfe = !name->is_none();
}

template <class Options>
Value options_dict(const Options& options) {
  Fields fields = Fields::writer();
  Options copy = options;
  visit_options(copy, fields);
  return fields.dict();
}
template <class Options>
void load_options(Options& options, const Value& dict) {
  Fields fields = Fields::reader(dict);
  visit_options(options, fields);
}
#define MICA_OPTIONS(Name, name, Item)                              \
  template Value options_dict<Name##Options>(const Name##Options&); \
  template void load_options<Name##Options>(Name##Options&, const Value&);
MICA_FOR_EACH_OPTIMIZER(MICA_OPTIONS)
#undef MICA_OPTIONS

// ---- LBFGS, which keeps its state with its first parameter

static Value to_value(const Real& number) {
  return number.is_tensor() ? Value(number.tensor()) : Value(number.value());
}
static Real to_real(const Value& value) {
  return value.is_tensor() ? Real(value.as_tensor()) : Real(value.as_double());
}
static Value copies_of(const std::vector<Tensor>& tensors) {
  Value list = Value::list();
  for (const Tensor& t : tensors) list.push_back(t);
  return list;
}

Value LBFGS::states_of(size_t, size_t param) const {
  Value states = Value::dict();
  if (param != 0 || !state_.d.defined()) return states;
  states.set("func_evals", state_.func_evals);
  states.set("n_iter", state_.n_iter);
  Value al = Value::list();
  for (int64_t i = 0; i < options_.history_size; ++i)
    al.push_back(static_cast<size_t>(i) < state_.al.size() ? to_value(state_.al[static_cast<size_t>(i)]) : Value());
  states.set("al", std::move(al));
  states.set("d", state_.d);
  states.set("t", to_value(state_.t));
  states.set("old_dirs", copies_of(state_.old_dirs));
  states.set("old_stps", copies_of(state_.old_stps));
  Value ro = Value::list();
  for (const Real& number : state_.ro) ro.push_back(to_value(number));
  states.set("ro", std::move(ro));
  states.set("H_diag", to_value(state_.h_diag));
  states.set("prev_flat_grad", state_.prev_flat_grad);
  states.set("prev_loss", state_.prev_loss);
  return states;
}

void LBFGS::set_states(size_t, size_t param, const Value& states) {
  if (param != 0) return;
  LBFGSState s;
  if (states.find("d")) {
    s.func_evals = states.at("func_evals").as_int();
    s.n_iter = states.at("n_iter").as_int();
    s.d = states.at("d").as_tensor().clone();
    s.t = to_real(states.at("t"));
    s.h_diag = to_real(states.at("H_diag"));
    s.prev_flat_grad = states.at("prev_flat_grad").as_tensor().clone();
    s.prev_loss = to_real(states.at("prev_loss")).value();
    for (const Tensor& t : states.at("old_dirs").as_tensors()) s.old_dirs.push_back(t.clone());
    for (const Tensor& t : states.at("old_stps").as_tensors()) s.old_stps.push_back(t.clone());
    for (const Value& number : states.at("ro").as_list()) s.ro.push_back(to_real(number));
  }
  state_ = std::move(s);
}

Value LBFGS::options_of(size_t) const {
  Fields fields = Fields::writer();
  LBFGSOptions copy = options_;
  visit_options(copy, fields);
  return fields.dict();
}
void LBFGS::set_options(size_t, const Value& options) {
  Fields fields = Fields::reader(options);
  visit_options(options_, fields);
}

}  // namespace mica::optim
