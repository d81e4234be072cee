// eq, ne, lt, le, gt, ge and the bitwise operations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/comparison.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/run_loop.h"
#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/visit_dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

#define MICA_COMPARISON(slot, Name, symbol, visit)                                                     \
  template <class T>                                                                                   \
  struct Name {                                                                                        \
    bool operator()(T a, T b) const { return a symbol b; }                                             \
  };                                                                                                   \
  void slot##_kernel(const PointwiseLoop& loop) {                                                      \
    visit(#slot, loop.dtype, [&]<class T>(Tag<T>) {                                                    \
      const Name<compute_t<T>> f;                                                                      \
      run_loop(loop, binary_loop<bool, T, Name<compute_t<T>>>, &f);                                    \
    });                                                                                                \
  }
MICA_COMPARISON(eq, Eq, ==, visit_number_bool)
MICA_COMPARISON(ne, Ne, !=, visit_number_bool)
MICA_COMPARISON(lt, Lt, <, visit_real_bool)
MICA_COMPARISON(le, Le, <=, visit_real_bool)
MICA_COMPARISON(gt, Gt, >, visit_real_bool)
MICA_COMPARISON(ge, Ge, >=, visit_real_bool)
#undef MICA_COMPARISON

#define MICA_BITWISE(slot, Name, symbol)                                                \
  template <class T>                                                                    \
  struct Name {                                                                         \
    T operator()(T a, T b) const { return static_cast<T>(a symbol b); }                 \
  };                                                                                    \
  void slot##_kernel(const PointwiseLoop& loop) {                                       \
    visit_integral_bool(#slot, loop.dtype, [&]<class T>(Tag<T>) {                       \
      const Name<T> f;                                                                  \
      run_loop(loop, binary_loop<T, T, Name<T>>, &f);                                   \
    });                                                                                 \
  }
MICA_BITWISE(bitwise_and, BitAnd, &)
MICA_BITWISE(bitwise_or, BitOr, |)
MICA_BITWISE(bitwise_xor, BitXor, ^)
#undef MICA_BITWISE

template <class T>
struct BitNot {
  T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>) {
      return !a;
    } else {
      return static_cast<T>(~a);
    }
  }
};
void bitwise_not_kernel(const PointwiseLoop& loop) {
  visit_integral_bool("bitwise_not", loop.dtype, [&]<class T>(Tag<T>) {
    const BitNot<T> f;
    run_loop(loop, unary_loop<T, T, BitNot<T>>, &f);
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
#define MICA_COMPARISON_SLOT(slot) \
  HWY_EXPORT(slot##_kernel);       \
  MICA_REGISTER_SIMD(slot, slot##_kernel);
MICA_COMPARISON_SLOT(eq)
MICA_COMPARISON_SLOT(ne)
MICA_COMPARISON_SLOT(lt)
MICA_COMPARISON_SLOT(le)
MICA_COMPARISON_SLOT(gt)
MICA_COMPARISON_SLOT(ge)
MICA_COMPARISON_SLOT(bitwise_and)
MICA_COMPARISON_SLOT(bitwise_or)
MICA_COMPARISON_SLOT(bitwise_xor)
MICA_COMPARISON_SLOT(bitwise_not)
#undef MICA_COMPARISON_SLOT
}  // namespace mica::cpu
#endif
