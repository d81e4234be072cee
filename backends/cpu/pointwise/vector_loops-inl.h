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
  using Memory = D;
  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const T* p) {
    return hn::LoadU(d, p);
  }
  template <class D>
  static HWY_INLINE hn::VFromD<D> load_first(D d, const T* p, size_t n) {
    return HWY_NAMESPACE::load_first(d, p, n);
  }
  template <class D>
  static HWY_INLINE hn::VFromD<D> broadcast(D d, const T* p) {
    return hn::Set(d, *p);
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
  template <class D>
  using Memory = BitsOf<D>;
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
  static HWY_INLINE hn::VFromD<D> broadcast(D d, const T* p) {
    return Format::to_float(d, hn::Set(BitsOf<D>(), *bits(p)));
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

// How many vectors are computed together. A NEON loop has short vectors, and few of them fit between an operation and
// the next one that needs its result, unless they are interleaved.
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

// Whether an input that has one value in a row (a column added to a matrix, a number) is kept in a register. That takes
// two more loops, which pay for functors with less work than a store between rows.
template <class F>
inline constexpr bool keeps_values = false;

constexpr size_t kNoInput = ~size_t{0};

// The lanes of input I at p; of its first n. Input kKept is in a register.
template <class T, size_t kKept, size_t I, class D>
HWY_INLINE hn::VFromD<D> input_lanes(D d, hn::VFromD<D> kept, const T* p) {
  if constexpr (I == kKept) {
    return kept;
  } else {
    return Element<T>::load(d, p);
  }
}
template <class T, size_t kKept, size_t I, class D>
HWY_INLINE hn::VFromD<D> first_input_lanes(D d, hn::VFromD<D> kept, const T* p, size_t n) {
  if constexpr (I == kKept) {
    return kept;
  } else {
    return Element<T>::load_first(d, p, n);
  }
}

// One row: out[i] = f(d, a[i], ...) where f maps vectors to a vector, or f.group(d, x) maps kGroup of them in place; of
// several inputs f.join(d, a[i], ...) makes the one that it maps.
// Input kKept is one value. Another input of one value is a run of kTogether vectors, and its step is 0.
template <class T, size_t kKept, class F, size_t... I>
HWY_ATTR HWY_INLINE void map_row(T* out, const T* const* row, const size_t* step, size_t count, const F& f,
                                 std::index_sequence<I...>) {
  using D = LanesOf<T>;
  using V = hn::VFromD<D>;
  const D d;
  constexpr size_t kInputs = sizeof...(I), kTogether = vectors_together<F>();
  constexpr bool kReachesBack = !has_masked_memory<typename Element<T>::template Memory<D>>();
  const size_t lanes = hn::Lanes(d), over = count % lanes;
  const T* in[kInputs] = {row[I]...};
  V kept = hn::Zero(d), last = hn::Zero(d);
  if constexpr (kKept != kNoInput) kept = Element<T>::broadcast(d, row[kKept]);
  if constexpr (kReachesBack) {
    // Without masked memory access, the last vector overlaps elements that another one writes too. It is computed
    // before anything is written, so that the result is right in place as well.
    if (over != 0) {
      V x[kInputs];
      if (count > lanes) {
        ((x[I] = input_lanes<T, kKept, I>(d, kept, in[I] + (step[I] != 0 ? count - lanes : 0))), ...);
      } else {
        ((x[I] = first_input_lanes<T, kKept, I>(d, kept, in[I], over)), ...);
      }
      last = f(d, x[I]...);
    }
  }
  size_t left = count;
  if constexpr (kTogether > 1) {
    for (; left >= kTogether * lanes; left -= kTogether * lanes, out += kTogether * lanes) {
      V results[kTogether];
      if constexpr (requires { F::kGroup; }) {
        for (size_t k = 0; k < kTogether; ++k) {
          if constexpr (kInputs == 1) {
            results[k] = Element<T>::load(d, in[0] + k * lanes);
          } else {
            results[k] = f.join(d, input_lanes<T, kKept, I>(d, kept, in[I] + k * lanes)...);
          }
        }
        f.group(d, results);
      } else {
        for (size_t k = 0; k < kTogether; ++k)
          results[k] = f(d, input_lanes<T, kKept, I>(d, kept, in[I] + k * lanes)...);
      }
      for (size_t k = 0; k < kTogether; ++k) Element<T>::store(results[k], d, out + k * lanes);
      ((in[I] += kTogether * step[I]), ...);
    }
    // The rest of a row is computed together, too, if it is more than half of that.
    if constexpr (requires { F::kGroup; } && kTogether == 4 && !kReachesBack) {
      if (left > 2 * lanes) {
        V results[kTogether];
        const auto count_of = [&](size_t k) { return left > k * lanes ? HWY_MIN(lanes, left - k * lanes) : size_t{0}; };
        for (size_t k = 0; k < kTogether; ++k) {
          const size_t at = k * lanes, n = count_of(k);
          if constexpr (kInputs == 1) {
            results[k] = Element<T>::load_first(d, in[0] + at, n);
          } else {
            results[k] = f.join(d, first_input_lanes<T, kKept, I>(d, kept, in[I] + at, n)...);
          }
        }
        f.group(d, results);
        for (size_t k = 0; k < kTogether; ++k) Element<T>::store_first(results[k], d, out + k * lanes, count_of(k));
        return;
      }
    }
  }
  for (; left >= lanes; left -= lanes, out += lanes) {
    Element<T>::store(f(d, input_lanes<T, kKept, I>(d, kept, in[I])...), d, out);
    ((in[I] += step[I]), ...);
  }
  if (over == 0) return;
  if constexpr (kReachesBack) {
    if (count > lanes) return Element<T>::store(last, d, out + over - lanes);
    Element<T>::store_first(last, d, out, over);
  } else {
    Element<T>::store_first(f(d, first_input_lanes<T, kKept, I>(d, kept, in[I], over)...), d, out, over);
  }
}

// Runs rows one after the other and keeps what they need in registers. Between two rows nothing is stored but the value
// of an input that changes with the row and is not kept. Some processors write long runs past their caches, and stop
// doing so when other stores come between.
template <class T, size_t kKept, class F, size_t... I>
HWY_ATTR HWY_INLINE void map_rows(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides,
                                  int64_t rows, const F& f, std::index_sequence<I...> inputs) {
  using D = LanesOf<T>;
  const D d;
  constexpr size_t kInputs = sizeof...(I), kTogether = vectors_together<F>();
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN T values[kInputs][kTogether * hn::MaxLanes(D())];
  T* out = reinterpret_cast<T*>(data[0]);
  const T* in[kInputs] = {reinterpret_cast<const T*>(data[I + 1])...};
  const size_t step[kInputs] = {(strides[I + 1] != 0 ? lanes : 0)...};
  const int64_t out_stride = row_strides[0], in_stride[kInputs] = {row_strides[I + 1]...};
  for (;;) {
    const T* row[kInputs] = {in[I]...};
    for (size_t k = 0; k < kInputs; ++k) {
      if (k == kKept || step[k] != 0) continue;
      const T value = *in[k];
      for (size_t lane = 0; lane < kTogether * lanes; ++lane) values[k][lane] = value;
      row[k] = values[k];
    }
    map_row<T, kKept>(out, row, step, static_cast<size_t>(n), f, inputs);
    if (--rows <= 0) return;
    out = bytes_on(out, out_stride);
    ((in[I] = bytes_on(in[I], in_stride[I])), ...);
  }
}

template <class T, class F, int kInputs>
HWY_ATTR void lanes_loop(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides, int64_t rows,
                         const void* context) {
  const F f = *static_cast<const F*>(context);
  constexpr std::make_index_sequence<kInputs> inputs;
  if constexpr (kInputs == 2 && keeps_values<F>) {
    if (strides[2] == 0) return map_rows<T, 1>(data, strides, n, row_strides, rows, f, inputs);
    if (strides[1] == 0) return map_rows<T, 0>(data, strides, n, row_strides, rows, f, inputs);
  }
  map_rows<T, kNoInput>(data, strides, n, row_strides, rows, f, inputs);
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

// MICA_LANES_GROUP(Name, function): a functor of a vector function and of its form for several vectors at once. That
// form tests their range first, which pays where exponents are not scaled by one instruction.
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
