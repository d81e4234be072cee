// Tells whether a formula of the engine runs in a backward pass. A mode then also sees tensors that the formula makes
// for itself, since nothing else tells it of the pass.
#pragma once

#include <utility>

#include "mica/core/dispatch.h"

namespace mica::dispatch {

extern constinit thread_local bool in_formula;
extern constinit thread_local bool asked_by_formula;  // whether the last call of a mode came from a formula

// In this scope a formula runs; or, inside a formula, code of the program: a mode, a hook, a custom function.
class FormulaGuard {
 public:
  explicit FormulaGuard(bool formula)
      : formula_(std::exchange(in_formula, formula && active)), direct_(std::exchange(direct, in_formula)) {}
  FormulaGuard(const FormulaGuard&) = delete;
  FormulaGuard& operator=(const FormulaGuard&) = delete;
  ~FormulaGuard() {
    in_formula = formula_;
    direct = direct_;
  }

 private:
  bool formula_, direct_;
};

}  // namespace mica::dispatch
