// The built-in entries of the table of divergences.
#pragma once

#include <functional>
#include <utility>

#include "mica/distributions/kl.h"

namespace mica::distributions {

using Register = std::function<void(DivergenceEntry)>;
void add_divergences_within_families(const Register& add);
void add_divergences_between_families(const Register& add);

template <class P, class Q, class F>
void add_divergence(const Register& add, F divergence) {
  add(divergence_entry<P, Q>(std::move(divergence)));
}

}  // namespace mica::distributions
