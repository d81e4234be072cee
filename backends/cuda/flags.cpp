#include "backends/cuda/flags.h"

#include <atomic>

namespace mica::cuda {

// torch's defaults: products of float32 are exact, convolutions may round their inputs to TF32, results need not repeat
// to the last bit.
static std::atomic<bool> flags[static_cast<int>(Flag::Count)] = {false, true, true, false, false, false, true, false};

bool flag(Flag which) { return flags[static_cast<int>(which)].load(std::memory_order_relaxed); }
void set_flag(Flag which, bool value) { flags[static_cast<int>(which)].store(value, std::memory_order_relaxed); }

static thread_local bool rounded = false;

RoundedProducts::RoundedProducts(bool on) : before_(rounded) { rounded = rounded || on; }
RoundedProducts::~RoundedProducts() { rounded = before_; }
bool round_products(bool on) {
  const bool before = rounded;
  rounded = on && (before || flag(Flag::ConvolutionTf32));
  return before;
}
bool products_are_rounded() { return rounded || flag(Flag::MatmulTf32); }

}  // namespace mica::cuda
