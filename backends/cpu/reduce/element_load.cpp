#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce/element_load.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "backends/cpu/reduce/element_load.h"
#include "backends/cpu/simd/convert-inl.h"
#include "backends/cpu/simd/strided-inl.h"
#include "backends/shared/read_element.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// ---- what becomes of an element

struct AsNumber {
  template <class To, class From>
  static HWY_INLINE To convert(const From& x) {
    return static_cast<To>(read_element(x));
  }
};

struct AsFlag {
  template <class To, class From>
  static HWY_INLINE To convert(const From& x) {
    if constexpr (std::is_same_v<From, ComplexHalf>) {
      return static_cast<To>((x.re.bits & 0x7fff) || (x.im.bits & 0x7fff));
    } else if constexpr (std::is_same_v<From, complex64> || std::is_same_v<From, complex128>) {
      return static_cast<To>((x.real() != 0) | (x.imag() != 0));
    } else if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>) {
      return static_cast<To>((x.bits & 0x7fff) != 0);
    } else if constexpr (std::is_arithmetic_v<From>) {
      return static_cast<To>(read_element(x) != From(0));
    } else {
      return static_cast<To>(static_cast<float>(x) != 0);
    }
  }
};

struct AsMagnitude {
  template <class To, class From>
  static HWY_INLINE To convert(From x) {
    if constexpr (std::is_same_v<From, complex64>) {
      // Squares of floats neither overflow nor lose digits as doubles.
      const double re = x.real(), im = x.imag();
      return std::sqrt(re * re + im * im);
    } else {
      return std::hypot(x.real(), x.imag());
    }
  }
};

template <int64_t kSize>
using UnsignedOf =
    std::conditional_t<kSize == 1, uint8_t,
                       std::conditional_t<kSize == 2, uint16_t, std::conditional_t<kSize == 4, uint32_t, uint64_t>>>;

template <class As, class From, class To>
void load_elements(const char* from, int64_t stride, int64_t n, void* out) {
  To* to = static_cast<To*>(out);
  constexpr bool narrow_float =
      (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>)&&std::is_same_v<To, float>;
  if (stride == sizeof(From)) {
    if constexpr (narrow_float) {
      using Format = std::conditional_t<std::is_same_v<From, Half>, HalfBits, BFloat16Bits>;
      const hn::ScalableTag<float> d;
      const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
      const auto* bits = reinterpret_cast<const uint16_t*>(from);
      int64_t i = 0;
      for (; i + lanes <= n; i += lanes) hn::StoreU(load_as_float<Format>(d, bits + i), d, to + i);
      if (i < n) store_first(load_first_as_float<Format>(d, bits + i, n - i), d, to + i, n - i);
    } else {
      const From* x = reinterpret_cast<const From*>(from);
      for (int64_t i = 0; i < n; ++i) to[i] = As::template convert<To>(x[i]);
    }
    return;
  }
  if constexpr (sizeof(From) <= 8) {  // gathered first, then converted
    using Bits = UnsignedOf<sizeof(From)>;
    if constexpr (std::is_same_v<From, To> && std::is_same_v<As, AsNumber>) {
      gather_run(from, stride, n, static_cast<Bits*>(out));
    } else {
      constexpr int64_t kChunk = 512;
      alignas(64) Bits run[kChunk];
      for (int64_t i = 0; i < n; i += kChunk) {
        const int64_t count = std::min(kChunk, n - i);
        gather_run(from + i * stride, stride, count, run);
        load_elements<As, From, To>(reinterpret_cast<const char*>(run), sizeof(From), count, to + i);
      }
    }
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = As::template convert<To>(*reinterpret_cast<const From*>(from + i * stride));
  }
}

using LoadFunction = void (*)(const char*, int64_t, int64_t, void*);

#define MICA_LOAD_NUMBER(T, Name) \
  case DType::Name:               \
    return load_elements<AsNumber, T, std::conditional_t<std::is_integral_v<T>, int64_t, T>>;

LoadFunction number_load(DType dtype) {
  switch (dtype) {
    MICA_FORALL_INTEGRAL(MICA_LOAD_NUMBER)
    MICA_FORALL_UNSIGNED(MICA_LOAD_NUMBER)
    MICA_LOAD_NUMBER(bool, Bool)
    MICA_LOAD_NUMBER(float, Float32)
    MICA_LOAD_NUMBER(double, Float64)
    MICA_FORALL_COMPLEX(MICA_LOAD_NUMBER)
    case DType::Float16:
      return load_elements<AsNumber, Half, float>;
    case DType::BFloat16:
      return load_elements<AsNumber, BFloat16, float>;
    default:
      return nullptr;
  }
}
#undef MICA_LOAD_NUMBER

// For integers and bool only.
LoadFunction stored_load(DType dtype) {
  if (dtype == DType::Bool) return load_elements<AsFlag, bool, uint8_t>;
  switch (element_size(dtype)) {
    case 1:
      return load_elements<AsNumber, uint8_t, uint8_t>;
    case 2:
      return load_elements<AsNumber, uint16_t, uint16_t>;
    case 4:
      return load_elements<AsNumber, uint32_t, uint32_t>;
    default:
      return load_elements<AsNumber, uint64_t, uint64_t>;
  }
}

#define MICA_LOAD_FLAG(T, Name) \
  case DType::Name:             \
    return load_elements<AsFlag, T, uint8_t>;

LoadFunction flag_load(DType dtype) {
  switch (dtype) {
    MICA_FORALL_DTYPES(MICA_LOAD_FLAG)
    default:
      return nullptr;
  }
}
#undef MICA_LOAD_FLAG

LoadFunction magnitude_load(DType dtype) {
  if (dtype == DType::Complex64) return load_elements<AsMagnitude, complex64, double>;
  if (dtype == DType::Complex128) return load_elements<AsMagnitude, complex128, double>;
  return nullptr;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {

HWY_EXPORT(number_load);
HWY_EXPORT(stored_load);
HWY_EXPORT(flag_load);
HWY_EXPORT(magnitude_load);

namespace {

int64_t number_bytes(DType dtype) {
  if (dtype == DType::Float16 || dtype == DType::BFloat16) return 4;
  return is_integral(dtype) || dtype == DType::Bool ? 8 : element_size(dtype);
}

// The loads of all dtypes for this machine's instruction set.
struct LoadTable {
  ElementLoad number[kNumDTypes], stored[kNumDTypes], flag[kNumDTypes], magnitude[kNumDTypes];
  LoadTable() {
    ::hwy::GetChosenTarget().Update(::hwy::SupportedTargets());
    for (int i = 0; i < kNumDTypes; ++i) {
      const DType t = static_cast<DType>(i);
      const int64_t bytes = element_size(t), loaded = number_bytes(t);
      number[i] = {bytes, loaded, bytes == loaded, HWY_DYNAMIC_DISPATCH(number_load)(t)};
      stored[i] = number[i];
      if (is_integral(t) || t == DType::Bool)
        stored[i] = {bytes, bytes, t != DType::Bool, HWY_DYNAMIC_DISPATCH(stored_load)(t)};
      flag[i] = {bytes, 1, false, HWY_DYNAMIC_DISPATCH(flag_load)(t)};
      magnitude[i] = number[i];
      if (is_complex(t)) magnitude[i] = {bytes, 8, false, HWY_DYNAMIC_DISPATCH(magnitude_load)(t)};
    }
  }
};

const LoadTable& loads() {
  static const LoadTable table;
  return table;
}

}  // namespace

const ElementLoad& load_number(const char* op, DType dtype) {
  const ElementLoad& load = loads().number[static_cast<int>(dtype)];
  if (!load.load) unsupported_dtype(op, dtype);
  return load;
}

const ElementLoad& load_as_stored(const char* op, DType dtype) {
  const ElementLoad& load = loads().stored[static_cast<int>(dtype)];
  if (!load.load) unsupported_dtype(op, dtype);
  return load;
}

const ElementLoad& load_flag(DType dtype) {
  const ElementLoad& load = loads().flag[static_cast<int>(dtype)];
  if (!load.load) unsupported_dtype("copy_", dtype);  // torch casts to bool first
  return load;
}

const ElementLoad& load_magnitude(const char* op, DType dtype) {
  const ElementLoad& load = loads().magnitude[static_cast<int>(dtype)];
  if (!load.load) unsupported_dtype(op, dtype);
  return load;
}

}  // namespace mica::cpu
#endif
