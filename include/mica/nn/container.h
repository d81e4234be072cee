// Modules that hold others.
#pragma once

#include "mica/nn/module.h"

namespace mica::nn {

// Modules that run one after the other. Each takes a tensor and returns one.
class SequentialImpl : public Module {
 public:
  SequentialImpl() = default;
  template <Holder... Modules>
  requires(sizeof...(Modules) > 0) explicit SequentialImpl(Modules... modules) { (push_back(std::move(modules)), ...); }

  template <Holder H>
  void push_back(H module) {
    push_back(std::to_string(steps_.size()), std::move(module));
  }
  template <Holder H>
  void push_back(std::string name, H module) {
    register_module(std::move(name), module);
    steps_.push_back([module](const Tensor& x) -> Tensor { return module(x); });
  }
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (const auto& step : steps_) y = step(y);
    return y;
  }
  size_t size() const { return steps_.size(); }

 private:
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};
MICA_MODULE(Sequential);

// Modules of one kind by number.
template <class H>
class ModuleListOf : public Module {
 public:
  ModuleListOf() : Module("ModuleList") {}
  explicit ModuleListOf(std::vector<H> modules) : ModuleListOf() {
    for (H& m : modules) push_back(std::move(m));
  }
  void push_back(H module) { list_.push_back(register_module(std::to_string(list_.size()), std::move(module))); }
  const H& operator[](size_t i) const { return list_.at(i); }
  size_t size() const { return list_.size(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

 private:
  std::vector<H> list_;
};
template <class H>
class ModuleList : public ModuleHolder<ModuleListOf<H>> {
 public:
  using ModuleHolder<ModuleListOf<H>>::ModuleHolder;
  const H& operator[](size_t i) const { return (**this)[i]; }
  size_t size() const { return (**this).size(); }
  auto begin() const { return (**this).begin(); }
  auto end() const { return (**this).end(); }
};

// Modules of one kind by name.
template <class H>
class ModuleDictOf : public Module {
 public:
  ModuleDictOf() : Module("ModuleDict") {}
  void insert(const std::string& name, H module) { map_.emplace_back(name, register_module(name, std::move(module))); }
  const H& operator[](const std::string& name) const {
    for (const auto& [known, module] : map_)
      if (known == name) return module;
    fail(cat("ModuleDict has no module '", name, "'"));
  }
  size_t size() const { return map_.size(); }

 private:
  std::vector<std::pair<std::string, H>> map_;
};
template <class H>
class ModuleDict : public ModuleHolder<ModuleDictOf<H>> {
 public:
  using ModuleHolder<ModuleDictOf<H>>::ModuleHolder;
  const H& operator[](const std::string& name) const { return (**this)[name]; }
};

}  // namespace mica::nn
