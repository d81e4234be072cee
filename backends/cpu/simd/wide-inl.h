// Functions whose tables of sixteen columns fit two registers of AVX-512, so that a look-up takes one instruction and
// the polynomials between the columns are short. Written for any vector, which is how the tests compile them; other
// instruction sets look up lane by lane and are faster without tables.

#if defined(MICA_CPU_SIMD_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_WIDE_INL_H_
#undef MICA_CPU_SIMD_WIDE_INL_H_
#else
#define MICA_CPU_SIMD_WIDE_INL_H_
#endif

#include "backends/cpu/simd/lanes-inl.h"
#include "backends/cpu/simd/wide_tables.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// c[0] + c[1] x + ..., with even and odd powers computed side by side: half as many steps wait for the one before.
template <class D, class V, size_t N>
HWY_INLINE V two_chains(D d, V x, const hn::TFromD<D> (&c)[N]) {
  const V square = hn::Mul(x, x);
  constexpr size_t kLastEven = (N - 1) / 2 * 2, kLastOdd = (N - 2) / 2 * 2 + 1;
  V even = hn::Set(d, c[kLastEven]), odd = hn::Set(d, c[kLastOdd]);
#pragma GCC unroll 8
  for (size_t i = kLastEven; i >= 2; i -= 2) even = hn::MulAdd(even, square, hn::Set(d, c[i - 2]));
#pragma GCC unroll 8
  for (size_t i = kLastOdd; i >= 3; i -= 2) odd = hn::MulAdd(odd, square, hn::Set(d, c[i - 2]));
  return hn::MulAdd(odd, x, even);
}

// The form that a loop over single vectors wants: AVX-512 has more units than one chain keeps busy. NEON's loops take
// several vectors together anyway.
template <class D, class V, size_t N>
HWY_INLINE V short_chains(D d, V x, const hn::TFromD<D> (&c)[N]) {
#if MICA_SIMD_AVX512
  return two_chains(d, x, c);
#else
  return polynomial(d, x, c);
#endif
}

// table[i], i being the lowest four bits of each lane of `index`.
#if MICA_SIMD_AVX512
HWY_INLINE __m512d columns(const double* table, __m512i index) {
  return _mm512_permutex2var_pd(_mm512_load_pd(table), index, _mm512_load_pd(table + 8));
}
HWY_INLINE __m512 columns(const float* table, __m512i index) {
  return _mm512_permutexvar_ps(index, _mm512_load_ps(table));
}
HWY_INLINE hn::Vec512<double> columns(hn::Vec512<double>, const double* table, hn::Vec512<uint64_t> index) {
  return hn::Vec512<double>{columns(table, index.raw)};
}
HWY_INLINE hn::Vec256<double> columns(hn::Vec256<double>, const double* table, hn::Vec256<uint64_t> index) {
  return hn::Vec256<double>{_mm512_castpd512_pd256(columns(table, _mm512_castsi256_si512(index.raw)))};
}
template <size_t N>
HWY_INLINE hn::Vec128<double, N> columns(hn::Vec128<double, N>, const double* table, hn::Vec128<uint64_t, N> index) {
  return hn::Vec128<double, N>{_mm512_castpd512_pd128(columns(table, _mm512_castsi128_si512(index.raw)))};
}
HWY_INLINE hn::Vec512<float> columns(hn::Vec512<float>, const float* table, hn::Vec512<uint32_t> index) {
  return hn::Vec512<float>{columns(table, index.raw)};
}
HWY_INLINE hn::Vec256<float> columns(hn::Vec256<float>, const float* table, hn::Vec256<uint32_t> index) {
  return hn::Vec256<float>{_mm512_castps512_ps256(columns(table, _mm512_castsi256_si512(index.raw)))};
}
template <size_t N>
HWY_INLINE hn::Vec128<float, N> columns(hn::Vec128<float, N>, const float* table, hn::Vec128<uint32_t, N> index) {
  return hn::Vec128<float, N>{_mm512_castps512_ps128(columns(table, _mm512_castsi128_si512(index.raw)))};
}
template <class D, class VU>
HWY_INLINE hn::VFromD<D> columns(D d, const hn::TFromD<D>* table, VU index) {
  return columns(hn::Undefined(d), table, index);
}
#else
template <class D, class VU>
HWY_INLINE hn::VFromD<D> columns(D d, const hn::TFromD<D>* table, VU index) {
  using T = hn::TFromD<D>;
  const hn::RebindToUnsigned<D> du;
  HWY_ALIGN hn::TFromD<decltype(du)> at[hn::MaxLanes(D())];
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  hn::Store(index, du, at);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = table[at[i] & 15];
  return hn::Load(d, lanes);
}
#endif

// 1 / v within 2^-27 for v of ordinary magnitude: enough for a quotient whose remainder is divided once more.
template <class D, class V>
HWY_INLINE V rough_reciprocal(D d, V v) {
#if MICA_SIMD_AVX512
  const V r = native_reciprocal_estimate(v);
  return hn::MulAdd(r, hn::NegMulAdd(v, r, hn::Set(d, hn::TFromD<D>(1))), r);
#else
  return hn::Div(hn::Set(d, hn::TFromD<D>(1)), v);
#endif
}

#if MICA_SIMD_AVX512
// The remainder of exp's reduction where that means something; elsewhere (x infinite, or far too large) any small
// number, lest the power of two be multiplied by NaN.
template <class D, class V>
HWY_INLINE V small_remainder(D d, V r, double bound) {
  const V limit = hn::Set(d, bound);
  if constexpr (sizeof(V) == 64) {
    // The one of smaller magnitude, with the sign of r; the bound if r is NaN.
    return V{_mm512_range_pd(r.raw, limit.raw, 2)};
  } else {
    return hn::IfThenElse(hn::Lt(hn::Abs(r), limit), r, limit);
  }
}

template <DoubleLanes D, class V>
HWY_INLINE V exp_by_table(D d, V x) {
  using P = ExpTable;
  const hn::RebindToUnsigned<D> du;
  const V magic = hn::Set(d, 0x1.8p48);  // rounds to sixteenths, whose number is in the lowest bits
  const V shifted = hn::MulAdd(x, hn::Set(d, Polynomials<double>::kLog2E), magic);
  const auto index = hn::BitCast(du, shifted);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, P::kLn2Hi), x);
  r = small_remainder(d, hn::NegMulAdd(n, hn::Set(d, P::kLn2Lo), r), 0.022);
  const V power = columns(d, P::kPower, index), error = columns(d, P::kPowerError, index);
  const V growth = hn::MulAdd(hn::Mul(r, r), two_chains(d, r, P::kExp), hn::Add(r, error));
  // By 2 to the power of the whole part of n, from which NaN, infinity and zero come too.
  return native_scale(hn::MulAdd(power, growth, power), n);
}
#endif

template <class D, class V>
HWY_INLINE V log_of_positive_by_table(D d, V x) {
  using T = hn::TFromD<D>;
  using P = LogTable<T>;
  const hn::RebindToUnsigned<D> du;
  const Decomposed<V> parts = decompose(d, x);
  const V magic = hn::Set(d, FloatFormat<T>::kRoundingMagic / 16);
  const auto index = hn::BitCast(du, hn::MulAdd(parts.mantissa, hn::Set(d, P::kIndexScale), magic));
  const V f = hn::MulSub(parts.mantissa, columns(d, P::kInverse, index), hn::Set(d, T(1)));
  // Multiples of one power of two, few enough bits of it: exact.
  const V whole = hn::MulAdd(parts.exponent, hn::Set(d, Polynomials<T>::kLn2Hi), columns(d, P::kLog, index));
  const Pair<V> sum = fast_two_sum(whole, f);
  const V rest = hn::MulAdd(parts.exponent, hn::Set(d, Polynomials<T>::kLn2Lo), sum.lo);
  const V quadratic = hn::MulAdd(f, two_chains(d, f, P::kPolynomial), hn::Set(d, T(-0.5)));
  return hn::Add(sum.hi, hn::MulAdd(hn::Mul(f, f), quadratic, rest));
}

// x = n * step + (hi - minus_lo) for |n| below 2^22, n in the lowest bits of `index`. The second product is exact, and
// so is its difference from `coarse` where that is the smaller of the two: the sum's error is what its last line says.
template <class D, class V>
struct Steps {
  V hi, minus_lo;
  hn::VFromD<hn::RebindToUnsigned<D>> index;
};

template <class Table, class D, class V>
HWY_INLINE Steps<D, V> reduce_by_steps(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const V magic = hn::Set(d, FloatFormat<double>::kRoundingMagic);
  const V shifted = hn::MulAdd(x, hn::Set(d, Table::kSteps), magic);
  const V n = hn::Sub(shifted, magic);
  const V coarse = hn::NegMulAdd(n, hn::Set(d, Table::kStepHi), x);  // exact
  const V hi = hn::NegMulAdd(n, hn::Set(d, Table::kStepMid), coarse);
  const V minus_lo = hn::MulAdd(n, hn::Set(d, Table::kStepMid), hn::Sub(hi, coarse));
  return {hi, hn::MulAdd(n, hn::Set(d, Table::kStepLo), minus_lo), hn::BitCast(du, shifted)};
}

inline constexpr double kStepLimit = 0x1p19;  // of |x|: n stays below 2^22

// base + slope * (r + small), with base's own rounding, where base and slope are a sine and a cosine: a number, and
// what has to be subtracted from it.
template <class V>
struct TurnedSine {
  V hi, minus_lo;
};

template <class V>
HWY_INLINE TurnedSine<V> turned(V base, V slope, V r) {
  const V hi = hn::MulAdd(slope, r, base);
  return {hi, hn::NegMulAdd(slope, r, hn::Sub(hi, base))};
}

// The same with the slope's sign turned.
template <class V>
HWY_INLINE TurnedSine<V> turned_back(V base, V minus_slope, V r) {
  const V hi = hn::NegMulAdd(minus_slope, r, base);
  return {hi, hn::MulAdd(minus_slope, r, hn::Sub(hi, base))};
}

// A function of the circle. At the table's points its values are `values` minus `minus_lo`, and its slopes are
// `slopes`.
template <DoubleLanes D, class V>
HWY_INLINE V circular(D d, V x, const double* values, const double* minus_lo, const double* slopes) {
  using P = TurnTable;
  const Steps<D, V> steps = reduce_by_steps<P>(d, x);
  const V sine = columns(d, values, steps.index), cosine = columns(d, slopes, steps.index);
  const V r = steps.hi, u = hn::Mul(r, r);
  const TurnedSine<V> leading = turned(sine, cosine, r);
  const V minus_cubic = hn::NegMulAdd(hn::Mul(r, u), two_chains(d, u, P::kSin), steps.minus_lo);
  const V lowered = hn::Mul(u, two_chains(d, u, P::kCos));  // cos(r) - 1
  V minus_rest = hn::Add(leading.minus_lo, columns(d, minus_lo, steps.index));
  minus_rest = hn::MulAdd(cosine, minus_cubic, hn::NegMulAdd(sine, lowered, minus_rest));
  return hn::Sub(leading.hi, minus_rest);  // keeps the sign of a zero
}

template <DoubleLanes D, class V>
HWY_INLINE V sin_by_table(D d, V x) {
  return circular(d, x, TurnTable::kSine, TurnTable::kMinusSineLo, TurnTable::kCosine);
}

template <DoubleLanes D, class V>
HWY_INLINE V cos_by_table(D d, V x) {
  return circular(d, x, TurnTable::kCosine, TurnTable::kMinusCosineLo, TurnTable::kMinusSine);
}

template <DoubleLanes D, class V>
HWY_INLINE V tan_by_table(D d, V x) {
  using P = TanTable;
  const Steps<D, V> steps = reduce_by_steps<P>(d, x);
  const V sine = columns(d, P::kSine, steps.index), cosine = columns(d, P::kCosine, steps.index);
  const V r = steps.hi, u = hn::Mul(r, r);
  const V minus_cubic = hn::NegMulAdd(hn::Mul(r, u), two_chains(d, u, P::kTan), steps.minus_lo);
  const V t = hn::Sub(r, minus_cubic), minus_lo = hn::Add(minus_cubic, hn::Sub(t, r));
  const TurnedSine<V> above = turned(sine, cosine, t), below = turned_back(cosine, sine, t);
  const V above_minus_lo = hn::MulAdd(cosine, minus_lo, above.minus_lo);
  const V below_minus_lo = hn::NegMulAdd(sine, minus_lo, below.minus_lo);
  const V inverse = rough_reciprocal(d, below.hi);
  const V q = hn::Mul(above.hi, inverse);
  // Negated, for the sign of a zero.
  const V excess = hn::Add(hn::MulSub(below.hi, q, above.hi), hn::NegMulAdd(below_minus_lo, q, above_minus_lo));
  return hn::NegMulAdd(excess, inverse, q);
}

template <class D, class V>
HWY_INLINE V atan_by_table(D d, V x) {
  using T = hn::TFromD<D>;
  using P = AtanTable<T>;
  const hn::RebindToUnsigned<D> du;
  const V t = at_most(d, hn::Abs(x), T(0x1p60));  // beyond, the angle is pi/2 to the last bit
  const V piece = at_least(d, at_most(d, t, T(16)), T(0.11));
  const auto index = hn::ShiftRight<FloatFormat<T>::kMantissaBits - 1>(hn::BitCast(du, piece));
  const V tangent = columns(d, P::kTangent, index), angle = columns(d, P::kAngle, index);
  const V above = hn::Sub(t, tangent), below = hn::MulAdd(t, tangent, hn::Set(d, T(1)));
  const V inverse = quick_reciprocal(d, below);
  const V q = hn::Mul(above, inverse), u = hn::Mul(q, q);
  const V missing = hn::Mul(hn::NegMulAdd(q, below, above), inverse);
  const V cubic = hn::MulAdd(hn::Mul(q, u), two_chains(d, u, P::kAtan), missing);
  return hn::CopySignToAbs(hn::Add(angle, hn::Add(q, cubic)), x);
}

// An odd function of t >= 0 by a polynomial around the centre of each column's piece; in `first`, around 0.
template <class Table, class D, class V, class VU, class M>
HWY_INLINE V by_pieces(D d, V t, VU index, M first) {
  const auto row = [d, index](int i) HWY_ATTR { return columns(d, Table::kTable[i], index); };
  const V r = hn::Sub(t, row(0)), square = hn::Mul(r, r);
  constexpr int kLastEven = (Table::kRows - 1) / 2 * 2, kLastOdd = (Table::kRows - 2) / 2 * 2 + 1;
  V even = row(kLastEven), odd = row(kLastOdd);
#pragma GCC unroll 8
  for (int i = kLastEven - 2; i >= 2; i -= 2) even = hn::MulAdd(even, square, row(i));
#pragma GCC unroll 8
  for (int i = kLastOdd - 2; i >= 3; i -= 2) odd = hn::MulAdd(odd, square, row(i));
  return hn::MulAdd(hn::MulAdd(odd, r, even), r, hn::IfThenElse(first, r, row(1)));
}

template <DoubleLanes D, class V>
HWY_INLINE V erf_by_table(D d, V x) {
  using P = ErfTable;
  const hn::RebindToUnsigned<D> du;
  const V t = at_most(d, hn::Abs(x), P::kEnd);  // from there on erf rounds to 1
  const V magic = hn::Set(d, FloatFormat<double>::kRoundingMagic);
  const V place = hn::NegMulAdd(t, hn::Set(d, P::kBend), hn::Set(d, P::kScale));
  const V shifted = hn::Add(hn::MulAdd(t, place, hn::Set(d, -0.5)), magic);
  return hn::CopySignToAbs(by_pieces<P>(d, t, hn::BitCast(du, shifted), hn::Eq(shifted, magic)), x);
}

template <DoubleLanes D, class V>
HWY_INLINE V tanh_by_table(D d, V x) {
  using P = TanhTable;
  const hn::RebindToUnsigned<D> du;
  const V t = at_most(d, hn::Abs(x), P::kEnd);  // from there on tanh rounds to 1
  const V place = hn::Add(at_most(d, t, 18.7), hn::Set(d, 1.25));
  const auto index = hn::ShiftRight<FloatFormat<double>::kMantissaBits - 2>(hn::BitCast(du, place));
  return hn::CopySignToAbs(by_pieces<P>(d, t, index, hn::Lt(place, hn::Set(d, 1.5))), x);
}

#if MICA_SIMD_AVX512
// Correctly rounded roots of x within kRootRange: an estimate of the inverse root, refined together with the root, and
// the exact remainder divided at last. Half the time of the divider, which can take a root of its own meanwhile.
template <class T>
struct RootRange {
  static constexpr T kLow = sizeof(T) == 4 ? T(0x1p-80) : T(0x1p-900),
                     kHigh = sizeof(T) == 4 ? T(0x1p120) : T(0x1p1000);
};

template <class D, class V>
HWY_INLINE V sqrt_in_range(D d, V x) {
  using T = hn::TFromD<D>;
  const V half = hn::Set(d, T(0.5)), estimate = native_inverse_root_estimate(x);
  V root = hn::Mul(x, estimate), half_inverse = hn::Mul(estimate, half);
  for (size_t step = 0; step < sizeof(T) / 4; ++step) {
    const V error = hn::NegMulAdd(root, half_inverse, half);
    root = hn::MulAdd(root, error, root);
    half_inverse = hn::MulAdd(half_inverse, error, half_inverse);
  }
  return hn::MulAdd(hn::NegMulAdd(root, root, x), half_inverse, root);
}

// Three vectors: the first in the divider, the others beside it.
template <class D, class V>
HWY_INLINE void sqrt(D d, V (&x)[3]) {
  using T = hn::TFromD<D>;
  const hn::RebindToUnsigned<D> du;
  const auto low = hn::BitCast(du, hn::Set(d, RootRange<T>::kLow));
  const auto width = hn::Sub(hn::BitCast(du, hn::Set(d, RootRange<T>::kHigh)), low);
  const auto outside = [&](V v) HWY_ATTR { return hn::Gt(hn::Sub(hn::BitCast(du, v), low), width); };
  const bool usual = !any_lane(du, hn::Or(outside(x[1]), outside(x[2])));
  x[0] = hn::Sqrt(x[0]);
  x[1] = HWY_LIKELY(usual) ? sqrt_in_range(d, x[1]) : hn::Sqrt(x[1]);
  x[2] = HWY_LIKELY(usual) ? sqrt_in_range(d, x[2]) : hn::Sqrt(x[2]);
}
#endif

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_WIDE_INL_H_
