#include "mica/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <typeinfo>
#include <unordered_set>

#include "mica/autograd.h"
#include "mica/ops.h"
#include "nn/text.h"

namespace mica::nn {

// ---- members

void Module::check_name(const std::string& name) const {
  MICA_CHECK_KIND(!name.empty() && name.find('.') == std::string::npos, Value, "the name of a module's member must ",
                  "not be empty or contain a dot, but is \"", name, "\"");
  const auto is_taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& entry) {
      if constexpr (requires { entry.first; })
        return entry.first == name;
      else
        return entry.name == name;
    });
  };
  MICA_CHECK_KIND(!is_taken(parameters_) && !is_taken(buffers_) && !is_taken(modules_), Value, "attribute '", name,
                  "' already exists");
}

Tensor Module::register_parameter(std::string name, const Tensor& tensor, bool requires_grad) {
  check_name(name);
  if (tensor.defined()) {
    MICA_CHECK_KIND(tensor.is_leaf(), Value, "Cannot assign non-leaf Tensor to parameter '", name,
                    "'. Model parameters must be created explicitly.");
    tensor.requires_grad_(requires_grad);
  }
  parameters_.push_back({std::move(name), tensor});
  return tensor;
}

Tensor Module::register_buffer(std::string name, const Tensor& tensor, bool persistent) {
  check_name(name);
  buffers_.push_back({std::move(name), tensor, persistent});
  return tensor;
}

Tensor Module::register_uninitialized_parameter(std::string name) {
  Tensor tensor = register_parameter(std::move(name), empty({0}));
  parameters_.back().is_lazy = true;
  return tensor;
}
Tensor Module::register_uninitialized_buffer(std::string name) {
  Tensor tensor = register_buffer(std::move(name), empty({0}));
  buffers_.back().is_lazy = true;
  return tensor;
}
bool Module::has_uninitialized_params() const {
  const auto is_lazy = [](const Entry& e) { return e.is_lazy; };
  return std::any_of(parameters_.begin(), parameters_.end(), is_lazy) ||
         std::any_of(buffers_.begin(), buffers_.end(), is_lazy);
}
void Module::materialize(const Tensor& member, IntArrayRef sizes) {
  for (const auto kind : {&Module::parameters_, &Module::buffers_})
    for (Entry& e : this->*kind)
      if (e.is_lazy && e.tensor.is_same(member)) {
        autograd::set_data(e.tensor, empty(sizes, e.tensor.options()));
        e.is_lazy = false;
      }
}

void Module::add_module(std::string name, std::shared_ptr<Module> module) {
  check_name(name);
  MICA_CHECK_KIND(module != nullptr, Value, "the module '", name, "' is null");
  modules_.emplace_back(std::move(name), std::move(module));
}

// ---- walks

template <class F>
void Module::visit(const F& function) const {
  std::unordered_set<const Module*> seen;
  const auto walk = [&](const auto& self, const std::string& path, const Module& module) -> void {
    if (!seen.insert(&module).second) return;
    function(path, module);
    for (const auto& [name, child] : module.modules_) self(self, path + name + ".", *child);
  };
  walk(walk, "", *this);
}

NamedTensors Module::named_tensors(std::vector<Entry> Module::*kind, bool recurse) const {
  NamedTensors found;
  std::unordered_set<const TensorImpl*> seen;
  visit([&](const std::string& path, const Module& module) {
    if (!recurse && &module != this) return;
    for (const Entry& e : module.*kind)
      if (e.tensor.defined() && seen.insert(e.tensor.impl()).second) found.emplace_back(path + e.name, e.tensor);
  });
  return found;
}
NamedTensors Module::named_parameters(bool recurse) const { return named_tensors(&Module::parameters_, recurse); }
NamedTensors Module::named_buffers(bool recurse) const { return named_tensors(&Module::buffers_, recurse); }

static std::vector<Tensor> tensors_of(const NamedTensors& named) {
  std::vector<Tensor> tensors;
  tensors.reserve(named.size());
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}
std::vector<Tensor> Module::parameters(bool recurse) const { return tensors_of(named_parameters(recurse)); }
std::vector<Tensor> Module::buffers(bool recurse) const { return tensors_of(named_buffers(recurse)); }

std::vector<std::shared_ptr<Module>> Module::children() const {
  std::vector<std::shared_ptr<Module>> found;
  for (const auto& [name, child] : modules_) found.push_back(child);
  return found;
}

Module::Named Module::named_modules() const {
  Named found;
  std::unordered_set<const Module*> seen{this};
  const auto walk = [&](const auto& self, const std::string& path, const Module& module) -> void {
    for (const auto& [name, child] : module.modules_) {
      if (!seen.insert(child.get()).second) continue;
      found.emplace_back(path + name, child);
      self(self, path + name + ".", *child);
    }
  };
  walk(walk, "", *this);
  return found;
}

std::vector<Module*> Module::modules() {
  std::vector<Module*> found{this};
  for (const auto& [path, module] : named_modules()) found.push_back(module.get());
  return found;
}

Module& Module::get_submodule(const std::string& path) {
  Module* at = this;
  for (size_t start = 0; start < path.size();) {
    const size_t dot = std::min(path.find('.', start), path.size());
    const std::string name = path.substr(start, dot - start);
    const auto child =
        std::find_if(at->modules_.begin(), at->modules_.end(), [&](const auto& entry) { return entry.first == name; });
    MICA_CHECK_KIND(child != at->modules_.end(), Attribute, at->name(), " has no attribute `", name, "`");
    at = child->second.get();
    start = dot + 1;
  }
  return *at;
}

Tensor Module::get_tensor(const std::string& path, std::vector<Entry> Module::*kind, const char* what) {
  const size_t dot = path.rfind('.');
  Module& owner = get_submodule(dot == std::string::npos ? "" : path.substr(0, dot));
  const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
  for (const Entry& e : owner.*kind)
    if (e.name == name && e.tensor.defined()) return e.tensor;
  fail(ErrorKind::Attribute, cat(owner.name(), " has no ", what, " `", name, "`"));
}
Tensor Module::get_parameter(const std::string& path) { return get_tensor(path, &Module::parameters_, "parameter"); }
Tensor Module::get_buffer(const std::string& path) { return get_tensor(path, &Module::buffers_, "buffer"); }

// ---- everything at once

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : modules_) child->train(on);
}

void Module::zero_grad(bool set_to_none) {
  for (const Tensor& p : parameters()) {
    if (!p.grad().defined()) continue;
    if (set_to_none)
      p.set_grad({});
    else
      p.grad().detach().zero_();
  }
}

void Module::requires_grad_(bool on) {
  for (const Tensor& p : parameters()) p.requires_grad_(on);
}

// Replaces the contents of tensors, so that everybody who shares them sees the change.
template <class F>
void Module::convert(const F& function) {
  NoGradGuard no_grad;
  const auto change = [&](const Tensor& t) {
    autograd::set_data(t, function(t.detach()));
    if (t.grad().defined()) t.set_grad(function(t.grad()));
  };
  for (const Tensor& p : parameters()) change(p);
  for (const Tensor& b : buffers()) change(b);
}
void Module::to(Device device) {
  convert([&](const Tensor& t) { return t.to(device); });
}
static void check_target(DType dtype) {
  MICA_CHECK_KIND(is_floating(dtype) || is_complex(dtype), Type,
                  "nn.Module.to only accepts floating point or complex dtypes, but got desired dtype=", dtype);
}
void Module::to(DType dtype) {
  check_target(dtype);
  convert([&](const Tensor& t) { return t.is_floating_point() || t.is_complex() ? t.to(dtype) : t; });
}
void Module::to(Device device, DType dtype) {
  check_target(dtype);
  convert(
      [&](const Tensor& t) { return t.is_floating_point() || t.is_complex() ? t.to(device, dtype) : t.to(device); });
}

void Module::apply(const std::function<void(Module&)>& function) {
  for (const auto& [name, child] : modules_) child->apply(function);
  function(*this);
}

// ---- printing

std::string Module::name() const {
  if (!name_.empty()) return name_;
  int status = 0;
  const char* mangled = typeid(*this).name();
  std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  std::string full = status == 0 ? text.get() : mangled;
  full = full.substr(0, full.find('<'));
  if (const size_t colons = full.rfind("::"); colons != std::string::npos) full = full.substr(colons + 2);
  return full.size() > 4 && full.ends_with("Impl") ? full.substr(0, full.size() - 4) : full;
}

std::string indented(std::string lines) {
  for (size_t at = lines.find('\n'); at != std::string::npos; at = lines.find('\n', at + 3)) lines.insert(at + 1, "  ");
  return lines;
}

std::string Module::repr() const {
  const std::string extra = extra_repr();
  if (modules_.empty() && extra.find('\n') == std::string::npos) return name() + "(" + extra + ")";
  std::string text = name() + "(\n";
  if (!extra.empty()) text += "  " + indented(extra) + "\n";
  for (const auto& [child_name, child] : modules_) text += "  (" + child_name + "): " + indented(child->repr()) + "\n";
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << module.repr(); }

}  // namespace mica::nn
