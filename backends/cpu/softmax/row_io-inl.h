// Rows of any floating dtype in the type in which they are computed: float for the 16-bit ones, their own type
// otherwise.

#if defined(MICA_CPU_SOFTMAX_ROW_IO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SOFTMAX_ROW_IO_INL_H_
#undef MICA_CPU_SOFTMAX_ROW_IO_INL_H_
#else
#define MICA_CPU_SOFTMAX_ROW_IO_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <type_traits>

#include "backends/cpu/simd/convert-inl.h"
#include "mica/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
inline constexpr bool kIsNarrow = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
using Computed = std::conditional_t<kIsNarrow<T>, float, T>;
template <class T>
using NarrowFormat = std::conditional_t<std::is_same_v<T, Half>, HalfBits, BFloat16Bits>;

// Memory for `rows` rows of n elements, where rows cannot stay in the tensor.
template <class T>
std::unique_ptr<Computed<T>[]> row_buffer(int64_t n, int64_t rows = 1) {
  if constexpr (kIsNarrow<T>) return std::unique_ptr<float[]>(new float[n * rows]);
  return nullptr;
}

// The elements in the type in which they are computed: in place, or converted into `buffer`.
template <class T>
HWY_INLINE const Computed<T>* open_row(const T* x, int64_t n, Computed<T>* buffer) {
  if constexpr (kIsNarrow<T>) {
    const hn::ScalableTag<float> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto* bits = reinterpret_cast<const uint16_t*>(x);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) hn::StoreU(load_as_float<NarrowFormat<T>>(d, bits + i), d, buffer + i);
    if (i < n) store_first(load_first_as_float<NarrowFormat<T>>(d, bits + i, n - i), d, buffer + i, n - i);
    return buffer;
  } else {
    (void)n;
    (void)buffer;
    return x;
  }
}

// Where to write a row: the tensor, or `buffer`, which close_row converts.
template <class T>
HWY_INLINE Computed<T>* result_row(T* out, Computed<T>* buffer) {
  if constexpr (kIsNarrow<T>) {
    return buffer;
  } else {
    return out;
  }
}

template <class T>
HWY_INLINE void close_row(const Computed<T>* result, int64_t n, T* out) {
  if constexpr (kIsNarrow<T>) {
    const hn::ScalableTag<float> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    auto* bits = reinterpret_cast<uint16_t*>(out);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) store_from_float<NarrowFormat<T>>(hn::LoadU(d, result + i), d, bits + i);
    if (i < n) store_first_from_float<NarrowFormat<T>>(load_first(d, result + i, n - i), d, bits + i, n - i);
  } else {
    (void)result;
    (void)n;
    (void)out;
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
