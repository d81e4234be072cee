// eq, ne, lt, le, gt, ge; bitwise and logical operations.
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

#define MICA_COMPARISON(slot, Name, symbol, visit)                                                             \
  namespace {                                                                                                  \
  template <class T>                                                                                           \
  struct Name {                                                                                                \
    __device__ bool operator()(T a, T b) const { return a symbol b; }                                          \
  };                                                                                                           \
  }                                                                                                            \
  void slot(const PointwiseLoop& loop) {                                                                       \
    visit(#slot, loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<bool, T, T>(loop, Name<compute_t<T>>{}); }); \
  }
MICA_COMPARISON(eq, Eq, ==, visit_number_bool)
MICA_COMPARISON(ne, Ne, !=, visit_number_bool)
MICA_COMPARISON(lt, Lt, <, visit_real_bool)
MICA_COMPARISON(le, Le, <=, visit_real_bool)
MICA_COMPARISON(gt, Gt, >, visit_real_bool)
MICA_COMPARISON(ge, Ge, >=, visit_real_bool)
#undef MICA_COMPARISON

#define MICA_BITWISE(slot, Name, symbol)                                                                       \
  namespace {                                                                                                  \
  template <class T>                                                                                           \
  struct Name {                                                                                                \
    __device__ T operator()(T a, T b) const { return static_cast<T>(a symbol b); }                             \
  };                                                                                                           \
  }                                                                                                            \
  void slot(const PointwiseLoop& loop) {                                                                       \
    visit_integral_bool(#slot, loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<T, T, T>(loop, Name<T>{}); }); \
  }
MICA_BITWISE(bitwise_and, BitAnd, &)
MICA_BITWISE(bitwise_or, BitOr, |)
MICA_BITWISE(bitwise_xor, BitXor, ^)
#undef MICA_BITWISE

namespace {
template <class T>
struct BitNot {
  __device__ T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>) {
      return !a;
    } else {
      return static_cast<T>(~a);
    }
  }
};
}  // namespace
void bitwise_not(const PointwiseLoop& loop) {
  visit_integral_bool("bitwise_not", loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<T, T>(loop, BitNot<T>{}); });
}

}  // namespace mica::cuda
