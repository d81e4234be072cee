// Logic, bits, and questions about numbers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/logic.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <complex>
#include <concepts>
#include <limits>

#include "backends/cpu/pointwise/float8.h"
#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/pointwise/visit_words.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// ---- bits

#define MICA_BITWISE(slot, Name, symbol)                                                                  \
  template <class T>                                                                                      \
  struct Name {                                                                                           \
    T operator()(T a, T b) const { return static_cast<T>(a symbol b); }                                   \
  };                                                                                                      \
  void slot##_kernel(const PointwiseLoop& loop) {                                                         \
    visit_words_bool(#slot "_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, Name<T>{}); }); \
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
  visit_words_bool("bitwise_not_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_unary<T>(loop, BitNot<T>{}); });
}

// A shift by a negative number or by the whole width moves every bit out. A signed number then leaves its sign.
template <class T>
HWY_INLINE bool within_width(T shift) {
  return static_cast<std::make_unsigned_t<T>>(shift) < sizeof(T) * 8;
}
template <class T>
struct LeftShift {
  T operator()(T a, T b) const { return within_width(b) ? static_cast<T>(static_cast<wrapping_t<T>>(a) << b) : T(0); }
};
template <class T>
struct RightShift {
  T operator()(T a, T b) const {
    if (within_width(b)) return static_cast<T>(a >> b);
    return std::is_signed_v<T> ? static_cast<T>(a >> (sizeof(T) * 8 - 1)) : T(0);
  }
};
void bitwise_left_shift_kernel(const PointwiseLoop& loop) {
  visit_words("lshift_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, LeftShift<T>{}); });
}
void bitwise_right_shift_kernel(const PointwiseLoop& loop) {
  visit_integral("rshift_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, RightShift<T>{}); });
}

// ---- logic

template <class T>
HWY_INLINE bool holds(T a) {
  return a != T(0);
}
template <class T>
struct LogicalAnd {
  bool operator()(T a, T b) const { return holds(a) & holds(b); }
};
template <class T>
struct LogicalOr {
  bool operator()(T a, T b) const { return holds(a) | holds(b); }
};
template <class T>
struct LogicalXor {
  bool operator()(T a, T b) const { return holds(a) != holds(b); }
};
template <class T>
struct LogicalNot {
  bool operator()(T a) const { return !holds(a); }
};
template <class F>
void visit_truth(const char* name, DType dtype, const F& f) {
  if (is_floating(dtype) || is_complex(dtype)) return visit_floating_complex(name, dtype, f);
  visit_words_bool(name, dtype, f);
}
// float16 numbers by their bits but the sign, which a zero may have.
template <class F>
struct OfHalves {
  static uint16_t size(uint16_t bits) { return bits & 0x7fff; }
  bool operator()(uint16_t a, uint16_t b) const { return F{}(size(a), size(b)); }
  bool operator()(uint16_t a) const { return F{}(size(a)); }
};
template <template <class> class F>
void logical(const char* name, const PointwiseLoop& loop) {
  if (loop.dtype == DType::Float16) {
    const OfHalves<F<uint16_t>> f;
    return run_dense(loop, binary_loop<bool, uint16_t, OfHalves<F<uint16_t>>>, &f);
  }
  visit_truth(name, loop.dtype, [&]<class T>(Tag<T>) {
    const F<compute_t<T>> f;
    run_dense(loop, binary_loop<bool, T, F<compute_t<T>>>, &f);
  });
}
void logical_and_kernel(const PointwiseLoop& loop) { logical<LogicalAnd>("logical_and_cpu", loop); }
void logical_or_kernel(const PointwiseLoop& loop) { logical<LogicalOr>("logical_or_cpu", loop); }
void logical_xor_kernel(const PointwiseLoop& loop) { logical<LogicalXor>("logical_xor_cpu", loop); }
void logical_not_kernel(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Float16) {
    const OfHalves<LogicalNot<uint16_t>> f;
    return run_dense(loop, unary_loop<bool, uint16_t, OfHalves<LogicalNot<uint16_t>>>, &f);
  }
  visit_truth("logical_not_cpu", loop.dtype, [&]<class T>(Tag<T>) {
    const LogicalNot<compute_t<T>> f;
    run_dense(loop, unary_loop<bool, T, LogicalNot<compute_t<T>>>, &f);
  });
}

// ---- questions

template <bool kAnswer>
struct Always {
  template <class T>
  bool operator()(T) const {
    return kAnswer;
  }
};
// Comparisons rather than the C library's classification, which does not become vector code. `of_half` answers for a
// float16 number by its bits but the sign.
constexpr uint16_t kHalfInfinity = 0x7c00;
template <class T>
HWY_INLINE bool finite(T a) {
  return std::abs(a) <= std::numeric_limits<T>::max();
}
struct IsNan {
  template <class T>
  bool operator()(T a) const {
    return a != a;
  }
  static bool of_half(uint16_t size) { return size > kHalfInfinity; }
};
struct IsInf {
  template <class T>
  bool operator()(T a) const {
    return std::abs(a) == std::numeric_limits<T>::infinity();
  }
  template <class R>
  bool operator()(std::complex<R> z) const {
    return (*this)(z.real()) | (*this)(z.imag());
  }
  static bool of_half(uint16_t size) { return size == kHalfInfinity; }
};
struct IsFinite {
  template <class T>
  bool operator()(T a) const {
    return finite(a);
  }
  template <class R>
  bool operator()(std::complex<R> z) const {
    return finite(z.real()) & finite(z.imag());
  }
  static bool of_half(uint16_t size) { return size < kHalfInfinity; }
};
struct IsPosInf {
  template <class T>
  bool operator()(T a) const {
    return std::numeric_limits<T>::has_infinity && a == std::numeric_limits<T>::infinity();
  }
};
struct IsNegInf {
  template <class T>
  bool operator()(T a) const {
    return std::numeric_limits<T>::has_infinity && a == -std::numeric_limits<T>::infinity();
  }
};
struct SignBit {
  template <class T>
  bool operator()(T a) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::bit_cast<std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>(a) < 0;
    } else {
      return std::is_signed_v<T> && a < T(0);
    }
  }
};

template <class F>
struct AskedOfHalf {
  bool operator()(uint16_t bits) const { return F::of_half(bits & 0x7fff); }
};

// f for inexact numbers, a constant answer for integers and bool, whose bytes need not even be read.
template <bool kExact, class F>
void ask(const char* name, const PointwiseLoop& loop, const F& f) {
  if (loop.dtype == DType::Float16) {
    const AskedOfHalf<F> asked;
    return run_dense(loop, unary_loop<bool, uint16_t, AskedOfHalf<F>>, &asked);
  }
  const auto run = [&]<class T>(Tag<T>) { run_dense(loop, unary_loop<bool, T, F>, &f); };
  if (is_float8(loop.dtype)) return visit_float8(name, loop.dtype, run);
  if (is_floating(loop.dtype)) return visit_floating(name, loop.dtype, run);
  if (is_complex(loop.dtype))
    return visit_any_complex(name, loop.dtype, [&]<class T>(Tag<T>) {
      if constexpr (requires(const F& g, compute_t<T> a) {
                      { g(a) } -> std::same_as<bool>;
                    })
        run(Tag<T>{});
    });
  visit_words_bool(name, loop.dtype, [&]<class T>(Tag<T>) {
    const Always<kExact> always;
    run_dense(loop, unary_loop<bool, T, Always<kExact>>, &always);
  });
}
void isnan_kernel(const PointwiseLoop& loop) {
  if (loop.dtype != DType::Float4_e2m1fn_x2) return ask<false>("isnan_cpu", loop, IsNan{});
  const Always<false> never;  // 4-bit floats have no NaN
  run_dense(loop, unary_loop<bool, uint8_t, Always<false>>, &never);
}
void isinf_kernel(const PointwiseLoop& loop) { ask<false>("isinf_cpu", loop, IsInf{}); }
void isfinite_kernel(const PointwiseLoop& loop) { ask<true>("isfinite_cpu", loop, IsFinite{}); }

template <class F>
void ask_real(const char* name, const PointwiseLoop& loop, const F& f) {
  visit_real_bool(name, loop.dtype, [&]<class T>(Tag<T>) { run_dense(loop, unary_loop<bool, T, F>, &f); });
}
void isposinf_kernel(const PointwiseLoop& loop) { ask_real("isposinf_cpu", loop, IsPosInf{}); }
void isneginf_kernel(const PointwiseLoop& loop) { ask_real("isneginf_cpu", loop, IsNegInf{}); }
void signbit_kernel(const PointwiseLoop& loop) { ask_real("signbit_cpu", loop, SignBit{}); }

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(bitwise_and)
MICA_POINTWISE_SLOT(bitwise_or)
MICA_POINTWISE_SLOT(bitwise_xor)
MICA_POINTWISE_SLOT(bitwise_not)
MICA_POINTWISE_SLOT(bitwise_left_shift)
MICA_POINTWISE_SLOT(bitwise_right_shift)
MICA_POINTWISE_SLOT(logical_and)
MICA_POINTWISE_SLOT(logical_or)
MICA_POINTWISE_SLOT(logical_xor)
MICA_POINTWISE_SLOT(logical_not)
MICA_POINTWISE_SLOT(isnan)
MICA_POINTWISE_SLOT(isinf)
MICA_POINTWISE_SLOT(isfinite)
MICA_POINTWISE_SLOT(isposinf)
MICA_POINTWISE_SLOT(isneginf)
MICA_POINTWISE_SLOT(signbit)
}  // namespace mica::cpu
#endif
