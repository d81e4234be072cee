// pow, and the logical operations of two operands.
#include "backends/cuda/complex_functions.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise/define.cuh"
#include "backends/cuda/pointwise/functions.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct Pow {
  __device__ T operator()(T base, T exponent) const {
    if constexpr (is_complex_v<T>) {
      if (exponent == T(0)) return T(1);
      return complex_functions::pow(base, exponent);
    } else if constexpr (std::is_integral_v<T>) {
      // By squaring, wrapping around; a negative exponent leaves only 1 and -1.
      if constexpr (std::is_signed_v<T>) {
        if (exponent < 0) return base == 1 ? T(1) : base == -1 ? static_cast<T>(exponent % 2 ? -1 : 1) : T(0);
      }
      uint64_t result = 1, power = static_cast<uint64_t>(base);
      for (auto left = static_cast<uint64_t>(exponent); left; left >>= 1) {
        if (left & 1) result *= power;
        power *= power;
      }
      return static_cast<T>(result);
    } else {
      return ::pow(base, exponent);
    }
  }
};

template <class T>
double number_at(const char* data) {
  T value;
  std::memcpy(static_cast<void*>(&value), data, sizeof(T));
  return static_cast<double>(value);
}

Shortcut shortcut_of(const PointwiseLoop& loop) {
  if (!(loop.numbers >> 2 & 1)) return Shortcut::None;
  const double e = loop.dtype == DType::Float64    ? number_at<double>(loop.data[2])
                   : loop.dtype == DType::Float32  ? number_at<float>(loop.data[2])
                   : loop.dtype == DType::BFloat16 ? number_at<mica::BFloat16>(loop.data[2])
                                                   : number_at<mica::Half>(loop.data[2]);
  return shortcut_of_exponent(e);
}

template <class T>
struct Repeated {
  bool cube;
  __device__ T operator()(T x) const {
    const T square = static_cast<T>(x * x);
    return cube ? static_cast<T>(square * x) : square;
  }
};

// 2 or 3 where that is the exponent, 0 where it is another or elements have exponents of their own.
int small_exponent(const PointwiseLoop& loop) {
  if (!(loop.numbers >> 2 & 1)) return 0;
  int found = 0;
  visit_number("pow", loop.dtype, [&]<class T>(Tag<T>) {
    T exponent;
    std::memcpy(static_cast<void*>(&exponent), loop.data[2], sizeof(T));
    if constexpr (std::is_integral_v<T> || is_complex_v<T>) found = exponent == T(2) ? 2 : exponent == T(3) ? 3 : 0;
  });
  return found;
}

// A table of four bits: the answer for neither, the first, the second and both.
template <class T>
struct Logical {
  Truth<T> truth;
  uint32_t answers;
  __device__ bool operator()(T a, T b) const { return answers >> (truth(a) + 2 * truth(b)) & 1; }
};

void logical(const PointwiseLoop& loop, uint32_t answers) {
  visit_truth(loop.dtype, [&]<class T>(Tag<T>, Truth<T> truth) {
    run_pointwise<bool, T, T>(loop, Logical<T>{truth, answers});
  });
}

}  // namespace

void pow(const PointwiseLoop& loop) {
  if (is_floating(loop.dtype)) {
    const Shortcut shortcut = shortcut_of(loop);
    return visit_floating("pow", loop.dtype, [&]<class T>(Tag<T>) {
      using C = compute_t<T>;
      if (shortcut == Shortcut::None) return run_pointwise<T, T, T>(loop, Pow<C>{});
      run_pointwise<T, T, T>(loop, PowShort<C>{shortcut});
    });
  }
  // Squares and cubes are products, which wrap as integers do.
  const int factors = small_exponent(loop);
  if (factors)
    return visit_wrapping_number("pow", loop.dtype,
                                 [&]<class T>(Tag<T>) { run_pointwise<T, T>(loop, Repeated<T>{factors == 3}); });
  visit_number("pow", loop.dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_integral_v<T> || is_complex_v<T>) run_rare<T, T, T>(loop, Pow<T>{});
  });
}

void logical_and(const PointwiseLoop& loop) { logical(loop, 0b1000); }
void logical_or(const PointwiseLoop& loop) { logical(loop, 0b1110); }
void logical_xor(const PointwiseLoop& loop) { logical(loop, 0b0110); }

}  // namespace mica::cuda
