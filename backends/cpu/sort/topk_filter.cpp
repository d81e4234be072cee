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

// Which elements of a contiguous row have a rank key below a limit.
template <class T>
class BelowLimit {
  using K = OrderKey<T>;
  using I = std::make_signed_t<K>;
  using D = hn::ScalableTag<I>;

 public:
  static constexpr int64_t kUnroll = 4;
  static_assert(kUnroll * static_cast<int64_t>(hn::MaxLanes(D())) <= kFilterBlockMax);

  HWY_INLINE BelowLimit(const T* elements, bool largest)
      : elements_(elements), largest_(largest), flip_(static_cast<K>(largest ? ~K(0) : 0)) {}

  HWY_INLINE void set(K limit) {
    limit_ = hn::Set(D(), static_cast<I>(limit ^ kSignBit<T>));
    if constexpr (std::is_floating_point_v<T>) {
      bound_ = value_of_key<T>(static_cast<K>(limit ^ flip_));
      compares_ = bound_ == bound_;
    }
  }
  HWY_INLINE K key(int64_t i) const { return static_cast<K>(order_key(elements_[i]) ^ flip_); }
  static HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

  // Whether some of the kUnroll vectors at i are below. Floats are compared as they are while the limit is a number:
  // NaN comes before all numbers among the largest, behind them among the smallest.
  HWY_INLINE bool any(int64_t i) const {
    const D d;
    const int64_t n = lanes();
    if constexpr (std::is_floating_point_v<T>) {
      if (compares_) {
        const hn::ScalableTag<T> df;
        const auto b = hn::Set(df, bound_);
        const auto behind = [&](int64_t k) HWY_ATTR {
          const auto x = hn::LoadU(df, elements_ + k);
          return largest_ ? hn::Le(x, b) : hn::Not(hn::Lt(x, b));
        };
        return !hn::AllTrue(df,
                            hn::And(hn::And(behind(i), behind(i + n)), hn::And(behind(i + 2 * n), behind(i + 3 * n))));
      }
    }
    const auto best = hn::Min(hn::Min(keys(i), keys(i + n)), hn::Min(keys(i + 2 * n), keys(i + 3 * n)));
    return !hn::AllFalse(d, hn::Lt(best, limit_));
  }
  // The lanes of the vector at i that are below, a bit each.
  HWY_INLINE uint64_t mask(int64_t i) const {
    uint8_t bytes[HWY_MAX_BYTES / 8 + 8] = {};
    hn::StoreMaskBits(D(), hn::Lt(keys(i), limit_), bytes);
    uint64_t mask;
    std::memcpy(&mask, bytes, sizeof(mask));
    return mask;
  }

 private:
  HWY_INLINE hn::VFromD<D> keys(int64_t i) const {
    return hn::Xor(signed_order_key(D(), elements_ + i), hn::Set(D(), static_cast<I>(flip_)));
  }

  const T* HWY_RESTRICT elements_;
  bool largest_;
  K flip_;
  hn::VFromD<D> limit_{};
  T bound_{};
  bool compares_ = false;
};

template <class T>
HWY_ATTR FilterResult filter_row(const T* row, int64_t begin, int64_t end, bool largest, uint64_t threshold,
                                 Candidate* HWY_RESTRICT buffer, int64_t count, int64_t capacity) {
  BelowLimit<T> below(row, largest);
  below.set(static_cast<OrderKey<T>>(threshold));
  const int64_t lanes = below.lanes(), block = BelowLimit<T>::kUnroll * lanes;
  int64_t i = begin;
  for (; i + block <= end && count < capacity; i += block) {
    if (HWY_LIKELY(!below.any(i))) continue;
    for (int64_t at = i; at < i + block; at += lanes) {
      for (uint64_t mask = below.mask(at); mask != 0; mask &= mask - 1) {
        const int64_t found = at + __builtin_ctzll(mask);
        buffer[count++] = {below.key(found), found};
      }
    }
  }
  for (; i < end && count < capacity; ++i) {
    if (below.key(i) < threshold) buffer[count++] = {below.key(i), i};
  }
  return {i, count};
}

template <class T>
HWY_ATTR void best_few_of(const T* row, int64_t n, int64_t k, bool largest, Candidate* HWY_RESTRICT best) {
  BelowLimit<T> below(row, largest);
  int64_t count = 0, i = 0;
  for (; i < k; ++i) insert_candidate(best, count++, {below.key(i), i});
  below.set(static_cast<OrderKey<T>>(best[k - 1].key));
  const int64_t lanes = below.lanes(), block = BelowLimit<T>::kUnroll * lanes;
  for (; i + block <= n; i += block) {
    if (HWY_LIKELY(!below.any(i))) continue;
    for (int64_t at = i; at < i + block; at += lanes) {
      for (uint64_t mask = below.mask(at); mask != 0; mask &= mask - 1) {
        const int64_t found = at + __builtin_ctzll(mask);
        const Candidate candidate{below.key(found), found};
        // The limit may have changed since the mask was made.
        if (candidate.key < best[k - 1].key) insert_candidate(best, k - 1, candidate);
      }
    }
    below.set(static_cast<OrderKey<T>>(best[k - 1].key));
  }
  for (; i < n; ++i) {
    const Candidate candidate{below.key(i), i};
    if (candidate.key < best[k - 1].key) insert_candidate(best, k - 1, candidate);
  }
}

FilterResult filter_any_row(DType dtype, const void* row, int64_t begin, int64_t end, bool largest, uint64_t threshold,
                            Candidate* buffer, int64_t count, int64_t capacity) {
  return visit_ordered("topk", dtype, [&]<class T>() {
    return filter_row(static_cast<const T*>(row), begin, end, largest, threshold, buffer, count, capacity);
  });
}

void best_few_of_any(DType dtype, const void* row, int64_t n, int64_t k, bool largest, Candidate* best) {
  visit_ordered("topk", dtype, [&]<class T>() { best_few_of(static_cast<const T*>(row), n, k, largest, best); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(filter_any_row);
HWY_EXPORT(best_few_of_any);

FilterResult filter_candidates(DType dtype, const void* row, int64_t begin, int64_t end, bool largest,
                               uint64_t threshold, Candidate* buffer, int64_t count, int64_t capacity) {
  return HWY_DYNAMIC_DISPATCH(filter_any_row)(dtype, row, begin, end, largest, threshold, buffer, count, capacity);
}

void best_few(DType dtype, const void* row, int64_t n, int64_t k, bool largest, Candidate* best) {
  HWY_DYNAMIC_DISPATCH(best_few_of_any)(dtype, row, n, k, largest, best);
}
}  // namespace mica::cpu
#endif
