// Inner loops over functors on Highway vectors, for run_dense. Half and bfloat16 are computed in float lanes and
// rounded once. Included once per Highway target.
#if defined(MICA_VECTOR_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_VECTOR_LOOPS_INL_H_
#undef MICA_VECTOR_LOOPS_INL_H_
#else
#define MICA_VECTOR_LOOPS_INL_H_
#endif

#include <hwy/highway.h>

#include <utility>

#include "backends/cpu/pointwise/run_loop.h"
#include "backends/cpu/simd/convert-inl.h"
#include "backends/cpu/simd/memory-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Elements of T as the lanes they are computed in.
template <class T>
struct Element {
  using Lane = T;
  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const T* p) {
    return hn::LoadU(d, p);
  }
  template <class D>
  static HWY_INLINE hn::VFromD<D> load_first(D d, const T* p, size_t n) {
    return HWY_NAMESPACE::load_first(d, p, n);
  }
  template <class D>
  static HWY_INLINE void store(hn::VFromD<D> v, D d, T* p) {
    hn::StoreU(v, d, p);
  }
  template <class D>
  static HWY_INLINE void store_first(hn::VFromD<D> v, D d, T* p, size_t n) {
    HWY_NAMESPACE::store_first(v, d, p, n);
  }
};

template <class T, class Format>
struct ShortFloat {
  using Lane = float;
  static const uint16_t* bits(const T* p) { return reinterpret_cast<const uint16_t*>(p); }
  static uint16_t* bits(T* p) { return reinterpret_cast<uint16_t*>(p); }
  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const T* p) {
    return load_as_float<Format>(d, bits(p));
  }
  template <class D>
  static HWY_INLINE hn::VFromD<D> load_first(D d, const T* p, size_t n) {
    return load_first_as_float<Format>(d, bits(p), n);
  }
  template <class D>
  static HWY_INLINE void store(hn::VFromD<D> v, D d, T* p) {
    store_from_float<Format>(v, d, bits(p));
  }
  template <class D>
  static HWY_INLINE void store_first(hn::VFromD<D> v, D d, T* p, size_t n) {
    store_first_from_float<Format>(v, d, bits(p), n);
  }
};
template <>
struct Element<Half> : ShortFloat<Half, HalfBits> {};
template <>
struct Element<BFloat16> : ShortFloat<BFloat16, BFloat16Bits> {};

template <class T>
using LanesOf = hn::ScalableTag<typename Element<T>::Lane>;

// Vectors that are computed side by side. Few of a NEON loop's short vectors fit between an operation and the one that
// waits for it, unless they are interleaved.
template <class F>
constexpr size_t vectors_together() {
  if constexpr (requires { F::kGroup; }) {
    return F::kGroup;
  } else if constexpr (requires { F::kTogether; }) {
    return F::kTogether;
  } else {
    return HWY_ARCH_ARM_A64 ? 4 : 1;
  }
}

// out[i] = f(d, a[i], ...) where f maps vectors to a vector, or f.group(d, x) maps kGroup of them in place. An input of
// one value is read from vectors full of it, and does not move on.
template <class T, class F, size_t... I>
HWY_ATTR HWY_INLINE void map_lanes(char* const* data, const int64_t* strides, int64_t n, const F& f,
                                   std::index_sequence<I...>) {
  using D = LanesOf<T>;
  const D d;
  constexpr size_t kInputs = sizeof...(I), kTogether = vectors_together<F>();
  const size_t lanes = hn::Lanes(d), count = static_cast<size_t>(n);
  HWY_ALIGN T values[kInputs][kTogether * hn::MaxLanes(D())];
  const T* in[kInputs] = {reinterpret_cast<const T*>(data[I + 1])...};
  size_t step[kInputs];
  for (size_t k = 0; k < kInputs; ++k) {
    step[k] = strides[k + 1] != 0 ? lanes : 0;
    if (step[k]) continue;
    const T value = *in[k];
    for (size_t lane = 0; lane < kTogether * lanes; ++lane) values[k][lane] = value;
    in[k] = values[k];
  }
  T* out = reinterpret_cast<T*>(data[0]);
  size_t left = count;
  if constexpr (kTogether > 1) {
    for (; left >= kTogether * lanes; left -= kTogether * lanes, out += kTogether * lanes) {
      hn::VFromD<D> results[kTogether];
      if constexpr (requires { F::kGroup; }) {
        for (size_t k = 0; k < kTogether; ++k) results[k] = Element<T>::load(d, in[0] + k * lanes);
        f.group(d, results);
      } else {
        for (size_t k = 0; k < kTogether; ++k) results[k] = f(d, Element<T>::load(d, in[I] + k * lanes)...);
      }
      for (size_t k = 0; k < kTogether; ++k) Element<T>::store(results[k], d, out + k * lanes);
      ((in[I] += kTogether * step[I]), ...);
    }
  }
  for (; left >= lanes; left -= lanes, out += lanes) {
    Element<T>::store(f(d, Element<T>::load(d, in[I])...), d, out);
    ((in[I] += step[I]), ...);
  }
  if (left > 0) Element<T>::store_first(f(d, Element<T>::load_first(d, in[I], left)...), d, out, left);
}

template <class T, class F, int kInputs>
HWY_ATTR void lanes_loop(char* const* data, const int64_t* strides, int64_t n, const void* context) {
  const F f = *static_cast<const F*>(context);
  map_lanes<T>(data, strides, n, f, std::make_index_sequence<kInputs>());
}

// Runs a vector functor over a loop whose operands are all of dtype T.
template <class T, int kInputs, class F>
HWY_INLINE void run_lanes(const PointwiseLoop& loop, const F& f, int64_t grain) {
  run_dense(loop, lanes_loop<T, F, kInputs>, &f, grain);
}

// The same for every floating dtype; `name` is what torch calls the kernel in its errors.
template <int kInputs, class F>
void run_floating(const char* name, const PointwiseLoop& loop, const F& f, int64_t grain) {
  visit_floating(name, loop.dtype, [&]<class T>(Tag<T>) { run_lanes<T, kInputs>(loop, f, grain); });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// MICA_LANES_1(Name, expression): a functor of one vector x with lanes d, written as an expression; MICA_LANES_2: of x
// and y.
#define MICA_LANES_1(Name, ...)                                \
  struct Name {                                                \
    template <class D, class V>                                \
    HWY_INLINE V operator()([[maybe_unused]] D d, V x) const { \
      using T [[maybe_unused]] = hn::TFromD<D>;                \
      return __VA_ARGS__;                                      \
    }                                                          \
  };
#define MICA_LANES_2(Name, ...)                                                                       \
  struct Name {                                                                                       \
    template <class D, class V>                                                                       \
    HWY_INLINE V operator()([[maybe_unused]] D d, [[maybe_unused]] V x, [[maybe_unused]] V y) const { \
      using T [[maybe_unused]] = hn::TFromD<D>;                                                       \
      return __VA_ARGS__;                                                                             \
    }                                                                                                 \
  };

// MICA_LANES_GROUP(Name, function): a functor of the vector function and of its form for several vectors at once, which
// is worth its test of their range where exponents are not scaled by one instruction.
#define MICA_LANES_GROUP(Name, function)                       \
  struct Name {                                                \
    static constexpr size_t kGroup = HWY_ARCH_ARM_A64 ? 4 : 2; \
    template <class D, class V>                                \
    HWY_INLINE V operator()(D d, V x) const {                  \
      return function(d, x);                                   \
    }                                                          \
    template <class D, class V>                                \
    HWY_INLINE void group(D d, V (&x)[kGroup]) const {         \
      if constexpr (MICA_SIMD_AVX512) {                        \
        for (V & v : x) v = function(d, v);                    \
      } else {                                                 \
        function(d, x);                                        \
      }                                                        \
    }                                                          \
  };

// MICA_POINTWISE_SLOT(name): fills a slot with name_kernel, in the version for this machine.
#define MICA_POINTWISE_SLOT(name) \
  HWY_EXPORT(name##_kernel);      \
  MICA_REGISTER_SIMD(name, name##_kernel);
#endif
