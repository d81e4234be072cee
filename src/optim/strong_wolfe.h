// A line search for a point where the loss has fallen and its slope flattened enough (the strong Wolfe conditions).
#pragma once

#include <functional>

#include "mica/optim/lbfgs.h"

namespace mica::optim {

struct LinePoint {
  Real t;        // how far along the direction
  double f = 0;  // the loss there
  Tensor g;      // the gradient, flat
  Real slope;    // along the direction
};

struct LineSearch {
  LinePoint found;
  int64_t evaluations = 0;
};

// `evaluate` returns loss and flat gradient at a distance; `start` is the point at distance zero, `first` the distance
// to try first.
LineSearch strong_wolfe(const std::function<std::pair<double, Tensor>(const Real& t)>& evaluate, const LinePoint& start,
                        Real first, const Tensor& direction, int64_t max_iterations);

}  // namespace mica::optim
