// Modules that hold others, or parameters.
#pragma once

#include "mica/nn/module.h"

namespace mica::nn {

// Modules that run one after the other; each takes a tensor and returns one. Written in braces, Sequential{Linear(4,
// 3), ReLU()}, they are made from first to last and draw their initial values as in Python; in parentheses, compilers
// may take another order.
class SequentialImpl : public Module {
 public:
  SequentialImpl() = default;
  template <Holder... Modules>
  requires(sizeof...(Modules) > 0) explicit SequentialImpl(const Modules&... modules) { (push_back(modules), ...); }

  template <Holder H>
  void push_back(const H& module) {
    push_back(std::to_string(size()), module);
  }
  template <Holder H>
  void push_back(std::string name, const H& module) {
    add(std::move(name), module.shared(),
        [](Module& m, const Tensor& x) -> Tensor { return static_cast<typename H::Impl&>(m).forward(x); });
  }
  Tensor forward(const Tensor& x);
  size_t size() const { return steps_.size(); }
  std::shared_ptr<Module> operator[](size_t i) const { return named_children().at(i).second; }
  std::shared_ptr<Module> clone() const override;

 private:
  using Step = Tensor (*)(Module& module, const Tensor& x);
  void add(std::string name, std::shared_ptr<Module> module, Step step);

  std::vector<Step> steps_;  // as the children
};
MICA_MODULE(Sequential);

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
