// Base classes that the rules of the built-in transforms share.
#pragma once

#include <typeinfo>
#include <utility>

#include "mica/distributions/transforms.h"

namespace mica::distributions {

// A rule that can be copied with another size of its cache.
template <class Self>
class RuleOf : public Transform::Rule {
 public:
  using Transform::Rule::Rule;
  Transform with_cache(int64_t cache_size) const override {
    auto copy = std::make_shared<Self>(static_cast<const Self&>(*this));
    copy->cache_size_ = cache_size;
    return Transform(std::move(copy));
  }
};

// A rule without parameters: all objects of one type do the same.
template <class Self>
class Parameterless : public RuleOf<Self> {
 public:
  using RuleOf<Self>::RuleOf;
  bool equals(const Transform::Rule& other) const override { return typeid(other) == typeid(*this); }
};

template <class R, class... Arguments>
std::shared_ptr<const Transform::Rule> make_rule(Arguments&&... arguments) {
  return std::make_shared<R>(std::forward<Arguments>(arguments)...);
}

Tensor clipped_sigmoid(const Tensor& x);  // kept off 0 and 1

}  // namespace mica::distributions
