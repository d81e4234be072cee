// Loads and stores that convert between a tensor's elements and the type in which they are summed. Included once per
// target.
#if defined(MICA_GEMM_ELEMENT_IO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_GEMM_ELEMENT_IO_INL_H_
#undef MICA_GEMM_ELEMENT_IO_INL_H_
#else
#define MICA_GEMM_ELEMENT_IO_INL_H_
#endif

#include <type_traits>

#include "hwy/highway.h"
#include "mica/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::gemm_impl {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The type in which products of S are summed. Unsigned types share the bits of signed sums.
template <class S>
using SumOf = std::conditional_t<
    std::is_same_v<S, double>, double,
    std::conditional_t<std::is_integral_v<S>, std::conditional_t<sizeof(S) == 8, int64_t, int32_t>, float>>;

template <class D, class S>
HWY_INLINE hn::Vec<D> load_as(D d, const S* from) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    return hn::BitCast(d,
                       hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)))));
  } else if constexpr (std::is_same_v<S, Half>) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
  } else if constexpr (sizeof(S) == sizeof(hn::TFromD<D>)) {
    return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(from));
  } else {
    const hn::Rebind<S, D> narrow;
    return hn::PromoteTo(d, hn::LoadU(narrow, from));
  }
}

// Rounds to nearest even. Only for floating S.
template <class D, class S>
HWY_INLINE void store_as(D d, hn::Vec<D> v, S* to) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToSigned<D> i32;
    const hn::RebindToUnsigned<D> u32;  // rounding the bits of a NaN may carry into the sign
    const auto bits = hn::BitCast(u32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
    const auto rounded = hn::BitCast(i32, hn::Add(bits, hn::Add(odd, hn::Set(u32, 0x7fff))));
    const auto nan = hn::RebindMask(i32, hn::IsNaN(v));
    const auto kept = hn::ShiftRight<16>(hn::IfThenElse(nan, hn::Set(i32, 0x7fc00000), rounded));
    hn::StoreU(hn::DemoteTo(d16, hn::And(kept, hn::Set(i32, 0xffff))), d16, reinterpret_cast<uint16_t*>(to));
  } else if constexpr (std::is_same_v<S, Half>) {
    const hn::Rebind<hwy::float16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(to));
  } else {
    hn::StoreU(v, d, to);
  }
}

// Sums of integers wrap around, so unsigned types compute them: g++'s arm_neon.h adds and multiplies signed lanes as
// the language does, where overflow is undefined.
template <class D>
HWY_INLINE hn::Vec<D> add(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    return hn::Add(a, b);
  } else {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::Add(hn::BitCast(du, a), hn::BitCast(du, b)));
  }
}

template <class D>
HWY_INLINE hn::Vec<D> multiply_add(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> sum) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    return hn::MulAdd(a, b, sum);
  } else {
    const hn::RebindToUnsigned<D> du;
    const auto product = hn::Mul(hn::BitCast(du, a), hn::BitCast(du, b));
    return hn::BitCast(d, hn::Add(product, hn::BitCast(du, sum)));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::gemm_impl
HWY_AFTER_NAMESPACE();

#endif
