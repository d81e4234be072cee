// cumsum, cumprod. Floats accumulate as doubles (16-bit ones too), so that every prefix is rounded once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/scan/cumulative.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "backends/cpu/complex_product.h"
#include "backends/cpu/reduce/element_load.h"
#include "backends/cpu/reduce/wide_load-inl.h"
#include "backends/cpu/scan/run_scan.h"
#include "backends/cpu/simd/convert-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

struct Plus {
  static constexpr double kIdentity = 0;
  template <class A>
  static HWY_INLINE A apply(A a, A b) {
    return a + b;
  }
  static HWY_INLINE DoubleVector lanes(DoubleVector a, DoubleVector b) { return hn::Add(a, b); }
};
struct Times {
  static constexpr double kIdentity = 1;
  template <class A>
  static HWY_INLINE A apply(A a, A b) {
    return product(a, b);
  }
  static HWY_INLINE DoubleVector lanes(DoubleVector a, DoubleVector b) { return hn::Mul(a, b); }
};

// The type in which a row accumulates. Integers wrap around.
template <class T>
struct Running {
  using type = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
};
template <class R>
struct Running<std::complex<R>> {
  using type = complex128;
};

HWY_INLINE void store_narrow(DoubleVector v, double* to) { hn::StoreU(v, Doubles(), to); }
HWY_INLINE void store_narrow(DoubleVector v, float* to) {
  const hn::Rebind<float, Doubles> d;
  hn::StoreU(hn::DemoteTo(d, v), d, to);
}

// Combines each lane of a vector with all before it, by doubling distances.
template <class Op>
class Prefix {
 public:
  HWY_INLINE Prefix() {
    const Doubles d;
    HWY_ALIGN int64_t from[kLanes];
    for (int s = 0; s < kSteps; ++s) {
      for (int64_t i = 0; i < kLanes; ++i) from[i] = std::max<int64_t>(i - (1 << s), 0);
      from_[s] = hn::SetTableIndices(d, from);
      for (int64_t i = 0; i < kLanes; ++i) from[i] = i >= (1 << s) ? -1 : 0;
      takes_[s] = hn::MaskFromVec(hn::BitCast(d, hn::Load(hn::RebindToSigned<Doubles>(), from)));
    }
    for (int64_t i = 0; i < kLanes; ++i) from[i] = kLanes - 1;
    last_ = hn::SetTableIndices(d, from);
  }
  HWY_INLINE DoubleVector scan(DoubleVector v) const {
    const DoubleVector identity = hn::Set(Doubles(), Op::kIdentity);
    if constexpr (kLanes == 2) return Op::lanes(v, hn::CombineShiftRightBytes<8>(Doubles(), v, identity));
    for (int s = 0; s < kSteps; ++s)
      v = Op::lanes(v, hn::IfThenElse(takes_[s], hn::TableLookupLanes(v, from_[s]), identity));
    return v;
  }
  HWY_INLINE DoubleVector last(DoubleVector v) const {
    if constexpr (kLanes == 2) return hn::InterleaveUpper(Doubles(), v, v);
    return hn::TableLookupLanes(v, last_);
  }

  static constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Doubles()));
  static constexpr int kSteps = kLanes >= 8 ? 3 : kLanes >= 4 ? 2 : 1;

 private:
  using Indices = decltype(hn::SetTableIndices(Doubles(), static_cast<const int64_t*>(nullptr)));
  Indices from_[kSteps], last_;
  hn::Mask<Doubles> takes_[kSteps];
};

// With two lanes, floats are added one after the other: the prefix within a vector would cost as much. Two rows side by
// side then give the same numbers, twice as fast.
template <class Op, class T>
constexpr bool kOneByOne = Prefix<Op>::kLanes == 2 && std::is_same_v<Op, Plus>&& std::is_same_v<T, float>;

template <class T>
struct DenseRun {
  const T* x;
  double operator[](int64_t i) const { return static_cast<double>(x[i]); }
  HWY_INLINE DoubleVector lanes(int64_t i) const { return load_wide(x + i); }
};

#if HWY_ARCH_ARM_A64
struct StridedDoubles {
  const char* x;
  int64_t stride;  // in bytes
  const double* at(int64_t i) const { return reinterpret_cast<const double*>(x + i * stride); }
  double operator[](int64_t i) const { return *at(i); }
  HWY_INLINE DoubleVector lanes(int64_t i) const {
    return DoubleVector(vld1q_lane_f64(at(i + 1), vld1q_dup_f64(at(i)), 1));
  }
};
#endif

// out[i] = running op x[0] op ... op x[i]; returns the last. `out` is contiguous, and may be what x reads.
template <class Op, class T, class Run>
HWY_INLINE double scan_elements(const Run& x, T* out, int64_t n, double running) {
  if constexpr (kOneByOne<Op, T>) {
    for (int64_t i = 0; i < n; ++i) {
      running += x[i];
      out[i] = static_cast<T>(running);
    }
    return running;
  }
  const Prefix<Op> prefix;
  constexpr int64_t kLanes = Prefix<Op>::kLanes;
  DoubleVector carry = hn::Set(Doubles(), running);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const DoubleVector a = prefix.scan(x.lanes(i)), b = prefix.scan(x.lanes(i + kLanes));
    const DoubleVector before_b = prefix.last(a), both = Op::lanes(before_b, prefix.last(b));
    store_narrow(Op::lanes(a, carry), out + i);
    store_narrow(Op::lanes(b, Op::lanes(carry, before_b)), out + i + kLanes);
    carry = Op::lanes(carry, both);  // the only step that waits for the one before
  }
  running = hn::GetLane(carry);
  for (; i < n; ++i) {
    running = Op::apply(running, x[i]);
    out[i] = static_cast<T>(running);
  }
  return running;
}
template <class Op, class T>
HWY_INLINE double scan_run(const T* x, T* out, int64_t n, double running) {
  return scan_elements<Op>(DenseRun<T>{x}, out, n, running);
}

// Scans two rows of floats, one in each lane. `sums` holds the earlier totals and becomes the new ones.
#if HWY_ARCH_ARM_A64
HWY_INLINE void add_two_runs(const float* x, const float* y, float* out_x, float* out_y, int64_t n, double* sums) {
  const hn::Full128<float> d;
  const hn::Half<decltype(d)> half;
  const Doubles wide;
  DoubleVector running = hn::LoadU(wide, sums);
  const auto next = [&](auto pair) {
    running = hn::Add(running, hn::PromoteTo(wide, pair));
    return hn::DemoteTo(half, running);
  };
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, y + i);
    const auto low = hn::InterleaveLower(d, a, b), high = hn::InterleaveUpper(d, a, b);
    const auto s0 = next(hn::LowerHalf(half, low)), s1 = next(hn::UpperHalf(half, low));
    const auto s2 = next(hn::LowerHalf(half, high)), s3 = next(hn::UpperHalf(half, high));
    const auto first = hn::Combine(d, s1, s0), second = hn::Combine(d, s3, s2);
    hn::StoreU(hn::ConcatEven(d, second, first), d, out_x + i);
    hn::StoreU(hn::ConcatOdd(d, second, first), d, out_y + i);
  }
  hn::StoreU(running, wide, sums);
  for (; i < n; ++i) {
    out_x[i] = static_cast<float>(sums[0] += static_cast<double>(x[i]));
    out_y[i] = static_cast<float>(sums[1] += static_cast<double>(y[i]));
  }
}
#endif

template <class T>
constexpr bool is_narrow_float = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <class T>
using Stored = std::conditional_t<is_narrow_float<T>, float, T>;

HWY_INLINE void store_run(const float* from, int64_t n, Half* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t count = std::min(lanes, n - i);
    store_first_from_float<HalfBits>(load_first(d, from + i, count), d, reinterpret_cast<uint16_t*>(to + i), count);
  }
}
HWY_INLINE void store_run(const float* from, int64_t n, BFloat16* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t count = std::min(lanes, n - i);
    store_first_from_float<BFloat16Bits>(load_first(d, from + i, count), d, reinterpret_cast<uint16_t*>(to + i), count);
  }
}

template <class Op, class T>
void scan_row(const char* x, int64_t stride, char* const* out, const int64_t* out_strides, int64_t n) {
  using A = typename Running<T>::type;
  if constexpr (std::is_floating_point_v<Stored<T>>) {
    if (!is_narrow_float<T> && stride == sizeof(T) && out_strides[0] == sizeof(T)) {
      scan_run<Op>(reinterpret_cast<const Stored<T>*>(x), reinterpret_cast<Stored<T>*>(out[0]), n, Op::kIdentity);
      return;
    }
#if HWY_ARCH_ARM_A64
    if constexpr (std::is_same_v<T, double>) {
      if (out_strides[0] == sizeof(T)) {
        scan_elements<Op>(StridedDoubles{x, stride}, reinterpret_cast<double*>(out[0]), n, Op::kIdentity);
        return;
      }
    }
#endif
    constexpr int64_t kChunk = 1024;
    alignas(64) Stored<T> buffer[kChunk];
    const ElementLoad& load = load_number("cumsum_out_cpu", dtype_v<T>);
    double running = Op::kIdentity;
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      load.load(x + i * stride, stride, count, buffer);
      char* to = out[0] + i * out_strides[0];
      if constexpr (!is_narrow_float<T>) {
        if (out_strides[0] == sizeof(T)) {
          running = scan_run<Op>(buffer, reinterpret_cast<T*>(to), count, running);
          continue;
        }
      }
      running = scan_run<Op>(buffer, buffer, count, running);
      if constexpr (is_narrow_float<T>) {
        if (out_strides[0] == sizeof(T)) {
          store_run(buffer, count, reinterpret_cast<T*>(to));
          continue;
        }
      }
      for (int64_t k = 0; k < count; ++k) *reinterpret_cast<T*>(to + k * out_strides[0]) = static_cast<T>(buffer[k]);
    }
  } else {
    A running = static_cast<A>(Op::kIdentity);
    if (stride == sizeof(T) && out_strides[0] == sizeof(T)) {
      const T* from = reinterpret_cast<const T*>(x);
      T* to = reinterpret_cast<T*>(out[0]);
      for (int64_t i = 0; i < n; ++i) {
        running = Op::apply(running, static_cast<A>(from[i]));
        to[i] = static_cast<T>(running);
      }
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      running = Op::apply(running, static_cast<A>(*reinterpret_cast<const T*>(x + i * stride)));
      *reinterpret_cast<T*>(out[0] + i * out_strides[0]) = static_cast<T>(running);
    }
  }
}

template <class Op, class T>
void scan_columns(const char* x, int64_t row_stride, char* const* out, const int64_t* out_row_strides, int64_t n,
                  int64_t columns) {
  using A = typename Running<T>::type;
  alignas(64) A running[kScanColumns];
  std::fill_n(running, columns, static_cast<A>(Op::kIdentity));
  for (int64_t r = 0; r < n; ++r) {
    const T* from = reinterpret_cast<const T*>(x + r * row_stride);
    T* to = reinterpret_cast<T*>(out[0] + r * out_row_strides[0]);
    if constexpr (is_narrow_float<T>) {
      alignas(64) float buffer[kScanColumns];
      load_number("cumsum_out_cpu", dtype_v<T>).load(reinterpret_cast<const char*>(from), sizeof(T), columns, buffer);
      for (int64_t j = 0; j < columns; ++j) {
        running[j] = Op::apply(running[j], static_cast<A>(buffer[j]));
        buffer[j] = static_cast<float>(running[j]);
      }
      store_run(buffer, columns, to);
    } else {
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) {
        running[j] = Op::apply(running[j], static_cast<A>(from[j]));
        to[j] = static_cast<T>(running[j]);
      }
    }
  }
}

template <class Op, class T>
void scan_two_rows(const char* const* x, int64_t stride, char* const* out, int64_t out_stride, int64_t n) {
#if HWY_ARCH_ARM_A64
  if (out_stride == sizeof(T)) {
    HWY_ALIGN double sums[2] = {};
    constexpr bool narrow = is_narrow_float<T>;
    if (stride == sizeof(T) && !narrow)
      return add_two_runs(reinterpret_cast<const float*>(x[0]), reinterpret_cast<const float*>(x[1]),
                          reinterpret_cast<float*>(out[0]), reinterpret_cast<float*>(out[1]), n, sums);
    constexpr int64_t kChunk = 512;
    alignas(64) float buffer[2][kChunk];
    const ElementLoad& load = load_number("cumsum_out_cpu", dtype_v<T>);
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      for (int k = 0; k < 2; ++k) load.load(x[k] + i * stride, stride, count, buffer[k]);
      T* to[] = {reinterpret_cast<T*>(out[0]) + i, reinterpret_cast<T*>(out[1]) + i};
      if constexpr (narrow) {
        add_two_runs(buffer[0], buffer[1], buffer[0], buffer[1], count, sums);
        for (int k = 0; k < 2; ++k) store_run(buffer[k], count, to[k]);
      } else {
        add_two_runs(buffer[0], buffer[1], to[0], to[1], count, sums);
      }
    }
    return;
  }
#endif
  for (int k = 0; k < 2; ++k) scan_row<Op, T>(x[k], stride, out + k, &out_stride, n);
}

template <class Op>
void run(const char* op, const TensorView& out, const TensorView& self, int64_t dim) {
  const TensorView* outputs[] = {&out};
  visit_number(op, self.dtype, [&]<class T>(Tag<T>) {
    Scan scan{1, scan_row<Op, T>, scan_columns<Op, T>};
    if constexpr (HWY_ARCH_ARM_A64 && kOneByOne<Op, Stored<T>>) scan.two_rows = scan_two_rows<Op, T>;
    run_scan(scan, outputs, self, dim);
  });
}

void cumsum_kernel(const TensorView& out, const TensorView& self, int64_t dim) {
  run<Plus>("cumsum_out_cpu", out, self, dim);
}
void cumprod_kernel(const TensorView& out, const TensorView& self, int64_t dim) {
  run<Times>("cumprod_out_cpu", out, self, dim);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(cumsum_kernel);
HWY_EXPORT(cumprod_kernel);
MICA_REGISTER_SIMD(cumsum, cumsum_kernel);
MICA_REGISTER_SIMD(cumprod, cumprod_kernel);
}  // namespace mica::cpu
#endif
