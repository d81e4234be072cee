// Inner loops over scalar functors, written so that the compiler vectorises the contiguous cases for the current target.
// Included once per Highway target.
#if defined(MICA_SCALAR_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_SCALAR_LOOPS_INL_H_
#undef MICA_SCALAR_LOOPS_INL_H_
#else
#define MICA_SCALAR_LOOPS_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "mica/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The type in which an element is computed: 16-bit floats are widened.
template <class T>
struct Compute {
  using type = T;
};
template <>
struct Compute<Half> {
  using type = float;
};
template <>
struct Compute<BFloat16> {
  using type = float;
};
template <class T>
using compute_t = typename Compute<T>::type;

template <class T>
HWY_INLINE compute_t<T> load_element(const char* p) {
  T v;
  __builtin_memcpy(static_cast<void*>(&v), p, sizeof(T));
  return static_cast<compute_t<T>>(v);
}

// out[i] = f(a[i])
template <class Out, class A, class F>
HWY_ATTR void unary_loop(char* const* data, const int64_t* strides, int64_t n, const void* context) {
  const F f = *static_cast<const F*>(context);
  if (strides[0] == sizeof(Out) && strides[1] == sizeof(A)) {
    auto* o = reinterpret_cast<Out*>(data[0]);
    auto* a = reinterpret_cast<const A*>(data[1]);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = static_cast<Out>(f(static_cast<compute_t<A>>(a[i])));
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<Out*>(data[0] + i * strides[0]) = static_cast<Out>(f(load_element<A>(data[1] + i * strides[1])));
}

// out[i] = f(a[i], b[i])
template <class Out, class A, class F>
HWY_ATTR void binary_loop(char* const* data, const int64_t* strides, int64_t n, const void* context) {
  const F f = *static_cast<const F*>(context);
  using C = compute_t<A>;
  auto* o = reinterpret_cast<Out*>(data[0]);
  auto* a = reinterpret_cast<const A*>(data[1]);
  auto* b = reinterpret_cast<const A*>(data[2]);
  if (strides[0] == sizeof(Out)) {
    if (strides[1] == sizeof(A) && strides[2] == sizeof(A)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) o[i] = static_cast<Out>(f(static_cast<C>(a[i]), static_cast<C>(b[i])));
      return;
    }
    if (strides[1] == sizeof(A) && strides[2] == 0) {
      const C right = static_cast<C>(*b);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) o[i] = static_cast<Out>(f(static_cast<C>(a[i]), right));
      return;
    }
    if (strides[1] == 0 && strides[2] == sizeof(A)) {
      const C left = static_cast<C>(*a);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) o[i] = static_cast<Out>(f(left, static_cast<C>(b[i])));
      return;
    }
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<Out*>(data[0] + i * strides[0]) =
        static_cast<Out>(f(load_element<A>(data[1] + i * strides[1]), load_element<A>(data[2] + i * strides[2])));
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
