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

// out[i] = f(d, a[i], ...) where f maps vectors to a vector, or f.group(d, x) maps kGroup of them in place. An input of
// one value is read from a vector full of it: its index is masked to zero.
template <class T, class F, size_t... I>
HWY_ATTR HWY_INLINE void map_lanes(char* const* data, const int64_t* strides, int64_t n, const F& f,
                                   std::index_sequence<I...>) {
  using D = LanesOf<T>;
  const D d;
  constexpr size_t kInputs = sizeof...(I);
  const size_t lanes = hn::Lanes(d), count = static_cast<size_t>(n);
  HWY_ALIGN T values[kInputs][hn::MaxLanes(D())];
  const T* in[kInputs] = {reinterpret_cast<const T*>(data[I + 1])...};
  size_t mask[kInputs];
  for (size_t k = 0; k < kInputs; ++k) {
    mask[k] = strides[k + 1] != 0 ? ~size_t{0} : 0;
    if (mask[k]) continue;
    const T value = *in[k];
    for (size_t lane = 0; lane < lanes; ++lane) values[k][lane] = value;
    in[k] = values[k];
  }
  T* out = reinterpret_cast<T*>(data[0]);
  size_t i = 0;
  if constexpr (requires { F::kGroup; }) {
    for (; i + F::kGroup * lanes <= count; i += F::kGroup * lanes) {
      hn::VFromD<D> group[F::kGroup];
      for (size_t k = 0; k < F::kGroup; ++k) group[k] = Element<T>::load(d, in[0] + ((i + k * lanes) & mask[0]));
      f.group(d, group);
      for (size_t k = 0; k < F::kGroup; ++k) Element<T>::store(group[k], d, out + i + k * lanes);
    }
  }
  for (; i + lanes <= count; i += lanes)
    Element<T>::store(f(d, Element<T>::load(d, in[I] + (i & mask[I]))...), d, out + i);
  if (i < count) {
    const size_t rest = count - i;
    Element<T>::store_first(f(d, Element<T>::load_first(d, in[I] + (i & mask[I]), rest)...), d, out + i, rest);
  }
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

// MICA_POINTWISE_SLOT(name): fills a slot with name_kernel, in the version for this machine.
#define MICA_POINTWISE_SLOT(name) \
  HWY_EXPORT(name##_kernel);      \
  MICA_REGISTER_SIMD(name, name##_kernel);
#endif
