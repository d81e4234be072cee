#include "backends/cpu/sort/topk_filter.h"

#include "backends/cpu/sort/order_key.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/sort/topk_filter.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// order_key on vectors, less its sign bit: a signed integer in the same order, since signed comparisons are what every
// instruction set has.
template <class D, class T>
HWY_INLINE hn::VFromD<D> signed_order_key(D d, const T* HWY_RESTRICT elements) {
  using I = hn::TFromD<D>;
  const auto sign = hn::Set(d, static_cast<I>(kSignBit<T>));
  const auto bits = hn::LoadU(d, reinterpret_cast<const I*>(elements));
  if constexpr (kHasNan<T>) {
    const auto magnitude = hn::AndNot(sign, bits);
    const auto is_negative = hn::Lt(bits, hn::Zero(d));
    const auto key = hn::IfThenElse(is_negative, hn::Neg(magnitude), magnitude);
    const auto infinity = hn::Set(d, static_cast<I>(kInfinityBits<T>));
    return hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(d, static_cast<I>(kNanKey<T> ^ kSignBit<T>)), key);
  } else if constexpr (std::is_signed_v<T>) {
    return bits;
  } else {
    return hn::Xor(bits, sign);
  }
}

template <class T>
FilterResult filter_row(const void* row, int64_t begin, int64_t end, bool largest, uint64_t threshold,
                        Candidate* HWY_RESTRICT buffer, int64_t count, int64_t capacity) {
  using K = OrderKey<T>;
  using I = std::make_signed_t<K>;
  const hn::ScalableTag<I> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kUnroll = 4;
  const K flip = static_cast<K>(largest ? ~K(0) : 0);
  const T* HWY_RESTRICT elements = static_cast<const T*>(row);
  const auto limit = hn::Set(d, static_cast<I>(static_cast<K>(threshold) ^ kSignBit<T>));
  const auto flip_all = hn::Set(d, static_cast<I>(flip));
  const auto rank_key = [&](int64_t i) HWY_ATTR { return hn::Xor(signed_order_key(d, elements + i), flip_all); };
  const auto append = [&](int64_t i) { buffer[count++] = {static_cast<K>(order_key(elements[i]) ^ flip), i}; };

  int64_t i = begin;
  const int64_t block = kUnroll * lanes;
  // Whether some of a block come before the limit. Floats are compared as they are while the limit is a number: NaN
  // comes before all numbers among the largest, behind them among the smallest.
  T bound{};
  bool compares = false;
  if constexpr (std::is_floating_point_v<T>) {
    bound = value_of_key<T>(static_cast<K>(static_cast<K>(threshold) ^ flip));
    compares = bound == bound;
  }
  const auto any_before = [&](int64_t at) HWY_ATTR {
    if constexpr (std::is_floating_point_v<T>) {
      if (compares) {
        const hn::ScalableTag<T> df;
        const auto b = hn::Set(df, bound);
        const auto behind = [&](int64_t k) HWY_ATTR {
          const auto x = hn::LoadU(df, elements + k);
          return largest ? hn::Le(x, b) : hn::Not(hn::Lt(x, b));
        };
        return !hn::AllTrue(df, hn::And(hn::And(behind(at), behind(at + lanes)),
                                        hn::And(behind(at + 2 * lanes), behind(at + 3 * lanes))));
      }
    }
    const auto best = hn::Min(hn::Min(rank_key(at), rank_key(at + lanes)),
                              hn::Min(rank_key(at + 2 * lanes), rank_key(at + 3 * lanes)));
    return !hn::AllFalse(d, hn::Lt(best, limit));
  };
  for (; i + block <= end && count + block <= capacity; i += block) {
    if (HWY_LIKELY(!any_before(i))) continue;
    for (int64_t at = i; at < i + block; at += lanes) {
      uint8_t mask_bytes[HWY_MAX_BYTES / 8 + 8] = {};
      hn::StoreMaskBits(d, hn::Lt(rank_key(at), limit), mask_bytes);
      uint64_t mask;
      std::memcpy(&mask, mask_bytes, sizeof(mask));
      for (; mask != 0; mask &= mask - 1) append(at + __builtin_ctzll(mask));
    }
  }
  for (; i < end && count < capacity; ++i) {
    if (static_cast<K>(order_key(elements[i]) ^ flip) < threshold) append(i);
  }
  return {i, count};
}

FilterResult filter_any_row(DType dtype, const void* row, int64_t begin, int64_t end, bool largest, uint64_t threshold,
                            Candidate* buffer, int64_t count, int64_t capacity) {
  return visit_ordered("topk", dtype, [&]<class T>() {
    return filter_row<T>(row, begin, end, largest, threshold, buffer, count, capacity);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(filter_any_row);

FilterResult filter_candidates(DType dtype, const void* row, int64_t begin, int64_t end, bool largest,
                               uint64_t threshold, Candidate* buffer, int64_t count, int64_t capacity) {
  return HWY_DYNAMIC_DISPATCH(filter_any_row)(dtype, row, begin, end, largest, threshold, buffer, count, capacity);
}
}  // namespace mica::cpu
#endif
