// The losses that are a function of one number and its target, as the kernel slots pair_loss and pair_loss_backward
// number them.
#pragma once

#include <cstdint>

namespace mica {

// With d = input - target and the slot's parameter a:
enum class PairLoss : int64_t {
  Squared,                    // d^2
  Absolute,                   // |d|
  SmoothAbsolute,             // d^2 / 2a where |d| < a, |d| - a/2 elsewhere
  Huber,                      // d^2 / 2 where |d| <= a, a (|d| - a/2) elsewhere
  BinaryCrossEntropy,         // -(target log(input) + (1 - target) log(1 - input)), logarithms no less than -100
  BinaryCrossEntropyOfLogit,  // the same of sigmoid(input)
};

// The names of losses in torch's messages about dtypes.
constexpr const char* kernel_name(PairLoss kind) {
  switch (kind) {
    case PairLoss::Squared:
      return "mse_cpu";
    case PairLoss::Absolute:
      return "l1_cpu";
    case PairLoss::SmoothAbsolute:
      return "smooth_l1_cpu";
    case PairLoss::Huber:
      return "huber_cpu";
    case PairLoss::BinaryCrossEntropy:
      return "binary_cross_entropy";
    default:
      return "binary_cross_entropy_with_logits";
  }
}

// What a loss makes of its elements: torch's numbers.
enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

}  // namespace mica
