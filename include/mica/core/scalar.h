// A number without a tensor: the `2` of `x + 2`. It remembers which kind of number it was, not which width.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>

#include "mica/dtype.h"

namespace mica {

template <class T>
concept ElementType = requires {
  dtype_of<T>::value;
};

class Scalar {
 public:
  constexpr Scalar() : Scalar(int64_t{0}) {}

  template <class T>
  requires(std::is_arithmetic_v<T>) constexpr Scalar(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      int_ = value;
      tag_ = Tag::Bool;
    } else if constexpr (std::is_integral_v<T>) {
      int_ = static_cast<int64_t>(value);
      // Only what int64 cannot hold is kept unsigned.
      tag_ = std::is_unsigned_v<T> && int_ < 0 ? Tag::UInt : Tag::Int;
    } else {
      real_ = static_cast<double>(value);
      tag_ = Tag::Double;
    }
  }
  template <class T>
  requires(std::is_floating_point_v<T>) constexpr Scalar(std::complex<T> value)
      : real_(static_cast<double>(value.real())), imag_(static_cast<double>(value.imag())), tag_(Tag::Complex) {}
  Scalar(Half value) : Scalar(static_cast<float>(value)) {}
  Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}
  Scalar(Float8_e5m2 value) : Scalar(static_cast<float>(value)) {}
  Scalar(Float8_e4m3fn value) : Scalar(static_cast<float>(value)) {}
  Scalar(Float8_e5m2fnuz value) : Scalar(static_cast<float>(value)) {}
  Scalar(Float8_e4m3fnuz value) : Scalar(static_cast<float>(value)) {}
  Scalar(Float8_e8m0fnu value) : Scalar(static_cast<float>(value)) {}
  Scalar(ComplexHalf value) : Scalar(static_cast<complex64>(value)) {}

  constexpr bool is_bool() const { return tag_ == Tag::Bool; }
  constexpr bool is_integral() const { return tag_ == Tag::Int || tag_ == Tag::UInt; }  // false for a bool
  constexpr bool is_floating() const { return tag_ == Tag::Double; }
  constexpr bool is_complex() const { return tag_ == Tag::Complex; }

  constexpr Category category() const {
    return is_bool()       ? Category::Bool
           : is_integral() ? Category::Integral
           : is_floating() ? Category::Floating
                           : Category::Complex;
  }
  // bool, int64 (uint64 above its range), float64 or complex128.
  constexpr DType dtype() const {
    switch (tag_) {
      case Tag::Bool:
        return DType::Bool;
      case Tag::Int:
        return DType::Int64;
      case Tag::UInt:
        return DType::UInt64;
      case Tag::Double:
        return DType::Float64;
      case Tag::Complex:
        break;
    }
    return DType::Complex128;
  }

  // The value as element type T; throws where T cannot hold it: beyond its range, NaN as an integer, an imaginary part
  // as a real. A fraction is cut off, and a negative number wraps around in an unsigned type, as in torch.
  template <ElementType T>
  T to() const;

  // The value as element type T, converted as tensors are: what does not fit wraps, saturates or becomes infinite.
  template <ElementType T>
  T cast() const;

  bool to_bool() const { return cast<bool>(); }
  int64_t to_int() const { return to<int64_t>(); }
  double to_double() const { return to<double>(); }
  complex128 to_complex() const { return to<complex128>(); }

  Scalar operator-() const;  // throws for bool, as torch does
  constexpr Scalar conj() const {
    Scalar result = *this;
    if (is_complex()) result.imag_ = -imag_;
    return result;
  }

  // Numerically equal, without rounding; a bool equals only a bool.
  friend bool operator==(const Scalar& a, const Scalar& b);

 private:
  enum class Tag : uint8_t { Bool, Int, UInt, Double, Complex };

  // Calls f with the value as bool, int64_t, uint64_t, double or complex128.
  template <class F>
  auto visit(F&& f) const;

  union {
    int64_t int_;  // Bool, Int, and the bits of UInt
    double real_;
  };
  double imag_ = 0;
  Tag tag_;
};
static_assert(sizeof(Scalar) == 24 && std::is_trivially_copyable_v<Scalar>);

// As Python prints the number: True, 3, 3.0, (1+2j).
std::string to_string(const Scalar& value);
template <class S>
requires(std::is_same_v<S, Scalar>) void append_to(std::string& s, const S& value) { s += to_string(value); }

}  // namespace mica
