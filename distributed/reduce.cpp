#include "reduce.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <type_traits>

namespace mica::distributed {
namespace {

constexpr size_t kBlock = 512;  // elements whose accumulators stay in the first cache

// The type in which elements are computed: float for 16-bit floats, the element's own type for others.
template <typename T>
struct Element {
  using Wide = T;
  static Wide widen(T value) { return value; }
  static T narrow(Wide value) { return value; }
};

// The 16-bit float that the compiler converts by the processor's own instructions: g++ 12 has _Float16 on x86-64 only.
#ifdef __aarch64__
using Float16 = __fp16;
#else
using Float16 = _Float16;
#endif
template <>
struct Element<Float16> {
  using Wide = float;
  static float widen(Float16 value) { return static_cast<float>(value); }
  static Float16 narrow(float value) { return static_cast<Float16>(value); }
};

template <>
struct Element<BFloat16> {
  using Wide = float;
  static float widen(BFloat16 value) { return value; }
  static BFloat16 narrow(float value) { return BFloat16(value); }
};

struct ComplexHalf {
  Float16 re, im;
};
template <>
struct Element<ComplexHalf> {
  using Wide = std::complex<float>;
  static Wide widen(ComplexHalf value) { return {static_cast<float>(value.re), static_cast<float>(value.im)}; }
  static ComplexHalf narrow(Wide value) {
    return {static_cast<Float16>(value.real()), static_cast<Float16>(value.imag())};
  }
};

template <typename T>
constexpr bool is_complex = false;
template <typename T>
constexpr bool is_complex<std::complex<T>> = true;

struct Add {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>)
      return a || b;
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
    else
      return a + b;
  }
};
struct Multiply {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) return a && b;
    // Computed in 64 bits, where the product of two unsigned shorts cannot overflow a signed int.
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};
// A NaN of any rank stays, whichever rank it comes from.
struct Minimum {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (is_complex<T>)
      return a;  // refused earlier
    else if constexpr (std::is_floating_point_v<T>)
      return a != a || a < b ? a : b;
    else
      return std::min(a, b);
  }
};
struct Maximum {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (is_complex<T>)
      return a;
    else if constexpr (std::is_floating_point_v<T>)
      return a != a || a > b ? a : b;
    else
      return std::max(a, b);
  }
};
struct And {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(a & b);
    else
      return a;
  }
};
struct Or {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(a | b);
    else
      return a;
  }
};
struct Xor {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(a ^ b);
    else
      return a;
  }
};

// What is done to a sum: nothing, a factor for each term, or a division of the sum.
enum class Scale { None, Terms, Mean };

template <typename T, typename Op, Scale scale>
void reduce_blocks(double factor, const std::vector<const std::byte*>& inputs, std::byte* out, size_t count) {
  using Wide = typename Element<T>::Wide;
  const size_t n = inputs.size();
  T* result = reinterpret_cast<T*>(out);
  if constexpr (scale == Scale::None && std::is_same_v<T, Wide>) {
    if (n == 2) {
      const T* a = reinterpret_cast<const T*>(inputs[0]);
      const T* b = reinterpret_cast<const T*>(inputs[1]);
#pragma GCC ivdep
      for (size_t i = 0; i < count; ++i) result[i] = Op::apply(a[i], b[i]);
      return;
    }
  }
  Wide sums[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = std::min(kBlock, count - begin);
    for (size_t k = 0; k < n; ++k) {
      const T* in = reinterpret_cast<const T*>(inputs[k]) + begin;
      for (size_t i = 0; i < length; ++i) {
        Wide value = Element<T>::widen(in[i]);
        if constexpr (scale == Scale::Terms) value = static_cast<Wide>(value * static_cast<Wide>(factor));
        sums[i] = k == 0 ? value : Op::apply(sums[i], value);
      }
    }
    for (size_t i = 0; i < length; ++i) {
      if constexpr (scale == Scale::Mean) sums[i] = static_cast<Wide>(sums[i] / static_cast<Wide>(n));
      result[begin + i] = Element<T>::narrow(sums[i]);
    }
  }
}

template <typename T>
void reduce_typed(Reduction reduction, double factor, const std::vector<const std::byte*>& inputs, std::byte* out,
                  size_t count) {
  switch (reduction) {
    case Reduction::Sum:
      return reduce_blocks<T, Add, Scale::None>(factor, inputs, out, count);
    case Reduction::Avg:
      if constexpr (!std::is_same_v<T, bool>) return reduce_blocks<T, Add, Scale::Mean>(factor, inputs, out, count);
      break;
    case Reduction::PremulSum:
      if constexpr (!std::is_same_v<T, bool>) return reduce_blocks<T, Add, Scale::Terms>(factor, inputs, out, count);
      break;
    case Reduction::Product:
      return reduce_blocks<T, Multiply, Scale::None>(factor, inputs, out, count);
    case Reduction::Min:
      return reduce_blocks<T, Minimum, Scale::None>(factor, inputs, out, count);
    case Reduction::Max:
      return reduce_blocks<T, Maximum, Scale::None>(factor, inputs, out, count);
    case Reduction::BAnd:
      return reduce_blocks<T, And, Scale::None>(factor, inputs, out, count);
    case Reduction::BOr:
      return reduce_blocks<T, Or, Scale::None>(factor, inputs, out, count);
    case Reduction::BXor:
      return reduce_blocks<T, Xor, Scale::None>(factor, inputs, out, count);
  }
}

}  // namespace

void reduce(DType dtype, Reduction reduction, double factor, const std::vector<const std::byte*>& inputs,
            std::byte* out, size_t count) {
  switch (dtype) {
    case DType::UInt8:
      return reduce_typed<uint8_t>(reduction, factor, inputs, out, count);
    case DType::Int8:
      return reduce_typed<int8_t>(reduction, factor, inputs, out, count);
    case DType::Int16:
      return reduce_typed<int16_t>(reduction, factor, inputs, out, count);
    case DType::Int32:
      return reduce_typed<int32_t>(reduction, factor, inputs, out, count);
    case DType::Int64:
      return reduce_typed<int64_t>(reduction, factor, inputs, out, count);
    case DType::UInt16:
      return reduce_typed<uint16_t>(reduction, factor, inputs, out, count);
    case DType::UInt32:
      return reduce_typed<uint32_t>(reduction, factor, inputs, out, count);
    case DType::UInt64:
      return reduce_typed<uint64_t>(reduction, factor, inputs, out, count);
    case DType::Float16:
      return reduce_typed<Float16>(reduction, factor, inputs, out, count);
    case DType::BFloat16:
      return reduce_typed<BFloat16>(reduction, factor, inputs, out, count);
    case DType::Float32:
      return reduce_typed<float>(reduction, factor, inputs, out, count);
    case DType::Float64:
      return reduce_typed<double>(reduction, factor, inputs, out, count);
    case DType::Complex32:
      return reduce_typed<ComplexHalf>(reduction, factor, inputs, out, count);
    case DType::Complex64:
      return reduce_typed<std::complex<float>>(reduction, factor, inputs, out, count);
    case DType::Complex128:
      return reduce_typed<std::complex<double>>(reduction, factor, inputs, out, count);
    case DType::Bool:
      return reduce_typed<bool>(reduction, factor, inputs, out, count);
    default:
      throw InvalidCall("Invalid scalar type");
  }
}

namespace {

template <typename T>
void divide_typed(std::byte* values, size_t count, int by) {
  using Wide = typename Element<T>::Wide;
  T* each = reinterpret_cast<T*>(values);
  for (size_t i = 0; i < count; ++i)
    each[i] = Element<T>::narrow(static_cast<Wide>(Element<T>::widen(each[i]) / static_cast<Wide>(by)));
}

}  // namespace

void divide(DType dtype, std::byte* values, size_t count, int by) {
  switch (dtype) {
    case DType::Float16:
      return divide_typed<Float16>(values, count, by);
    case DType::BFloat16:
      return divide_typed<BFloat16>(values, count, by);
    case DType::Float32:
      return divide_typed<float>(values, count, by);
    case DType::Float64:
      return divide_typed<double>(values, count, by);
    case DType::Complex32:
      return divide_typed<ComplexHalf>(values, count, by);
    case DType::Complex64:
      return divide_typed<std::complex<float>>(values, count, by);
    case DType::Complex128:
      return divide_typed<std::complex<double>>(values, count, by);
    default:
      throw InvalidCall("Invalid scalar type");
  }
}

}  // namespace mica::distributed
