// cummax, cummin: the most extreme value so far and the last place where it stood. logcumsumexp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "backends/cpu/scan/run_scan.h"
#include "backends/cpu/visit_dtype.h"
#include "backends/shared/read_element.h"

namespace mica::cpu {

namespace {

// ---- cummax, cummin

enum class Extreme { Max, Min };

// Whether x takes over from the extremum so far: also when equal, and a NaN takes over from everything.
template <Extreme E, class T>
bool takes_over(T x, T best) {
  if constexpr (std::is_integral_v<T>) {
    return E == Extreme::Max ? x >= best : x <= best;
  } else {
    return std::isnan(x) || (E == Extreme::Max ? x >= best : x <= best);
  }
}

template <class T>
struct Compared {
  using type = T;
};
template <>
struct Compared<Half> {
  using type = float;
};
template <>
struct Compared<BFloat16> {
  using type = float;
};

// Steps are in bytes; where elements lie side by side they are known to the compiler.
template <Extreme E, class T, class Step, class ToStep, class PlaceStep>
void extreme_line(const char* x, Step step, char* values, ToStep to_step, char* places, PlaceStep place_step,
                  int64_t n) {
  using C = typename Compared<T>::type;
  T kept = read_element(*reinterpret_cast<const T*>(x));
  C best = static_cast<C>(kept);
  int64_t place = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T element = read_element(*reinterpret_cast<const T*>(x + i * step));
    const C v = static_cast<C>(element);
    if (takes_over<E>(v, best)) [[unlikely]] {
      kept = element;
      best = v;
      place = i;
    }
    *reinterpret_cast<T*>(values + i * to_step) = kept;
    *reinterpret_cast<int64_t*>(places + i * place_step) = place;
  }
}

template <Extreme E, class T>
void extreme_row(const char* x, int64_t stride, char* const* out, const int64_t* out_strides, int64_t n) {
  if (n == 0) return;
  constexpr int64_t kSize = sizeof(T), kPlace = sizeof(int64_t);
  if (stride == kSize && out_strides[0] == kSize && out_strides[1] == kPlace) {
    const std::integral_constant<int64_t, kSize> size;
    return extreme_line<E, T>(x, size, out[0], size, out[1], std::integral_constant<int64_t, kPlace>(), n);
  }
  extreme_line<E, T>(x, stride, out[0], out_strides[0], out[1], out_strides[1], n);
}

template <Extreme E, class T>
void extreme_columns(const char* x, int64_t row_stride, char* const* out, const int64_t* out_row_strides, int64_t n,
                     int64_t columns) {
  using C = typename Compared<T>::type;
  C best[kScanColumns];
  int64_t place[kScanColumns];
  for (int64_t r = 0; r < n; ++r) {
    const T* from = reinterpret_cast<const T*>(x + r * row_stride);
    T* values = reinterpret_cast<T*>(out[0] + r * out_row_strides[0]);
    auto* places = reinterpret_cast<int64_t*>(out[1] + r * out_row_strides[1]);
    for (int64_t j = 0; j < columns; ++j) {
      const C v = static_cast<C>(read_element(from[j]));
      const bool taken = r == 0 || takes_over<E>(v, best[j]);
      best[j] = taken ? v : best[j];
      place[j] = taken ? r : place[j];
      values[j] = static_cast<T>(best[j]);
      places[j] = place[j];
    }
  }
}

template <Extreme E>
void extreme(const char* op, const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim) {
  const TensorView* outputs[] = {&values, &indices};
  visit_real_bool(op, self.dtype, [&]<class T>(Tag<T>) {
    constexpr Scan scan{2, extreme_row<E, T>, extreme_columns<E, T>};
    run_scan(scan, outputs, self, dim);
  });
}

void cummax_kernel(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim) {
  extreme<Extreme::Max>("cummax_cpu", values, indices, self, dim);
}
void cummin_kernel(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t dim) {
  extreme<Extreme::Min>("cummin_cpu", values, indices, self, dim);
}

// ---- logcumsumexp

double log_add_exp(double a, double b) {
  const double low = std::isnan(a) || a < b ? a : b, high = std::isnan(a) || a < b ? b : a;
  if (low == high && std::isinf(low)) return low;
  return high + std::log1p(std::exp(low - high));
}

complex128 log_add_exp(complex128 a, complex128 b) {
  if (a.real() < b.real()) std::swap(a, b);
  if (std::isinf(a.real()) && a.real() < 0) return a;
  return a + std::log(1.0 + std::exp(b - a));
}

template <class T>
struct Running {
  using type = double;
};
template <class R>
struct Running<std::complex<R>> {
  using type = complex128;
};

template <class T>
void logcumsumexp_row(const char* x, int64_t stride, char* const* out, const int64_t* out_strides, int64_t n) {
  using A = typename Running<T>::type;
  A running{};
  for (int64_t i = 0; i < n; ++i) {
    const A v = static_cast<A>(*reinterpret_cast<const T*>(x + i * stride));
    running = i == 0 ? v : log_add_exp(running, v);
    *reinterpret_cast<T*>(out[0] + i * out_strides[0]) = static_cast<T>(running);
  }
}

template <class T>
void logcumsumexp_columns(const char* x, int64_t row_stride, char* const* out, const int64_t* out_row_strides,
                          int64_t n, int64_t columns) {
  using A = typename Running<T>::type;
  A running[kScanColumns];
  for (int64_t r = 0; r < n; ++r) {
    const T* from = reinterpret_cast<const T*>(x + r * row_stride);
    T* to = reinterpret_cast<T*>(out[0] + r * out_row_strides[0]);
    for (int64_t j = 0; j < columns; ++j) {
      const A v = static_cast<A>(from[j]);
      running[j] = r == 0 ? v : log_add_exp(running[j], v);
      to[j] = static_cast<T>(running[j]);
    }
  }
}

void logcumsumexp_kernel(const TensorView& out, const TensorView& self, int64_t dim) {
  const TensorView* outputs[] = {&out};
  visit_floating_complex("logcumsumexp_out_cpu", self.dtype, [&]<class T>(Tag<T>) {
    constexpr Scan scan{1, logcumsumexp_row<T>, logcumsumexp_columns<T>};
    run_scan(scan, outputs, self, dim);
  });
}

MICA_REGISTER_CPU(cummax, cummax_kernel);
MICA_REGISTER_CPU(cummin, cummin_kernel);
MICA_REGISTER_CPU(logcumsumexp, logcumsumexp_kernel);

}  // namespace
}  // namespace mica::cpu
