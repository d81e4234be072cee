#include "mica/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "mica/autograd.h"
#include "mica/generator.h"
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

// ---- state

NamedTensors Module::state_dict() const {
  NamedTensors state;
  const auto walk = [&](const auto& self, const std::string& path, const Module& module) -> void {
    for (const Entry& e : module.parameters_)
      if (e.tensor.defined()) state.emplace_back(path + e.name, e.tensor.detach());
    for (const Entry& e : module.buffers_)
      if (e.tensor.defined() && e.persistent) state.emplace_back(path + e.name, e.tensor.detach());
    for (const auto& [name, child] : module.modules_) self(self, path + name + ".", *child);
  };
  walk(walk, "", *this);
  return state;
}

static std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

void Module::load_state_dict(const NamedTensors& state, bool strict) {
  std::unordered_map<std::string, Tensor> given;
  for (const auto& [name, tensor] : state) given[name] = tensor;
  std::vector<std::string> missing, unexpected, problems;
  const NamedTensors own = state_dict();
  std::vector<std::pair<Tensor, Tensor>> copies;
  std::unordered_set<std::string> known;
  for (const auto& [name, tensor] : own) {
    known.insert(name);
    const auto found = given.find(name);
    if (found == given.end()) {
      missing.push_back(name);
    } else if (!(found->second.sizes() == tensor.sizes())) {
      problems.push_back(cat("size mismatch for ", name, ": copying a param with shape torch.Size(",
                             found->second.sizes(), ") from checkpoint, the shape in current model is torch.Size(",
                             tensor.sizes(), ")."));
    } else {
      copies.emplace_back(tensor, found->second);
    }
  }
  for (const auto& [name, tensor] : state)
    if (!known.contains(name)) unexpected.push_back(name);
  if (strict && !unexpected.empty())
    problems.insert(problems.begin(), cat("Unexpected key(s) in state_dict: ", quoted_list(unexpected), ". "));
  if (strict && !missing.empty())
    problems.insert(problems.begin(), cat("Missing key(s) in state_dict: ", quoted_list(missing), ". "));
  if (!problems.empty()) {
    std::string text = cat("Error(s) in loading state_dict for ", name(), ":");
    for (const std::string& problem : problems) text += "\n\t" + problem;
    fail(text);
  }
  NoGradGuard no_grad;
  for (const auto& [to, from] : copies) to.copy_(from);
}

void Module::save(const std::string& path) const { mica::save(Value(state_dict()), path); }
void Module::load(const std::string& path, bool strict) {
  load_state_dict(mica::load(path).as_named_tensors(), strict);
}

// ---- clones

// Puts the stream of random numbers back where it was.
struct KeptStream {
  std::vector<uint8_t> state = default_generator().get_state();
  ~KeptStream() { default_generator().set_state(state.data(), state.size()); }
};

Tensor detail::argument_of_clone(const Tensor& tensor) { return tensor.defined() ? tensor.detach() : tensor; }

std::shared_ptr<Module> Module::clone() const {
  MICA_CHECK_KIND(make_again_, NotImplemented, name(), " cannot be cloned, since it was not made through a handle ",
                  "(MICA_MODULE), or from arguments that cannot be copied: override clone()");
  std::shared_ptr<Module> copy;
  {
    KeptStream kept;
    copy = make_again_();
  }
  copy->make_again_ = make_again_;
  copy->copy_state(*this);
  return copy;
}

template <class List>
static bool same_names(const List& a, const List& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    if constexpr (requires { x.first; })
      return x.first == y.first;
    else
      return x.name == y.name && x.tensor.defined() == y.tensor.defined();
  });
}

void Module::copy_own_state(const Module& other) {
  MICA_CHECK_KIND(same_names(parameters_, other.parameters_) && same_names(buffers_, other.buffers_) &&
                      same_names(modules_, other.modules_),
                  NotImplemented, name(),
                  " cannot be cloned, since it got members after it was constructed: ", "override clone()");
  for (const auto kind : {&Module::parameters_, &Module::buffers_})
    for (size_t i = 0; i < (this->*kind).size(); ++i) {
      const Tensor &to = (this->*kind)[i].tensor, &from = (other.*kind)[i].tensor;
      if (!to.defined()) continue;
      autograd::set_data(to, from.detach().clone());
      to.requires_grad_(from.requires_grad());
    }
  training_ = other.training_;
}
void Module::copy_state(const Module& other) {
  copy_own_state(other);
  for (size_t i = 0; i < modules_.size(); ++i) modules_[i].second->copy_state(*other.modules_[i].second);
}

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

// Replaces what tensors hold, so that all who share them see it.
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
void Module::to(DType dtype) {
  MICA_CHECK_KIND(is_floating(dtype) || is_complex(dtype), Type,
                  "nn.Module.to only accepts floating point or complex dtypes, but got desired dtype=", dtype);
  convert([&](const Tensor& t) { return t.is_floating_point() || t.is_complex() ? t.to(dtype) : t; });
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
