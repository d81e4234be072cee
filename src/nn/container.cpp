#include "mica/nn/container.h"

#include "mica/ops.h"
#include "nn/text.h"

namespace mica::nn {

// ---- Sequential

SequentialImpl::SequentialImpl(std::initializer_list<detail::NamedStep> steps) {
  for (const detail::NamedStep& step : steps) add(step);
}

void SequentialImpl::add(detail::NamedStep s) { add(std::move(s.name), std::move(s.module), s.step); }

void SequentialImpl::extend(const SequentialImpl& other) {
  const size_t count = other.size();  // counted first: `other` may be this container
  for (size_t i = 0; i < count; ++i) add(std::to_string(size()), other[i], other.steps_[i]);
}

void SequentialImpl::add(std::string name, std::shared_ptr<Module> module, detail::Step step) {
  register_module(std::move(name), std::move(module));
  steps_.push_back(step);
}

Tensor SequentialImpl::forward(const Tensor& x) {
  Tensor y = x;
  for (size_t i = 0; i < steps_.size(); ++i) {
    Module& module = *named_children()[i].second;
    y = module.is_hooked() ? detail::call_with_hooks(module, y, steps_[i]) : steps_[i](module, y);
  }
  return y;
}

std::shared_ptr<Module> SequentialImpl::clone() const {
  auto copy = std::make_shared<SequentialImpl>();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto& [name, child] = named_children()[i];
    copy->add(name, child->clone(), steps_[i]);
  }
  copy->copy_own_state(*this);
  return copy;
}

// ---- ModuleList

std::string ModuleListBase::repr() const {
  if (named_children().empty()) return name() + "()";
  std::string text = name() + "(\n";
  const Named& all = named_children();
  for (size_t first = 0, next; first < all.size(); first = next) {
    const std::string lines = all[first].second->repr();
    for (next = first + 1; next < all.size() && all[next].second->repr() == lines;) ++next;
    const std::string numbers =
        next == first + 1 ? cat("(", first, "): ") : cat("(", first, "-", next - 1, "): ", next - first, " x ");
    text += indented("  " + numbers + lines) + "\n";
  }
  return text + ")";
}

// ---- parameters

static std::string describe(const std::string& name, const Tensor& parameter) {
  std::string sizes;
  for (const int64_t size : parameter.sizes()) sizes += (sizes.empty() ? "" : "x") + std::to_string(size);
  const std::string device = !parameter.is_cpu() && !parameter.is_meta() ? cat(" (", parameter.device(), ")") : "";
  return cat("  (", name, "): Parameter containing: [torch.", parameter.dtype(), " of size ", sizes, device, "]");
}

ParameterListImpl::ParameterListImpl(TensorList parameters) {
  for (const Tensor& p : parameters) append(p);
}
void ParameterListImpl::append(const Tensor& parameter) {
  list_.push_back(register_parameter(std::to_string(size()), parameter));
}
std::string ParameterListImpl::extra_repr() const {
  std::string text;
  for (size_t i = 0; i < size(); ++i) text += (i ? "\n" : "") + describe(std::to_string(i), list_[i]);
  return text;
}
std::shared_ptr<Module> ParameterListImpl::clone() const {
  auto copy = std::make_shared<ParameterListImpl>();
  for (const Tensor& p : list_) copy->append(p.detach());
  copy->copy_own_state(*this);
  return copy;
}

ParameterDictImpl::ParameterDictImpl(const NamedTensors& parameters) {
  for (const auto& [name, p] : parameters) insert(name, p);
}
void ParameterDictImpl::insert(const std::string& name, const Tensor& parameter) {
  map_.emplace_back(name, register_parameter(name, parameter));
}
bool ParameterDictImpl::contains(const std::string& name) const {
  for (const auto& [known, p] : map_)
    if (known == name) return true;
  return false;
}
const Tensor& ParameterDictImpl::operator[](const std::string& name) const {
  for (const auto& [known, p] : map_)
    if (known == name) return p;
  fail(ErrorKind::Index, cat("ParameterDict has no parameter '", name, "'"));
}
std::string ParameterDictImpl::extra_repr() const {
  std::string text;
  for (const auto& [name, p] : map_) text += (text.empty() ? "" : "\n") + describe(name, p);
  return text;
}
std::shared_ptr<Module> ParameterDictImpl::clone() const {
  auto copy = std::make_shared<ParameterDictImpl>();
  for (const auto& [name, p] : map_) copy->insert(name, p.detach());
  copy->copy_own_state(*this);
  return copy;
}

}  // namespace mica::nn
