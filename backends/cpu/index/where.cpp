// where and masked_fill: elements of any dtype, chosen by a bool.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/index/where.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/index/element_bytes.h"
#include "backends/cpu/pointwise/run_loop.h"
#include "backends/cpu/simd_register.h"
#include "core/scalar_bytes.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The mask of the lanes of d whose byte is not zero.
template <class D>
HWY_INLINE auto mask_of(D d, const uint8_t* condition) {
  const hn::Rebind<uint8_t, D> d8;
  const auto bytes = hn::LoadU(d8, condition);
  if constexpr (sizeof(hn::TFromD<D>) == 1) {
    return hn::Ne(bytes, hn::Zero(d));
  } else if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::Ne(hn::PromoteTo(d, hn::PromoteTo(hn::Rebind<uint32_t, D>(), bytes)), hn::Zero(d));
  } else {
    return hn::Ne(hn::PromoteTo(d, bytes), hn::Zero(d));
  }
}

// out = condition ? a : b, where either of a and b may be one value.
template <class T, bool kManyA, bool kManyB>
HWY_ATTR void select_lanes(T* out, const T* a, const T* b, const uint8_t* condition, int64_t n) {
  int64_t i = 0;
  if constexpr (sizeof(T) <= 8) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto one_a = hn::Set(d, *a), one_b = hn::Set(d, *b);
    for (; i + lanes <= n; i += lanes) {
      const auto x = kManyA ? hn::LoadU(d, a + i) : one_a;
      const auto y = kManyB ? hn::LoadU(d, b + i) : one_b;
      hn::StoreU(hn::IfThenElse(mask_of(d, condition + i), x, y), d, out + i);
    }
  }
  for (; i < n; ++i) {
    const T x = a[kManyA ? i : 0], y = b[kManyB ? i : 0];
    out[i] = condition[i] ? x : y;
  }
}

template <class T>
HWY_ATTR void select_strided(char* const* data, const int64_t* strides, const char* a, int64_t a_stride, const char* b,
                             int64_t b_stride, const char* condition, int64_t c_stride, int64_t n) {
  auto* out = reinterpret_cast<T*>(data[0]);
  if (strides[0] == sizeof(T) && c_stride == 1 && (a_stride == sizeof(T) || a_stride == 0) &&
      (b_stride == sizeof(T) || b_stride == 0)) {
    auto* x = reinterpret_cast<const T*>(a);
    auto* y = reinterpret_cast<const T*>(b);
    auto* c = reinterpret_cast<const uint8_t*>(condition);
    if (a_stride && b_stride) return select_lanes<T, true, true>(out, x, y, c, n);
    if (a_stride) return select_lanes<T, true, false>(out, x, y, c, n);
    if (b_stride) return select_lanes<T, false, true>(out, x, y, c, n);
    return select_lanes<T, false, false>(out, x, y, c, n);
  }
  for (int64_t i = 0; i < n; ++i) {
    const T x = *reinterpret_cast<const T*>(a + i * a_stride), y = *reinterpret_cast<const T*>(b + i * b_stride);
    *reinterpret_cast<T*>(data[0] + i * strides[0]) = condition[i * c_stride] ? x : y;
  }
}

// Operands: out, self, other, condition.
template <class T>
HWY_ATTR void where_loop(char* const* data, const int64_t* strides, int64_t n, const void*) {
  select_strided<T>(data, strides, data[1], strides[1], data[2], strides[2], data[3], strides[3], n);
}

// Operands: out, self, mask, value; the value is the context, converted.
template <class T>
HWY_ATTR void fill_loop(char* const* data, const int64_t* strides, int64_t n, const void* value) {
  select_strided<T>(data, strides, static_cast<const char*>(value), 0, data[1], strides[1], data[2], strides[2], n);
}

void where_kernel(const PointwiseLoop& loop) {
  visit_element_size(element_size(loop.dtypes[0]), [&]<class T>(Tag<T>) { run_dense(loop, where_loop<T>); });
}

void masked_fill_kernel(const PointwiseLoop& loop) {
  alignas(16) unsigned char value[16];
  write_scalar(read_scalar(loop.dtypes[3], loop.data[3]), loop.dtypes[0], value);
  visit_element_size(element_size(loop.dtypes[0]), [&]<class T>(Tag<T>) { run_dense(loop, fill_loop<T>, value); });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(where_kernel);
HWY_EXPORT(masked_fill_kernel);
MICA_REGISTER_SIMD(where, where_kernel);
MICA_REGISTER_SIMD(masked_fill, masked_fill_kernel);
}  // namespace mica::cpu
#endif
