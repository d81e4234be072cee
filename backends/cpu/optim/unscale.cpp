// Gradients of a scaled loss, brought back to their size and checked in the same pass.
#include <atomic>
#include <cmath>
#include <type_traits>

#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

namespace mica::cpu {

// Whether an element was infinite or NaN before.
template <class T>
static bool unscale(T* x, int64_t n, double scale) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const C factor = static_cast<C>(scale);
  const bool changes = factor != 1;
  int bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const C v = static_cast<C>(x[i]);
    bad |= !(std::abs(v) <= std::numeric_limits<C>::max());
    x[i] = changes ? static_cast<T>(v * factor) : x[i];
  }
  return bad;
}

static void unscale_gradients(TensorViewList gradients, double scale, bool* found) {
  constexpr int64_t kGrain = 32768;
  std::atomic<bool> bad{false};
  for (const TensorView* g : gradients)
    visit_floating("_amp_non_finite_check_and_unscale_cpu", g->dtype, [&]<class T>(Tag<T>) {
      parallel_for(0, g->numel, kGrain, [&](int64_t begin, int64_t end) {
        if (unscale(g->ptr<T>() + begin, end - begin, scale)) bad.store(true, std::memory_order_relaxed);
      });
    });
  *found = bad.load();
}

MICA_REGISTER_CPU(unscale_gradients, unscale_gradients);

}  // namespace mica::cpu
