#include "backends/cpu/pointwise/convert.h"

#include <algorithm>
#include <complex>
#include <type_traits>

#include "backends/cpu/visit_dtype.h"
#include "backends/shared/read_element.h"

namespace mica::cpu {

namespace {

template <class T>
struct is_std_complex : std::false_type {};
template <class T>
struct is_std_complex<std::complex<T>> : std::true_type {};

// A value on its way between two element types: 8-bit floats travel as float, complex32 as complex64, bools as bytes.
template <class T>
auto widen(const T& v) {
  if constexpr (std::is_same_v<T, ComplexHalf>) {
    return static_cast<complex64>(v);
  } else if constexpr (std::is_class_v<T> && !is_std_complex<T>::value) {
    return static_cast<float>(v);
  } else if constexpr (std::is_same_v<T, bool>) {
    // The same as read_element, in a form for which g++ has vector instructions.
    return std::min(reinterpret_cast<const uint8_t&>(v), uint8_t{1});
  } else {
    return v;
  }
}

// The integer type that a float beyond the range of its target is converted to first, so that vector code and scalar
// code give the same. On aarch64 vectors of doubles convert to int64 only, while scalar code would saturate at the ends
// of int32. x86-64 has an instruction of either width for both.
#if defined(__aarch64__)
template <class To, class V>
using Through = std::conditional_t<std::is_same_v<V, double> || (std::is_unsigned_v<To> && sizeof(To) >= 4), int64_t,
                                   std::conditional_t<sizeof(To) < 4, int32_t, To>>;
#else
template <class To, class V>
using Through = std::conditional_t<std::is_unsigned_v<To> && sizeof(To) >= 4, int64_t,
                                   std::conditional_t<sizeof(To) < 4, int32_t, To>>;
#endif

template <class To, class From>
To convert(const From& from) {
  const auto v = widen(from);
  using V = std::remove_const_t<decltype(v)>;
  if constexpr (std::is_same_v<To, From>) {
    return read_element(from);
  } else if constexpr (std::is_same_v<To, ComplexHalf>) {
    return ComplexHalf(convert<complex64>(v));
  } else if constexpr (is_std_complex<To>::value) {
    using R = typename To::value_type;
    if constexpr (is_std_complex<V>::value) {
      return To(static_cast<R>(v.real()), static_cast<R>(v.imag()));
    } else {
      return To(static_cast<R>(v), R(0));
    }
  } else if constexpr (is_std_complex<V>::value) {
    if constexpr (std::is_same_v<To, bool>) {
      return v != V(0);
    } else {
      return convert<To>(v.real());
    }
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != V(0);
  } else if constexpr (std::is_class_v<To>) {
    return To(static_cast<float>(v));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<V>) {
    return static_cast<To>(static_cast<Through<To, V>>(v));
  } else {
    return static_cast<To>(v);
  }
}

template <class To, class From>
void convert_loop(char* const* data, const int64_t* strides, int64_t n, const void*) {
  auto* o = reinterpret_cast<To*>(data[0]);
  auto* a = reinterpret_cast<const From*>(data[1]);
  if (strides[1] == 0) {
    const To value = convert<To>(*a);
    for (int64_t i = 0; i < n; ++i) o[i] = value;
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) o[i] = convert<To>(a[i]);
}

// Every dtype but the 16-bit floats.
template <class F>
void visit_staged(DType dtype, const F& f) {
  visit_any("copy_", dtype, [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, Half> && !std::is_same_v<T, BFloat16>) f(Tag<T>{});
  });
}

}  // namespace

InnerLoop conversion_loop(DType to, DType from) {
  if (const InnerLoop wide = wide_integer_conversion(to, from)) return wide;
  InnerLoop loop = nullptr;
  visit_staged(to, [&]<class To>(Tag<To>) {
    visit_staged(from, [&]<class From>(Tag<From>) { loop = convert_loop<To, From>; });
  });
  return loop;
}

}  // namespace mica::cpu
