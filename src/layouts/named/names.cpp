// Names of dimensions: reading, checking and changing them.
#include "mica/names.h"

#include <algorithm>

#include "core/entry.h"
#include "core/rare_facts.h"
#include "mica/ops.h"

namespace mica {
namespace names {

DimNames of(const Tensor& t) {
  if (!t.defined()) return {};
  if (t.has_names()) return t.impl()->rare->names;
  return DimNames(static_cast<size_t>(t.dim()));
}

bool any(const DimNames& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return !name.empty(); });
}

std::string to_text(const DimNames& names) {
  std::string text = "[";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i) text += ", ";
    text += names[i].empty() ? "None" : "'" + names[i] + "'";
  }
  return text + "]";
}

static bool is_identifier(const std::string& name) {
  const auto word = [](char c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_'; };
  return !name.empty() && !(name[0] >= '0' && name[0] <= '9') && std::all_of(name.begin(), name.end(), word);
}

void check(const DimNames& names, int64_t ndim) {
  MICA_CHECK(static_cast<int64_t>(names.size()) == ndim, "Number of names (", names.size(),
             ") and number of dimensions in tensor (", ndim, ") do not match. Attempted to create a tensor with names ",
             to_text(names));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    MICA_CHECK(is_identifier(names[i]),
               "Invalid name: a valid identifier contains only digits, alphabetical characters, and/or underscore and "
               "starts with a non-digit. got: '",
               names[i], "'.");
    MICA_CHECK(std::find(names.begin() + static_cast<ptrdiff_t>(i) + 1, names.end(), names[i]) == names.end(),
               "Cannot construct a tensor with duplicate names. Got names: ", to_text(names), ".");
  }
}

void set(const Tensor& t, const DimNames& names) {
  TensorImpl* impl = t.impl();
  if (any(names)) {
    impl->rare_facts().names = names;
    impl->bits |= tensor_bit::kNamed;
  } else if (t.has_names()) {
    impl->rare->names.clear();
    impl->bits &= ~tensor_bit::kNamed;
  }
}

int64_t position(const Tensor& t, std::string_view name) {
  const DimNames known = of(t);
  for (size_t i = 0; i < known.size(); ++i)
    if (known[i] == name) return static_cast<int64_t>(i);
  fail(cat("Name '", name, "' not found in Tensor", to_text(known), "."));
}

// Replaces the one "..." in `wanted` by `between`.
static DimNames with_ellipsis(const char* op, const DimNames& wanted, const std::function<DimNames()>& between) {
  DimNames result;
  bool seen = false;
  for (const std::string& name : wanted) {
    if (name != "...") {
      result.push_back(name);
      continue;
    }
    MICA_CHECK(!seen, op, ": More than one Ellipsis ('...') found in names (", to_text(wanted),
               "). This function supports up to one Ellipsis.");
    seen = true;
    const DimNames more = between();
    result.insert(result.end(), more.begin(), more.end());
  }
  return result;
}

}  // namespace names

std::vector<std::string> Tensor::names() const { return names::of(*this); }

// A view that shares history with `t`: the alias of an unnamed tensor.
static Tensor renamed_view(const Tensor& t, const DimNames& given) {
  const Tensor plain = without_names(t);
  Tensor result = mica::alias(plain);
  view_of_original(result, t, plain);
  names::set(result, given);
  return result;
}

Tensor Tensor::rename(const std::vector<std::string>& names) const {
  if (!names.empty() || dim() == 0) names::check(names, dim());
  return renamed_view(*this, names);
}

const Tensor& Tensor::rename_(const std::vector<std::string>& names) const {
  if (!names.empty() || dim() == 0) names::check(names, dim());
  names::set(*this, names);
  return *this;
}

Tensor Tensor::refine_names(const std::vector<std::string>& names) const {
  const DimNames own = this->names();
  const DimNames wanted = names::with_ellipsis("refine_names", names, [&] {
    const size_t before = static_cast<size_t>(std::find(names.begin(), names.end(), "...") - names.begin());
    const size_t after = names.size() - before - 1;
    if (own.size() < before + after) return DimNames();
    return DimNames(own.begin() + static_cast<ptrdiff_t>(before), own.end() - static_cast<ptrdiff_t>(after));
  });
  const auto coerce = [&] {
    return cat("refine_names: cannot coerce Tensor", names::to_text(own), " to Tensor", names::to_text(wanted));
  };
  MICA_CHECK(own.size() == wanted.size(), coerce(), " because they have a different number of dims (", own.size(),
             " and ", wanted.size(), " respectively).");
  names::check(wanted, dim());
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].empty() || own[i] == wanted[i]) continue;
    MICA_CHECK(!wanted[i].empty(), coerce(), " because '", own[i], "' is more specific than None at index ", i);
    fail(cat(coerce(), " because '", own[i], "' is different from '", wanted[i], "' at index ", i));
  }
  return renamed_view(*this, wanted);
}

Tensor Tensor::align_to(const std::vector<std::string>& names) const {
  const DimNames own = this->names();
  for (size_t i = 0; i < own.size(); ++i)
    MICA_CHECK(!own[i].empty(), "align_to: All input dims must be named. Found unnamed dim at index ", i, " of Tensor",
               names::to_text(own));
  const DimNames wanted = names::with_ellipsis("align_to", names, [&] {
    DimNames rest;
    for (const std::string& name : own)
      if (std::find(names.begin(), names.end(), name) == names.end()) rest.push_back(name);
    return rest;
  });
  names::check(wanted, static_cast<int64_t>(wanted.size()));
  for (const std::string& name : wanted)
    MICA_CHECK(!name.empty(), "align_to: the desired order of dimensions cannot contain a None name, got ",
               names::to_text(wanted));
  for (size_t i = 0; i < own.size(); ++i)
    MICA_CHECK(std::find(wanted.begin(), wanted.end(), own[i]) != wanted.end(), "align_to: Cannot find dim '", own[i],
               "' from Tensor", names::to_text(own), " in desired alignment ", names::to_text(wanted), ".");
  DimVector order;  // the tensor's dimensions in their new order, then a place for each new one
  for (const std::string& name : wanted) {
    const auto at = std::find(own.begin(), own.end(), name);
    if (at != own.end()) order.push_back(at - own.begin());
  }
  const Tensor plain = without_names(*this);
  Tensor result = mica::permute(plain, order);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (std::find(own.begin(), own.end(), wanted[i]) == own.end())
      result = mica::unsqueeze(result, static_cast<int64_t>(i));
  view_of_original(result, *this, plain);
  names::set(result, wanted);
  return result;
}

Tensor Tensor::align_as(const Tensor& other) const { return align_to(other.names()); }

}  // namespace mica
