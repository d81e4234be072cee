// Modules that hold others, or parameters.
#pragma once

#include "mica/nn/module.h"

namespace mica::nn {

namespace detail {

// A module of a Sequential, by name.
struct NamedStep {
  template <Holder H>
  NamedStep(std::string name, const H& holder)
      : name(std::move(name)), module(holder), step(step_of<typename H::Impl>) {}

  template <class M>
  static Tensor step_of(Module& m, const Tensor& x) {
    return static_cast<M&>(m).forward(x);
  }

  std::string name;
  std::shared_ptr<Module> module;
  Step step;
};

}  // namespace detail

// Modules that run one after the other; each takes a tensor and returns one. Written in braces, Sequential{Linear(4,
// 3), ReLU()}, they are made from first to last and draw their initial values as in Python; in parentheses, compilers
// may take another order. With names: Sequential({{"project", Linear(4, 3)}, {"bend", ReLU()}}).
class SequentialImpl : public Module {
 public:
  SequentialImpl() = default;
  explicit SequentialImpl(std::initializer_list<detail::NamedStep> steps);
  template <Holder... Modules>
  requires(sizeof...(Modules) > 0) explicit SequentialImpl(const Modules&... modules) { (push_back(modules), ...); }

  template <Holder H>
  void push_back(const H& module) {
    push_back(std::to_string(size()), module);
  }
  template <Holder H>
  void push_back(std::string name, const H& module) {
    add({std::move(name), module});
  }
  // Modules that were not made through a handle: push_back(std::make_shared<Block>(64)).
  template <std::derived_from<Module> M>
  void push_back(std::shared_ptr<M> module) {
    push_back(ModuleHolder<M>(std::move(module)));
  }
  void extend(const SequentialImpl& other);  // shares the modules of `other`, which get the next numbers here
  Tensor forward(const Tensor& x);
  size_t size() const { return steps_.size(); }
  bool is_empty() const { return steps_.empty(); }
  const std::shared_ptr<Module>& operator[](size_t i) const { return named_children().at(i).second; }
  // The module in its own type: net->at<nn::Linear>(0).weight. Throws if it is of another type.
  template <class M>
  auto& at(size_t i) const {
    auto* module = (*this)[i]->template as<M>();
    MICA_CHECK_KIND(module, Type, "module ", i, " of the Sequential is a ", (*this)[i]->name(),
                    ", not what is asked for");
    return *module;
  }
  std::shared_ptr<Module> clone() const override;

 private:
  void add(detail::NamedStep step);
  void add(std::string name, std::shared_ptr<Module> module, detail::Step step);

  std::vector<detail::Step> steps_;  // in the order of the children
};
class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  Sequential(std::initializer_list<detail::NamedStep> steps)
      : ModuleHolder<SequentialImpl>(std::make_shared<SequentialImpl>(steps)) {}
};

// A function as a module, for a Sequential: Functional(relu), Functional([](const Tensor& x) { return x.mean(1); }).
class FunctionalImpl : public Module {
 public:
  explicit FunctionalImpl(std::function<Tensor(const Tensor&)> function) : function_(std::move(function)) {}
  Tensor forward(const Tensor& x) { return function_(x); }

 private:
  std::function<Tensor(const Tensor&)> function_;
};
class Functional : public ModuleHolder<FunctionalImpl> {
 public:
  using ModuleHolder<FunctionalImpl>::ModuleHolder;
  Functional(Tensor (*function)(const Tensor&))
      : ModuleHolder<FunctionalImpl>(std::function<Tensor(const Tensor&)>(function)) {}
};

// Prints equal neighbours once, with their number.
class ModuleListBase : public Module {
 public:
  ModuleListBase() : Module("ModuleList") {}
  std::string repr() const override;
};

// Modules of one kind by number.
template <class H>
class ModuleListImpl : public ModuleListBase {
 public:
  ModuleListImpl() = default;
  explicit ModuleListImpl(const std::vector<H>& modules) {
    for (const H& m : modules) push_back(m);
  }
  void push_back(const H& module) { list_.push_back(register_module(std::to_string(size()), module)); }
  template <class List>
  void extend(const List& modules) {
    for (const H& m : modules) push_back(m);
  }
  const H& operator[](size_t i) const { return list_.at(i); }
  size_t size() const { return list_.size(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  std::shared_ptr<Module> clone() const override {
    auto copy = std::make_shared<ModuleListImpl>();
    for (const H& m : list_) copy->push_back(nn::clone(m));
    copy->copy_own_state(*this);
    return copy;
  }

 private:
  std::vector<H> list_;
};
template <class H>
class ModuleList : public ModuleHolder<ModuleListImpl<H>> {
 public:
  using ModuleHolder<ModuleListImpl<H>>::ModuleHolder;
  const H& operator[](size_t i) const { return (**this)[i]; }
  size_t size() const { return (**this).size(); }
  auto begin() const { return (**this).begin(); }
  auto end() const { return (**this).end(); }
};

// Modules of one kind by name.
template <class H>
class ModuleDictImpl : public Module {
 public:
  ModuleDictImpl() : Module("ModuleDict") {}
  explicit ModuleDictImpl(const std::vector<std::pair<std::string, H>>& modules) : ModuleDictImpl() {
    for (const auto& [name, module] : modules) insert(name, module);
  }
  void insert(const std::string& name, const H& module) { map_.emplace_back(name, register_module(name, module)); }
  bool contains(const std::string& name) const { return find(name) != nullptr; }
  const H& operator[](const std::string& name) const {
    const H* found = find(name);
    MICA_CHECK_KIND(found, Index, "ModuleDict has no module '", name, "'");
    return *found;
  }
  size_t size() const { return map_.size(); }
  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }
  std::shared_ptr<Module> clone() const override {
    auto copy = std::make_shared<ModuleDictImpl>();
    for (const auto& [name, module] : map_) copy->insert(name, nn::clone(module));
    copy->copy_own_state(*this);
    return copy;
  }

 private:
  const H* find(const std::string& name) const {
    for (const auto& [known, module] : map_)
      if (known == name) return &module;
    return nullptr;
  }
  std::vector<std::pair<std::string, H>> map_;
};
template <class H>
class ModuleDict : public ModuleHolder<ModuleDictImpl<H>> {
 public:
  using ModuleHolder<ModuleDictImpl<H>>::ModuleHolder;
  const H& operator[](const std::string& name) const { return (**this)[name]; }
  auto begin() const { return (**this).begin(); }
  auto end() const { return (**this).end(); }
};

// Parameters by number.
class ParameterListImpl : public Module {
 public:
  ParameterListImpl() = default;
  explicit ParameterListImpl(TensorList parameters);
  void append(const Tensor& parameter);
  const Tensor& operator[](size_t i) const { return list_.at(i); }
  size_t size() const { return list_.size(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  std::string extra_repr() const override;
  std::shared_ptr<Module> clone() const override;

 private:
  std::vector<Tensor> list_;
};
class ParameterList : public ModuleHolder<ParameterListImpl> {
 public:
  using ModuleHolder<ParameterListImpl>::ModuleHolder;
  const Tensor& operator[](size_t i) const { return (**this)[i]; }
  size_t size() const { return (**this).size(); }
  auto begin() const { return (**this).begin(); }
  auto end() const { return (**this).end(); }
};

// Parameters by name.
class ParameterDictImpl : public Module {
 public:
  ParameterDictImpl() = default;
  explicit ParameterDictImpl(const NamedTensors& parameters);
  void insert(const std::string& name, const Tensor& parameter);
  bool contains(const std::string& name) const;
  const Tensor& operator[](const std::string& name) const;
  size_t size() const { return map_.size(); }
  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }
  std::string extra_repr() const override;
  std::shared_ptr<Module> clone() const override;

 private:
  NamedTensors map_;
};
class ParameterDict : public ModuleHolder<ParameterDictImpl> {
 public:
  using ModuleHolder<ParameterDictImpl>::ModuleHolder;
  const Tensor& operator[](const std::string& name) const { return (**this)[name]; }
  auto begin() const { return (**this).begin(); }
  auto end() const { return (**this).end(); }
};

}  // namespace mica::nn
