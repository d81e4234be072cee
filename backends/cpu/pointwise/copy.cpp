// copy: every dtype to every other, as torch converts; fill.
#include <complex>
#include <cstring>
#include <type_traits>

#include "backends/cpu/pointwise/run_loop.h"
#include "backends/cpu/visit_dtype.h"
#include "core/scalar_bytes.h"

namespace mica::cpu {

namespace {

template <class T>
struct is_std_complex : std::false_type {};
template <class T>
struct is_std_complex<std::complex<T>> : std::true_type {};

// A value on its way between two element types: 16- and 8-bit floats travel as float, complex32 as complex64.
template <class T>
auto widen(const T& v) {
  if constexpr (std::is_same_v<T, ComplexHalf>) {
    return static_cast<complex64>(v);
  } else if constexpr (std::is_class_v<T> && !is_std_complex<T>::value) {
    return static_cast<float>(v);
  } else {
    return v;
  }
}

// Floats beyond the range of an integer type wrap through int64, as the conversion instruction does on this machine's torch.
template <class To, class From>
To convert(const From& from) {
  const auto v = widen(from);
  using V = std::remove_const_t<decltype(v)>;
  if constexpr (std::is_same_v<To, From>) {
    return from;
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
    if constexpr (sizeof(To) < 4) {
      return static_cast<To>(static_cast<int32_t>(v));
    } else if constexpr (std::is_unsigned_v<To>) {
      return static_cast<To>(static_cast<int64_t>(v));
    } else {
      return static_cast<To>(v);
    }
  } else {
    return static_cast<To>(v);
  }
}

template <class To, class From>
void convert_loop(char* const* data, const int64_t* strides, int64_t n, const void*) {
  if (strides[0] == sizeof(To) && strides[1] == sizeof(From)) {
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(data[0], data[1], static_cast<size_t>(n) * sizeof(To));
    } else {
      auto* o = reinterpret_cast<To*>(data[0]);
      auto* a = reinterpret_cast<const From*>(data[1]);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) o[i] = convert<To>(a[i]);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<To*>(data[0] + i * strides[0]) = convert<To>(*reinterpret_cast<const From*>(data[1] + i * strides[1]));
}

void copy_kernel(const PointwiseLoop& loop) {
  visit_any("copy_", loop.dtypes[0], [&]<class To>(Tag<To>) {
    visit_any("copy_", loop.dtypes[1], [&]<class From>(Tag<From>) { run_loop(loop, convert_loop<To, From>); });
  });
}

template <class T>
void fill_loop(char* const* data, const int64_t* strides, int64_t n, const void* context) {
  const T value = *static_cast<const T*>(context);
  if (strides[0] == sizeof(T)) {
    auto* o = reinterpret_cast<T*>(data[0]);
    for (int64_t i = 0; i < n; ++i) o[i] = value;
    return;
  }
  for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(data[0] + i * strides[0]) = value;
}

void fill_kernel(const PointwiseLoop& loop, Scalar value) {
  alignas(16) unsigned char element[16];
  write_scalar(value, loop.dtype, element);
  switch (element_size(loop.dtype)) {
    case 1:
      return run_loop(loop, fill_loop<uint8_t>, element);
    case 2:
      return run_loop(loop, fill_loop<uint16_t>, element);
    case 4:
      return run_loop(loop, fill_loop<uint32_t>, element);
    case 8:
      return run_loop(loop, fill_loop<uint64_t>, element);
    default:
      return run_loop(loop, fill_loop<complex128>, element);
  }
}

MICA_REGISTER_CPU(copy, copy_kernel);
MICA_REGISTER_CPU(fill, fill_kernel);

}  // namespace
}  // namespace mica::cpu
