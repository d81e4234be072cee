// Optimizers: parameters in groups with their options, and a state for each parameter.
//
//   optim::AdamW adamw(model.parameters(), {.lr = 3e-4, .weight_decay = 0.1});
//   adamw.zero_grad();
//   loss.backward();
//   adamw.step();
//   save(Value::dict({{"model", model.state_dict()}, {"optimizer", adamw.state_dict()}}), "checkpoint.pt");
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mica/autograd.h"
#include "mica/optim/lbfgs.h"
#include "mica/optim/steps.h"
#include "mica/serialize.h"

namespace mica::optim {

using Closure = std::function<Tensor()>;  // computes the loss and its gradients

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Changes the parameters once by their gradients. A closure is called first; its loss is returned.
  virtual Tensor step(const Closure& closure = nullptr) = 0;
  void zero_grad(bool set_to_none = true);

  // For schedules, which name a group by its number.
  virtual size_t num_groups() const = 0;
  virtual TensorList params(size_t group) const = 0;
  virtual double lr(size_t group) const = 0;
  virtual void set_lr(size_t group, double lr) = 0;
  // Sets momentum, or the first beta. Returns whether the optimizer has one.
  virtual bool set_momentum(size_t group, double momentum) = 0;

  // The rate from which schedules compute theirs: the rate when the first of them was made.
  double initial_lr(size_t group);
  void set_initial_lr(size_t group, double lr);

  // States and options as Python's optimizer of that name has them, in whichever language they are loaded. Whether they
  // fit is checked before anything is changed.
  Value state_dict() const;
  void load_state_dict(const Value& state);
  void save(const std::string& path) const { mica::save(state_dict(), path); }
  void load(const std::string& path) { load_state_dict(mica::load(path)); }

 protected:
  // The states of a parameter, and the options of its group, each as a dict.
  virtual Value states_of(size_t group, size_t param) const = 0;
  virtual void set_states(size_t group, size_t param, const Value& states) = 0;
  virtual Value options_of(size_t group) const = 0;
  virtual void set_options(size_t group, const Value& options) = 0;
  Tensor loss_of(const Closure& closure) const;  // undefined without a closure
  void check_new_params(TensorList params) const;

 private:
  std::vector<std::optional<double>> initial_lrs_;
};

// Visits the options of a group under torch's names. Loading changes those that are there.
template <class Options>
Value options_dict(const Options& options);
template <class Options>
void load_options(Options& options, const Value& dict);
// A saved state, brought to the parameter's device and, if it is floating, to its dtype. Counters stay as they are.
Tensor loaded_state(const Tensor& param, const char* name, const Value& states);

template <class OptionsType, class ItemType, void (*kStep)(std::span<ItemType>, const OptionsType&)>
class OptimizerOf : public Optimizer {
 public:
  using Options = OptionsType;
  using Item = ItemType;
  struct Group {
    std::vector<Tensor> params;
    Options options;
  };

  explicit OptimizerOf(std::vector<Tensor> params, Options options = {}) {
    add_param_group(std::move(params), std::move(options));
  }
  explicit OptimizerOf(std::vector<Group> groups) {
    MICA_CHECK_KIND(!groups.empty(), Value, "optimizer got an empty parameter list");
    for (Group& g : groups) add_param_group(std::move(g.params), std::move(g.options));
  }

  void add_param_group(std::vector<Tensor> params, Options options = {}) {
    check_options(options);
    check_new_params(params);
    std::vector<Item> items(params.size());
    for (size_t i = 0; i < params.size(); ++i) items[i].param = params[i];
    groups_.push_back({std::move(params), std::move(options)});
    items_.push_back(std::move(items));
  }
  std::vector<Group>& param_groups() { return groups_; }

  Tensor step(const Closure& closure = nullptr) override {
    Tensor loss = loss_of(closure);
    std::vector<Item> with_gradient;
    std::vector<Item*> places;
    for (size_t g = 0; g < groups_.size(); ++g) {
      with_gradient.clear();
      places.clear();
      for (Item& item : items_[g]) {
        item.grad = item.param.grad();
        if (!item.grad.defined()) continue;
        with_gradient.push_back(item);
        places.push_back(&item);
      }
      kStep(with_gradient, groups_[g].options);
      for (size_t i = 0; i < places.size(); ++i) {
        *places[i] = with_gradient[i];
        places[i]->grad = {};
      }
    }
    return loss;
  }

  size_t num_groups() const override { return groups_.size(); }
  TensorList params(size_t group) const override { return groups_.at(group).params; }
  double lr(size_t group) const override { return groups_.at(group).options.lr.value(); }
  void set_lr(size_t group, double lr) override { groups_.at(group).options.lr = lr; }
  bool set_momentum(size_t group, double momentum) override {
    auto& options = groups_.at(group).options;
    if constexpr (requires { options.betas; }) {
      options.betas[0] = momentum;
      return true;
    } else if constexpr (requires { options.momentum; }) {
      options.momentum = momentum;
      return true;
    }
    return false;
  }

 private:
  Value states_of(size_t group, size_t param) const override {
    const Item& item = items_[group][param];
    Value states = Value::dict();
    for (const auto& field : state_fields<Item>())
      if (const Tensor& state = item.*field.member; state.defined()) states.set(field.name, state);
    return states;
  }
  void set_states(size_t group, size_t param, const Value& states) override {
    Item& item = items_[group][param];
    for (const auto& field : state_fields<Item>()) item.*field.member = loaded_state(item.param, field.name, states);
  }
  Value options_of(size_t group) const override { return options_dict(groups_[group].options); }
  void set_options(size_t group, const Value& options) override { load_options(groups_[group].options, options); }

  std::vector<Group> groups_;
  std::vector<std::vector<Item>> items_;  // one for each parameter of each group
};

#define MICA_OPTIMIZER(Name, name, ItemType)                                    \
  class Name final : public OptimizerOf<Name##Options, ItemType, name##_step> { \
    using OptimizerOf<Name##Options, ItemType, name##_step>::OptimizerOf;       \
  };
MICA_FOR_EACH_OPTIMIZER(MICA_OPTIMIZER)  // SGD, Adam, AdamW...: those of ops/optim/
#undef MICA_OPTIMIZER

// One group; step() needs a closure, which it calls several times.
class LBFGS final : public Optimizer {
 public:
  explicit LBFGS(std::vector<Tensor> params, LBFGSOptions options = {});
  Tensor step(const Closure& closure) override;

  size_t num_groups() const override { return 1; }
  TensorList params(size_t) const override { return params_; }
  double lr(size_t) const override { return options_.lr.value(); }
  void set_lr(size_t, double lr) override { options_.lr = lr; }
  bool set_momentum(size_t, double) override { return false; }

 private:
  Value states_of(size_t group, size_t param) const override;
  void set_states(size_t group, size_t param, const Value& states) override;
  Value options_of(size_t group) const override;
  void set_options(size_t group, const Value& options) override;
  std::vector<Tensor> params_;
  LBFGSOptions options_;
  LBFGSState state_;
};

}  // namespace mica::optim
