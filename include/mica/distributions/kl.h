// Kullback-Leibler divergences in closed form, found by the types of both distributions.
#pragma once

#include <functional>
#include <typeinfo>
#include <utility>

#include "mica/distributions/distribution.h"

namespace mica::distributions {

// KL(p || q): the mean under p of log p(x) - log q(x), one number per distribution of the batch. A pair of types
// without an entry of its own uses the entry of their nearest base classes.
Tensor kl_divergence(const Distribution& p, const Distribution& q);

struct DivergenceEntry {
  bool (*matches_p)(const Distribution&);
  bool (*matches_q)(const Distribution&);
  int depth_p, depth_q;  // kDepth of the two classes
  const std::type_info *type_p, *type_q;
  std::function<Tensor(const Distribution&, const Distribution&)> divergence;
};
void register_divergence(DivergenceEntry entry);  // replaces an entry for the same pair

template <class P, class Q, class F>
DivergenceEntry divergence_entry(F divergence) {
  return {[](const Distribution& p) { return dynamic_cast<const P*>(&p) != nullptr; },
          [](const Distribution& q) { return dynamic_cast<const Q*>(&q) != nullptr; },
          P::kDepth,
          Q::kDepth,
          &typeid(P),
          &typeid(Q),
          [divergence = std::move(divergence)](const Distribution& p, const Distribution& q) -> Tensor {
            return divergence(dynamic_cast<const P&>(p), dynamic_cast<const Q&>(q));
          }};
}

// Enters a function of (const P&, const Q&) for a pair of classes and for the classes that are derived from them.
template <class P, class Q, class F>
void register_kl(F divergence) {
  register_divergence(divergence_entry<P, Q>(std::move(divergence)));
}

}  // namespace mica::distributions
