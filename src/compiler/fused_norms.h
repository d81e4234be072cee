// A norm of rows on a device whose backend fuses calls, with the neighbours that its kernel computes too: the sum that
// is normalised, the conversion of a result or of a gradient, the sum of its gradient and another one.
#pragma once

#include <vector>

#include "compiler/fused_loop.h"

namespace mica::recording {

// Whether a call is a sum without a factor: only then a norm can take it along.
bool is_plain_sum(const Call& call);

class NormChain {
 public:
  explicit NormChain(const Call& norm) : norm_(&norm) {}

  // Take in a call that stands before or after the norm. The caller has seen that no other call has to run between the
  // two. They return false where the kernel does not compute such a call.
  bool take_before(const Call& call);
  bool take_after(const Call& call);
  // Whether the kernel stores each result that has to be in memory.
  bool fits(const std::vector<char>& in_memory) const;
  void run(const std::vector<Slot>& slots, const std::vector<char>& in_memory) const;

 private:
  const NormArguments& arguments() const { return *reinterpret_cast<const NormArguments*>(norm_->arguments); }
  const Operand& operand(int8_t k) const { return norm_->operands[k]; }
  const Operand& result() const;  // the last result in float32: the norm's, or that of the sum behind it
  bool agrees(DType narrow) const;

  const Call* norm_;
  const Call* before_ = nullptr;  // the sum that is normalised; of gradients, the conversion of the incoming one
  const Call* sum_ = nullptr;     // of gradients, the sum of the input's gradient and another one
  const Call* narrow_ = nullptr;  // the conversion of the result to 16 bits
  int other_ = 0;                 // the operand of the sum that is not the norm's own
};

}  // namespace mica::recording
