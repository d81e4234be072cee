// Whether a formula of the engine's own runs in a backward pass: a mode then sees what it makes for itself, too, since
// nothing else tells it of the pass.
#pragma once

#include <utility>

#include "mica/core/dispatch.h"

namespace mica::dispatch {

extern constinit thread_local bool in_formula;
extern constinit thread_local bool asked_by_formula;  // whether the last call of a mode came from one

// In this scope a formula runs, or in the midst of one a program: a mode, a hook, a function of its own.
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
