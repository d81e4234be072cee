// Norms of rows on devices whose backend fuses calls, with the neighbours that their kernel computes along: a sum that
// is normalised, a result or a gradient that is converted, a gradient that another one is added to.
#pragma once

#include <vector>

#include "compiler/plan.h"

namespace mica::recording {

class NormChain {
 public:
  explicit NormChain(const Call& norm) : norm_(&norm) {}

  // Takes in a call that stands before or after the norm, which the caller has seen to be possible in the order of
  // calls. False where the kernel does not compute it.
  bool take_before(const Call& call);
  bool take_after(const Call& call);
  // Whether the kernel stores all that is in memory.
  bool fits(const std::vector<char>& in_memory) const;
  void run(const std::vector<Slot>& slots, const std::vector<char>& in_memory) const;

 private:
  const NormArguments& arguments() const { return *reinterpret_cast<const NormArguments*>(norm_->arguments); }
  const Operand& operand(int8_t k) const { return norm_->operands[k]; }
  const Operand& result() const;  // what comes last, in float32
  bool has(const Operand& o, DType dtype) const;
  bool agrees(DType narrow) const;

  const Call* norm_;
  // The sum that is normalised, or of gradients the conversion of what comes in; the sum with the gradient of the
  // input; the conversion of the result.
  const Call *before_ = nullptr, *sum_ = nullptr, *narrow_ = nullptr;
  int other_ = 0;  // which operand of the sum is not the norm's
};

}  // namespace mica::recording
