// The total order that sorting, searching and selection share, as an unsigned integer per element.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "mica/dtype.h"
#include "mica/error.h"

namespace mica::cpu {

template <int Bytes>
struct UnsignedOfSize;
template <>
struct UnsignedOfSize<1> {
  using type = uint8_t;
};
template <>
struct UnsignedOfSize<2> {
  using type = uint16_t;
};
template <>
struct UnsignedOfSize<4> {
  using type = uint32_t;
};
template <>
struct UnsignedOfSize<8> {
  using type = uint64_t;
};
template <class T>
using OrderKey = typename UnsignedOfSize<sizeof(T)>::type;

// The bits of +infinity, above which every magnitude is a NaN; zero for the types that have none.
template <class T>
inline constexpr OrderKey<T> kInfinityBits = 0;
template <>
inline constexpr uint16_t kInfinityBits<Half> = 0x7c00;
template <>
inline constexpr uint16_t kInfinityBits<BFloat16> = 0x7f80;
template <>
inline constexpr uint32_t kInfinityBits<float> = 0x7f800000u;
template <>
inline constexpr uint64_t kInfinityBits<double> = 0x7ff0000000000000ull;

template <class T>
inline constexpr bool kHasNan = kInfinityBits<T> != 0;
template <class T>
inline constexpr OrderKey<T> kSignBit = OrderKey<T>(OrderKey<T>(1) << (8 * sizeof(T) - 1));

// The key of every NaN. No number of a type with NaNs has it: +infinity's is smaller.
template <class T>
inline constexpr OrderKey<T> kNanKey = std::numeric_limits<OrderKey<T>>::max();
// The one key of -0.0 and +0.0.
template <class T>
inline constexpr OrderKey<T> kZeroKey = kSignBit<T>;

// Maps a value to an unsigned integer so that a < b exactly when order_key(a) < order_key(b), where all NaNs are equal
// and greater than everything else, and -0.0 equals +0.0.
template <class T>
inline OrderKey<T> order_key(T value) {
  using K = OrderKey<T>;
  if constexpr (kHasNan<T>) {
    const K bits = std::bit_cast<K>(value);
    const K magnitude = bits & K(~kSignBit<T>);
    const K negative_mask = K(0) - K(bits >> (8 * sizeof(K) - 1));
    // A negative number's magnitude counts downwards; adding one to the complement lands -0.0 on +0.0's key.
    const K key = K((kSignBit<T> + (magnitude ^ negative_mask)) - negative_mask);
    return magnitude > kInfinityBits<T> ? kNanKey<T> : key;
  } else if constexpr (std::is_signed_v<T>) {
    return K(K(value) ^ kSignBit<T>);
  } else {
    return K(value);
  }
}

// Reads the keys of `count` elements of a row; its stride counts elements. Code that takes keys from here depends on
// their width alone, and is compiled once for each width instead of for each dtype.
template <class K>
using ReadKeys = void (*)(const void* row, int64_t stride, int64_t begin, int64_t count, K* keys);
template <class T>
void read_keys(const void* row, int64_t stride, int64_t begin, int64_t count, OrderKey<T>* keys) {
  // 16-bit floats are read as words, since copies of a class are not vectorised.
  using Word = std::conditional_t<std::is_class_v<T>, uint16_t, T>;
  const Word* from = static_cast<const Word*>(row) + begin * stride;
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) keys[i] = order_key(std::bit_cast<T>(from[i]));
  } else {
    for (int64_t i = 0; i < count; ++i) keys[i] = order_key(std::bit_cast<T>(from[i * stride]));
  }
}

// A value with the given key: +0.0 for the key of zeros, a quiet NaN for the key of NaNs.
template <class T>
inline T value_of_key(OrderKey<T> key) {
  using K = OrderKey<T>;
  K bits;
  if constexpr (kHasNan<T>) {
    if (key == kNanKey<T>) {
      bits = K(kInfinityBits<T> | (kInfinityBits<T> >> 1));
    } else {
      bits = key >= kSignBit<T> ? K(key - kSignBit<T>) : K(kSignBit<T> | K(kSignBit<T> - key));
    }
  } else if constexpr (std::is_signed_v<T>) {
    bits = K(key ^ kSignBit<T>);
  } else {
    bits = key;
  }
  return std::bit_cast<T>(bits);
}

// Calls f.template operator()<T>() with the element type of an ordered dtype; bool is ordered as the byte it is stored
// in.
template <class F>
decltype(auto) visit_ordered(const char* op, DType dtype, F&& f) {
  switch (dtype) {
#define MICA_VISIT_ORDERED(T, Name) \
  case DType::Name:                 \
    return f.template operator()<T>();
    MICA_FORALL_INTEGRAL(MICA_VISIT_ORDERED)
    MICA_FORALL_UNSIGNED(MICA_VISIT_ORDERED)
    MICA_FORALL_FLOATING(MICA_VISIT_ORDERED)
#undef MICA_VISIT_ORDERED
    case DType::Bool:
      return f.template operator()<uint8_t>();
    default:
      fail(ErrorKind::NotImplemented,
           cat(op, "(): elements of dtype ", dtype, " have no order; convert to a real dtype first"));
  }
}

}  // namespace mica::cpu
