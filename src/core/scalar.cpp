#include "mica/core/scalar.h"

#include <cmath>

#include "mica/error.h"

namespace mica {

template <class F>
auto Scalar::visit(F&& f) const {
  switch (tag_) {
    case Tag::Bool:
      return f(int_ != 0);
    case Tag::Int:
      return f(int_);
    case Tag::UInt:
      return f(static_cast<uint64_t>(int_));
    case Tag::Double:
      return f(real_);
    case Tag::Complex:
      break;
  }
  return f(complex128(real_, imag_));
}

namespace {

// ---- what a dtype can hold ------------------------------------------------------------------------------------

// `largest` bounds the magnitude of the floating types; the integral types have their numeric_limits.
template <class T>
struct Holds {
  static constexpr double largest = static_cast<double>(std::numeric_limits<T>::max());
  static constexpr bool infinity = std::numeric_limits<T>::has_infinity;
};
template <bool Infinity>
struct WithInfinity {
  static constexpr bool infinity = Infinity;
};
template <>
struct Holds<Half> : WithInfinity<true> {
  static constexpr double largest = 65504.0;
};
template <>
struct Holds<BFloat16> : WithInfinity<true> {
  static constexpr double largest = 0x1.fep127;
};
template <>
struct Holds<Float8_e5m2> : WithInfinity<true> {
  static constexpr double largest = 57344.0;
};
template <>
struct Holds<Float8_e4m3fn> : WithInfinity<false> {
  static constexpr double largest = 448.0;
};
template <>
struct Holds<Float8_e5m2fnuz> : WithInfinity<false> {
  static constexpr double largest = 57344.0;
};
template <>
struct Holds<Float8_e4m3fnuz> : WithInfinity<false> {
  static constexpr double largest = 240.0;
};
template <>
struct Holds<Float8_e8m0fnu> : WithInfinity<false> {
  static constexpr double largest = 0x1p127;
};

template <class T>
struct RealOf {
  using type = T;
};
template <class T>
struct RealOf<std::complex<T>> {
  using type = T;
};
template <>
struct RealOf<ComplexHalf> {
  using type = Half;
};
template <class T>
using real_of_t = typename RealOf<T>::type;
template <class T>
inline constexpr bool is_complex_v = !std::is_same_v<T, real_of_t<T>>;

template <class To>
bool overflows(bool) {
  return false;
}
template <class To>
bool overflows(int64_t v) {
  if constexpr (std::is_unsigned_v<To>) {
    // -v is a magnitude: a negative number may wrap around once, as `a - b` does when it is computed as `a + (-b)`.
    const uint64_t magnitude = v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
    return magnitude > std::numeric_limits<To>::max();
  } else if constexpr (std::is_integral_v<To>) {
    return v < std::numeric_limits<To>::lowest() || v > std::numeric_limits<To>::max();
  } else {
    return std::fabs(static_cast<double>(v)) > Holds<To>::largest;
  }
}
template <class To>
bool overflows(uint64_t v) {
  if constexpr (std::is_integral_v<To>) {
    return v > static_cast<uint64_t>(std::numeric_limits<To>::max());
  } else {
    return static_cast<double>(v) > Holds<To>::largest;
  }
}
template <class To>
bool overflows(double v) {
  if constexpr (std::is_integral_v<To>) {
    return !(v >= static_cast<double>(std::numeric_limits<To>::lowest()) && v <= Holds<To>::largest);
  } else {
    if (Holds<To>::infinity && std::isinf(v)) return false;
    // The format has neither zero nor negative numbers.
    if (std::is_same_v<To, Float8_e8m0fnu> && v < 0x1p-127) return true;
    return std::fabs(v) > Holds<To>::largest;
  }
}

template <class To, class From>
bool cannot_hold(From v) {
  if constexpr (std::is_same_v<To, bool>) {
    return false;
  } else if constexpr (std::is_same_v<From, complex128>) {
    if (!is_complex_v<To> && v.imag() != 0) return true;
    return overflows<real_of_t<To>>(v.real()) || overflows<real_of_t<To>>(v.imag());
  } else {
    return overflows<real_of_t<To>>(v);
  }
}

// ---- conversion -----------------------------------------------------------------------------------------------

// Out of range and NaN give the most negative int64, as x86's conversion does; C++ leaves them undefined.
int64_t truncate(double v) {
  return v >= -0x1p63 && v < 0x1p63 ? static_cast<int64_t>(v) : std::numeric_limits<int64_t>::min();
}

template <class To>
To integer_from(double v) {
  if constexpr (std::is_same_v<To, uint64_t>) {
    if (v < 0x1p63) return static_cast<uint64_t>(truncate(v));
    return static_cast<uint64_t>(truncate(v - 0x1p63)) ^ (uint64_t{1} << 63);
  } else if constexpr (std::is_same_v<To, int32_t>) {
    return v > -0x1p31 - 1 && v < 0x1p31 ? static_cast<int32_t>(v) : std::numeric_limits<int32_t>::min();
  } else {
    return static_cast<To>(truncate(v));
  }
}

template <class To, class From>
To convert(From v) {
  if constexpr (std::is_same_v<From, complex128>) {
    if constexpr (std::is_same_v<To, bool>) {
      return v.real() != 0 || v.imag() != 0;
    } else if constexpr (is_complex_v<To>) {
      using Part = std::conditional_t<std::is_same_v<To, complex128>, double, float>;
      return To(std::complex<Part>(static_cast<Part>(v.real()), static_cast<Part>(v.imag())));
    } else {
      return convert<To>(v.real());
    }
  } else if constexpr (is_complex_v<To>) {
    using Part = std::conditional_t<std::is_same_v<To, complex128>, double, float>;
    return To(std::complex<Part>(static_cast<Part>(v), Part{0}));
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != From{0};
  } else if constexpr (std::is_integral_v<To> && std::is_same_v<From, double>) {
    return integer_from<To>(v);
  } else if constexpr (std::is_arithmetic_v<To>) {
    return static_cast<To>(v);
  } else {
    return To(static_cast<float>(v));
  }
}

// ---- messages -------------------------------------------------------------------------------------------------

// The C++ type names of torch's message, in the order of the enumeration, of the dtypes that numbers convert to.
constexpr const char* kTypeNames[static_cast<int>(DType::UInt64) + 1] = {
    "uint8_t",
    "int8_t",
    "int16_t",
    "int",
    "int64_t",
    "c10::Half",
    "float",
    "double",
    "c10::complex<c10::Half>",
    "c10::complex<float>",
    "c10::complex<double>",
    "bool",
    "c10::BFloat16",
    "c10::Float8_e5m2",
    "c10::Float8_e4m3fn",
    "c10::Float8_e5m2fnuz",
    "c10::Float8_e4m3fnuz",
    "c10::Float8_e8m0fnu",
    "uint16_t",
    "uint32_t",
    "uint64_t",
};

[[noreturn, gnu::cold]] void fail_conversion(const Scalar& value, DType to) {
  const bool drops_imaginary = value.is_complex() && !is_complex(to);
  fail(cat("value cannot be converted to type ", kTypeNames[static_cast<int>(to)], " without overflow: ", value,
           drops_imaginary ? " has an imaginary part or lies beyond the range of " : " lies beyond the range of ", to,
           "."));
}

// Exact: an integer that double would round equals no double.
bool same_number(int64_t a, double b) { return b >= -0x1p63 && b < 0x1p63 && b == std::trunc(b) && truncate(b) == a; }
bool same_number(uint64_t a, double b) {
  return b >= 0 && b < 0x1p64 && b == std::trunc(b) && integer_from<uint64_t>(b) == a;
}

}  // namespace

template <ElementType T>
T Scalar::to() const {
  return visit([this](auto v) -> T {
    if (cannot_hold<T>(v)) [[unlikely]]
      fail_conversion(*this, dtype_v<T>);
    return convert<T>(v);
  });
}

template <ElementType T>
T Scalar::cast() const {
  return visit([](auto v) -> T { return convert<T>(v); });
}

#define MICA_SCALAR_CONVERSIONS(T, Name) \
  template T Scalar::to<T>() const;      \
  template T Scalar::cast<T>() const;
MICA_FORALL_DTYPES(MICA_SCALAR_CONVERSIONS)
#undef MICA_SCALAR_CONVERSIONS

Scalar Scalar::operator-() const {
  MICA_CHECK(!is_bool(), "torch boolean negative, the `-` operator, is not supported. Use `not` instead.");
  if (tag_ == Tag::Complex) return complex128(-real_, -imag_);
  if (tag_ == Tag::Double) return -real_;
  const uint64_t negated = 0 - static_cast<uint64_t>(int_);
  MICA_CHECK(tag_ == Tag::Int || negated == uint64_t{1} << 63,
             "value cannot be converted to type int64_t without overflow: -", *this,
             " lies beyond the range of int64.");
  return static_cast<int64_t>(negated);
}

bool operator==(const Scalar& a, const Scalar& b) {
  using Tag = Scalar::Tag;
  const auto holds_integer = [](const Scalar& s) { return s.tag_ < Tag::Double; };
  if (holds_integer(a) && holds_integer(b)) return a.tag_ == b.tag_ && a.int_ == b.int_;
  if (a.is_bool() || b.is_bool() || a.imag_ != b.imag_) return false;
  if (holds_integer(b)) return b == a;
  if (a.tag_ == Tag::Int) return same_number(a.int_, b.real_);
  if (a.tag_ == Tag::UInt) return same_number(static_cast<uint64_t>(a.int_), b.real_);
  return a.real_ == b.real_;
}

std::string to_string(const Scalar& value) {
  switch (value.dtype()) {
    case DType::Bool:
      return value.to_bool() ? "True" : "False";
    case DType::Int64:
      return std::to_string(value.to<int64_t>());
    case DType::UInt64:
      return std::to_string(value.to<uint64_t>());
    case DType::Float64:
      return cat(value.to<double>());
    default:
      break;
  }
  // Python leaves the ".0" out of a complex number's parts, and a real part of +0 out altogether.
  const auto part = [](double v) {
    std::string s = cat(v);
    if (s.ends_with(".0")) s.resize(s.size() - 2);
    return s;
  };
  const complex128 z = value.to<complex128>();
  if (z.real() == 0 && !std::signbit(z.real())) return part(z.imag()) + "j";
  const std::string imaginary = part(z.imag());
  return cat("(", part(z.real()), imaginary.front() == '-' ? "" : "+", imaginary, "j)");
}

}  // namespace mica
