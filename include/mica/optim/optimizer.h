// Optimizers: parameters in groups with their options, and a state for each parameter.
//
//   optim::AdamW adamw(model.parameters(), {.lr = 3e-4, .weight_decay = 0.1});
//   adamw.zero_grad();
//   loss.backward();
//   adamw.step();
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mica/autograd.h"
#include "mica/optim/lbfgs.h"
#include "mica/optim/states.h"

namespace mica::optim {

using Closure = std::function<Tensor()>;  // computes the loss and its gradients

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Changes the parameters once by their gradients. A closure is called first; its loss is returned.
  virtual Tensor step(const Closure& closure = nullptr) = 0;
  void zero_grad(bool set_to_none = true);

  // What schedules ask for, by the group's number.
  virtual size_t num_groups() const = 0;
  virtual TensorList params(size_t group) const = 0;
  virtual double lr(size_t group) const = 0;
  virtual void set_lr(size_t group, double lr) = 0;
  // Momentum, or the first beta; whether there is one.
  virtual bool set_momentum(size_t group, double momentum) = 0;

  // States by "<number of the parameter>.<torch's name>"; parameters count through all groups.
  virtual std::map<std::string, Tensor> state_dict() const = 0;
  virtual void load_state_dict(const std::map<std::string, Tensor>& states) = 0;

 protected:
  Tensor loss_of(const Closure& closure) const;  // undefined without a closure
  void check_new_params(TensorList params) const;
};

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

  std::map<std::string, Tensor> state_dict() const override {
    std::map<std::string, Tensor> states;
    size_t number = 0;
    for (const auto& items : items_)
      for (const Item& item : items) {
        for (const auto& field : state_fields<Item>())
          if ((item.*field.member).defined()) states[std::to_string(number) + "." + field.name] = item.*field.member;
        ++number;
      }
    return states;
  }
  void load_state_dict(const std::map<std::string, Tensor>& states) override {
    size_t number = 0;
    for (auto& items : items_)
      for (Item& item : items) {
        for (const auto& field : state_fields<Item>()) {
          const auto found = states.find(std::to_string(number) + "." + field.name);
          item.*field.member = found == states.end() ? Tensor() : found->second.clone();
        }
        ++number;
      }
  }

 private:
  std::vector<Group> groups_;
  std::vector<std::vector<Item>> items_;  // as the groups' parameters
};

// Throw torch's errors for options that make no sense.
void check_options(const SGDOptions& o);
void check_options(const AdamOptions& o);
void check_options(const AdamaxOptions& o);
void check_options(const NAdamOptions& o);
void check_options(const RAdamOptions& o);
void check_options(const RMSpropOptions& o);
void check_options(const AdagradOptions& o);
void check_options(const AdadeltaOptions& o);
void check_options(const RpropOptions& o);
void check_options(const ASGDOptions& o);
void check_options(const AdafactorOptions& o);
void check_options(const MuonOptions& o);

// Adam whose weight decay shrinks the parameters themselves.
struct AdamWOptions {
  Number lr = 1e-3;
  std::array<Number, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  Number weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false, differentiable = false, capturable = false, fused = false;
};
void adamw_step(std::span<AdamItem> items, const AdamWOptions& options);
void check_options(const AdamWOptions& o);

#define MICA_OPTIMIZER(Name, ItemType, step_function)                             \
  class Name final : public OptimizerOf<Name##Options, ItemType, step_function> { \
    using OptimizerOf<Name##Options, ItemType, step_function>::OptimizerOf;       \
  };
MICA_OPTIMIZER(SGD, SGDItem, sgd_step)
MICA_OPTIMIZER(Adam, AdamItem, adam_step)
MICA_OPTIMIZER(AdamW, AdamItem, adamw_step)
MICA_OPTIMIZER(Adamax, AdamaxItem, adamax_step)
MICA_OPTIMIZER(NAdam, NAdamItem, nadam_step)
MICA_OPTIMIZER(RAdam, RAdamItem, radam_step)
MICA_OPTIMIZER(RMSprop, RMSpropItem, rmsprop_step)
MICA_OPTIMIZER(Adagrad, AdagradItem, adagrad_step)
MICA_OPTIMIZER(Adadelta, AdadeltaItem, adadelta_step)
MICA_OPTIMIZER(Rprop, RpropItem, rprop_step)
MICA_OPTIMIZER(ASGD, ASGDItem, asgd_step)
MICA_OPTIMIZER(Adafactor, AdafactorItem, adafactor_step)
MICA_OPTIMIZER(Muon, MuonItem, muon_step)
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
  std::map<std::string, Tensor> state_dict() const override;
  void load_state_dict(const std::map<std::string, Tensor>& states) override;

 private:
  std::vector<Tensor> params_;
  LBFGSOptions options_;
  LBFGSState state_;
};

}  // namespace mica::optim
