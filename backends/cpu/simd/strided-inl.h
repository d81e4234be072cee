// Gathers runs of elements that do not lie side by side into runs that do.

#if defined(MICA_CPU_SIMD_STRIDED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_STRIDED_INL_H_
#undef MICA_CPU_SIMD_STRIDED_INL_H_
#else
#define MICA_CPU_SIMD_STRIDED_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::VFromD<D> reversed(D d, hn::VFromD<D> v) {
#if HWY_ARCH_ARM_A64
  if constexpr (sizeof(hn::TFromD<D>) == 1 && hn::MaxLanes(D()) == 16) {
    const uint8x16_t halves = vrev64q_u8(v.raw);
    return hn::VFromD<D>(vextq_u8(halves, halves, 8));
  }
#endif
  if constexpr (sizeof(hn::TFromD<D>) == 1) {
    const hn::Repartition<uint16_t, D> pairs;
    const auto turned = hn::Reverse(pairs, hn::BitCast(pairs, v));
    return hn::BitCast(d, hn::Or(hn::ShiftLeft<8>(turned), hn::ShiftRight<8>(turned)));
  } else {
    return hn::Reverse(d, v);
  }
}

// to[i] = from[i * stride], the stride in bytes, for unsigned T or complex numbers. Elements between the first and the
// last may be read, none beyond them.
template <class T>
HWY_INLINE void gather_run(const char* from, int64_t stride, int64_t n, T* to) {
  constexpr int64_t kSize = sizeof(T);
  if (stride == kSize) {
    std::memcpy(to, from, static_cast<size_t>(n * kSize));
    return;
  }
  int64_t i = 0;
  if constexpr (HWY_TARGET != HWY_SCALAR && std::is_unsigned_v<T>) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const T* x = reinterpret_cast<const T*>(from);
    hn::VFromD<decltype(d)> a, b, c, e;
    if (stride == -kSize) {
      for (; i + lanes <= n; i += lanes) hn::StoreU(reversed(d, hn::LoadU(d, x - i - lanes + 1)), d, to + i);
      if (i < n && n >= lanes) {  // the last vector overlaps, so that it ends with the run
        hn::StoreU(reversed(d, hn::LoadU(d, x - n + 1)), d, to + n - lanes);
        return;
      }
    } else if (stride == 2 * kSize && kSize == 8 && HWY_ARCH_ARM_A64) {
      for (; i + lanes < n; i += lanes)
        hn::StoreU(hn::InterleaveLower(d, hn::LoadU(d, x + 2 * i), hn::LoadU(d, x + 2 * i + lanes)), d, to + i);
    } else if (stride == 2 * kSize) {
      // A vector's last element has the one behind it read too, which lies before the next vector's first.
      for (; i + lanes < n; i += lanes) {
        hn::LoadInterleaved2(d, x + 2 * i, a, b);
        hn::StoreU(a, d, to + i);
      }
    } else if (stride == 3 * kSize) {
      for (; i + lanes < n; i += lanes) {
        hn::LoadInterleaved3(d, x + 3 * i, a, b, c);
        hn::StoreU(a, d, to + i);
      }
    } else if (stride == 4 * kSize) {
      for (; i + lanes < n; i += lanes) {
        hn::LoadInterleaved4(d, x + 4 * i, a, b, c, e);
        hn::StoreU(a, d, to + i);
      }
    }
  }
  from += i * stride;
  for (; i + 4 <= n; i += 4, from += 4 * stride) {
    const T x0 = *reinterpret_cast<const T*>(from), x1 = *reinterpret_cast<const T*>(from + stride);
    const T x2 = *reinterpret_cast<const T*>(from + 2 * stride), x3 = *reinterpret_cast<const T*>(from + 3 * stride);
    to[i] = x0, to[i + 1] = x1, to[i + 2] = x2, to[i + 3] = x3;
  }
  for (; i < n; ++i, from += stride) to[i] = *reinterpret_cast<const T*>(from);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_STRIDED_INL_H_
