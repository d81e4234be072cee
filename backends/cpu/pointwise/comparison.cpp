// eq, ne, lt, le, gt, ge.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/comparison.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/pointwise/visit_others.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Comparisons of any element type give bool.
template <template <class> class F>
void compare(const char* name, const PointwiseLoop& loop, bool ordered) {
  const auto run = [&]<class T>(Tag<T>) {
    const F<compute_t<T>> f;
    run_dense(loop, binary_loop<bool, T, F<compute_t<T>>>, &f);
  };
  if (!ordered && is_float8(loop.dtype))
    return visit_any(name, loop.dtype, [&]<class T>(Tag<T>) {
      if constexpr (std::is_same_v<compute_t<T>, float> && sizeof(T) == 1) run(Tag<T>{});
    });
  if (ordered || !is_complex(loop.dtype)) return visit_real_bool(name, loop.dtype, run);
  visit_any_complex(name, loop.dtype, [&]<class T>(Tag<T>) {
    // Written apart: complex numbers have no order, so that their functors exist for == and != alone.
    if constexpr (requires(const F<compute_t<T>>& f, compute_t<T> a) { f(a, a); }) run(Tag<T>{});
  });
}

#define MICA_COMPARISON(slot, Name, symbol, ordered)                  \
  template <class T>                                                  \
  struct Name {                                                       \
    bool operator()(T a, T b) const requires requires { a symbol b; } \
    { return a symbol b; }                                            \
  };                                                                  \
  void slot##_kernel(const PointwiseLoop& loop) { compare<Name>(#slot "_cpu", loop, ordered); }
MICA_COMPARISON(eq, Eq, ==, false)
MICA_COMPARISON(ne, Ne, !=, false)
MICA_COMPARISON(lt, Lt, <, true)
MICA_COMPARISON(le, Le, <=, true)
MICA_COMPARISON(gt, Gt, >, true)
MICA_COMPARISON(ge, Ge, >=, true)
#undef MICA_COMPARISON

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(eq)
MICA_POINTWISE_SLOT(ne)
MICA_POINTWISE_SLOT(lt)
MICA_POINTWISE_SLOT(le)
MICA_POINTWISE_SLOT(gt)
MICA_POINTWISE_SLOT(ge)
}  // namespace mica::cpu
#endif
