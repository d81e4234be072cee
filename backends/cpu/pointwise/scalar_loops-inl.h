// Inner loops over scalar functors, for run_dense, written so that the compiler vectorises them for the current target.
// Included once per Highway target.
#if defined(MICA_SCALAR_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_SCALAR_LOOPS_INL_H_
#undef MICA_SCALAR_LOOPS_INL_H_
#else
#define MICA_SCALAR_LOOPS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <type_traits>

#include "backends/cpu/complex_product.h"
#include "backends/cpu/pointwise/run_loop.h"
#include "backends/shared/read_element.h"
#include "mica/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The type in which an element is computed: 8- and 16-bit floats are widened.
template <class T>
struct Compute {
  using type = std::conditional_t<std::is_class_v<T> && std::is_convertible_v<T, float>, float, T>;
};
template <>
struct Compute<ComplexHalf> {
  using type = complex64;
};
template <class T>
using compute_t = typename Compute<T>::type;

template <class T>
HWY_INLINE compute_t<T> read_computed(const T& at) {
  return static_cast<compute_t<T>>(read_element(at));
}

// out[i] = f(a[i]) for one row. It is a function of its own, so that a single row does not pay for the loop over rows,
// and nothing is stored between rows.
template <class Out, class A, class F>
HWY_ATTR HWY_NOINLINE void unary_row(Out* o, const A* a, bool moves, int64_t n, const F* context) {
  const F f = *context;
  if (!moves) {
    const Out value = static_cast<Out>(f(read_computed(*a)));
    for (int64_t i = 0; i < n; ++i) o[i] = value;
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) o[i] = static_cast<Out>(f(read_computed(a[i])));
}

template <class Out, class A, class F>
HWY_ATTR void unary_loop(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides, int64_t rows,
                         const void* context) {
  auto* o = reinterpret_cast<Out*>(data[0]);
  auto* a = reinterpret_cast<const A*>(data[1]);
  for (;;) {
    unary_row<Out>(o, a, strides[1] != 0, n, static_cast<const F*>(context));
    if (--rows <= 0) return;
    o = bytes_on(o, row_strides[0]);
    a = bytes_on(a, row_strides[1]);
  }
}

// out[i] = f(a[i], b[i])
template <class Out, class A, class F>
HWY_ATTR HWY_NOINLINE void binary_row(Out* o, const A* a, const A* b, const int64_t* strides, int64_t n,
                                      const F* context) {
  const F f = *context;
  using C = compute_t<A>;
  if (strides[1] != 0 && strides[2] != 0) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = static_cast<Out>(f(read_computed(a[i]), read_computed(b[i])));
  } else if (strides[1] != 0) {
    const C right = read_computed(*b);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = static_cast<Out>(f(read_computed(a[i]), right));
  } else if (strides[2] != 0) {
    const C left = read_computed(*a);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = static_cast<Out>(f(left, read_computed(b[i])));
  } else {
    std::fill_n(o, n, static_cast<Out>(f(read_computed(*a), read_computed(*b))));
  }
}

template <class Out, class A, class F>
HWY_ATTR void binary_loop(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides,
                          int64_t rows, const void* context) {
  auto* o = reinterpret_cast<Out*>(data[0]);
  auto* a = reinterpret_cast<const A*>(data[1]);
  auto* b = reinterpret_cast<const A*>(data[2]);
  for (;;) {
    binary_row<Out>(o, a, b, strides, n, static_cast<const F*>(context));
    if (--rows <= 0) return;
    o = bytes_on(o, row_strides[0]);
    a = bytes_on(a, row_strides[1]);
    b = bytes_on(b, row_strides[2]);
  }
}

// out[i] = f(a[i], b[i], c[i])
template <class Out, class A, class F>
HWY_ATTR void ternary_loop(char* const* data, const int64_t* strides, int64_t n, const void* context) {
  const F f = *static_cast<const F*>(context);
  using C = compute_t<A>;
  auto* o = reinterpret_cast<Out*>(data[0]);
  auto* a = reinterpret_cast<const A*>(data[1]);
  auto* b = reinterpret_cast<const A*>(data[2]);
  auto* c = reinterpret_cast<const A*>(data[3]);
  const bool sa = strides[1] != 0, sb = strides[2] != 0, sc = strides[3] != 0;
  if (sa && !sb && !sc) {
    const C second = read_computed(*b), third = read_computed(*c);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = static_cast<Out>(f(read_computed(a[i]), second, third));
    return;
  }
  // An input of one value is repeated in a buffer of this length.
  constexpr int64_t kRun = 256;
  const int64_t chunk = sa && sb && sc ? n : kRun;
  alignas(64) A runs[3][kRun];
  if (!sa) std::fill_n(runs[0], std::min(n, kRun), read_element(*a)), a = runs[0];
  if (!sb) std::fill_n(runs[1], std::min(n, kRun), read_element(*b)), b = runs[1];
  if (!sc) std::fill_n(runs[2], std::min(n, kRun), read_element(*c)), c = runs[2];
  for (int64_t from = 0; from < n; from += chunk) {
    const int64_t count = std::min(chunk, n - from);
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i)
      o[i] = static_cast<Out>(f(read_computed(a[i]), read_computed(b[i]), read_computed(c[i])));
    o += count;
    if (sa) a += count;
    if (sb) b += count;
    if (sc) c += count;
  }
}

// Runs a scalar functor over a loop of one element type.
template <class T, class F>
void run_unary(const PointwiseLoop& loop, const F& f, int64_t grain = kMemoryGrain) {
  run_dense(loop, unary_loop<T, T, F>, &f, grain);
}
template <class T, class F>
void run_binary(const PointwiseLoop& loop, const F& f, int64_t grain = kMemoryGrain) {
  run_dense(loop, binary_loop<T, T, F>, &f, grain);
}
template <class T, class F>
void run_ternary(const PointwiseLoop& loop, const F& f, int64_t grain = kMemoryGrain) {
  run_dense(loop, ternary_loop<T, T, F>, &f, grain);
}

// Integer arithmetic wraps around: computed unsigned, and at least as wide as unsigned.
template <class T>
using wrapping_t = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

template <class T>
HWY_INLINE T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<wrapping_t<T>>(a) + static_cast<wrapping_t<T>>(b));
  } else {
    return a + b;
  }
}
template <class T>
HWY_INLINE T wrapping_mul(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<wrapping_t<T>>(a) * static_cast<wrapping_t<T>>(b));
  } else {
    return product(a, b);
  }
}
template <class T>
HWY_INLINE T wrapping_neg(T a) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(0 - static_cast<wrapping_t<T>>(a));
  } else {
    return -a;
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
