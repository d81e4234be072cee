// prod. Floats are multiplied as doubles, complex64 as complex128, integers modulo 2^64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce/prod.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/complex_product.h"
#include "backends/cpu/reduce/reduction-inl.h"
#include "backends/cpu/reduce/wide_load-inl.h"
#include "backends/cpu/simd/lanes-inl.h"
#include "backends/cpu/simd/parts-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

template <class T, class A>
struct ProdBase {
  using Loaded = T;
  using Accumulator = A;
  static void start(A& a) { a = A(1); }
  static void columns(A* a, const T* x, int64_t columns, int64_t row_stride, int64_t count, int64_t, const void*) {
    for (int64_t r = 0; r < count; ++r) {
      const T* p = x + r * row_stride;
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) a[j] = product(a[j], static_cast<A>(p[j]));
    }
  }
  static void merge(A& a, const A& b) { a = product(a, b); }
  static A result(const A& a, int64_t, const void*) { return a; }
};

template <class T>
struct Prod : ProdBase<T, double> {  // float, double
  static void row(double& a, const T* x, int64_t n, int64_t, const void*) {
    const Doubles d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    if (n >= 4 * lanes) {
      DoubleVector p0 = hn::Set(d, 1.0), p1 = p0, p2 = p0, p3 = p0;
      for (; i + 4 * lanes <= n; i += 4 * lanes) {
        p0 = hn::Mul(p0, load_wide(x + i));
        p1 = hn::Mul(p1, load_wide(x + i + lanes));
        p2 = hn::Mul(p2, load_wide(x + i + 2 * lanes));
        p3 = hn::Mul(p3, load_wide(x + i + 3 * lanes));
      }
      HWY_ALIGN double products[hn::MaxLanes(Doubles())];
      hn::Store(hn::Mul(hn::Mul(p0, p1), hn::Mul(p2, p3)), d, products);
      for (int64_t k = 0; k < lanes; ++k) a *= products[k];
    }
    for (; i < n; ++i) a *= static_cast<double>(x[i]);
  }
};

#if MICA_SIMD_AVX512  // AVX-512 multiplies integers of 64 bits
// Multiplies as many elements as fill whole vectors into a, and returns how many.
HWY_INLINE int64_t multiply_vectors(uint64_t& a, const uint64_t* x, int64_t n) {
  const hn::ScalableTag<uint64_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (n < 4 * lanes) return 0;
  auto p0 = hn::Set(d, uint64_t(1)), p1 = p0, p2 = p0, p3 = p0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    p0 = hn::Mul(p0, hn::LoadU(d, x + i));
    p1 = hn::Mul(p1, hn::LoadU(d, x + i + lanes));
    p2 = hn::Mul(p2, hn::LoadU(d, x + i + 2 * lanes));
    p3 = hn::Mul(p3, hn::LoadU(d, x + i + 3 * lanes));
  }
  HWY_ALIGN uint64_t products[hn::MaxLanes(hn::ScalableTag<uint64_t>())];
  hn::Store(hn::Mul(hn::Mul(p0, p1), hn::Mul(p2, p3)), d, products);
  for (int64_t k = 0; k < lanes; ++k) a *= products[k];
  return i;
}
#endif

template <>
struct Prod<int64_t> : ProdBase<uint64_t, uint64_t> {
  static void row(uint64_t& a, const uint64_t* x, int64_t n, int64_t, const void*) {
    uint64_t p[4] = {1, 1, 1, 1};  // products that do not wait for one another
    int64_t i = 0;
#if MICA_SIMD_AVX512
    i = multiply_vectors(a, x, n);
#endif
    for (; i + 4 <= n; i += 4)
      for (int k = 0; k < 4; ++k) p[k] *= x[i + k];
    for (; i < n; ++i) p[0] *= x[i];
    a *= p[0] * p[1] * (p[2] * p[3]);
  }
};

template <class R>
HWY_INLINE Parts<DoubleVector> load_complex(const std::complex<R>* x) {
  const auto p = load_parts(hn::Rebind<R, Doubles>(), reinterpret_cast<const R*>(x));
  if constexpr (sizeof(R) == sizeof(double)) {
    return p;
  } else {
    return {hn::PromoteTo(Doubles(), p.re), hn::PromoteTo(Doubles(), p.im)};
  }
}

template <class R>
struct Prod<std::complex<R>> : ProdBase<std::complex<R>, complex128> {
  static void row(complex128& a, const std::complex<R>* x, int64_t n, int64_t, const void*) {
    const Doubles d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    if (n >= 8 * lanes) {  // products that do not wait for one another
      Parts<DoubleVector> p0 = load_complex(x), p1 = load_complex(x + lanes), p2 = load_complex(x + 2 * lanes),
                          p3 = load_complex(x + 3 * lanes);
      for (i = 4 * lanes; i + 4 * lanes <= n; i += 4 * lanes) {
        p0 = p0 * load_complex(x + i);
        p1 = p1 * load_complex(x + i + lanes);
        p2 = p2 * load_complex(x + i + 2 * lanes);
        p3 = p3 * load_complex(x + i + 3 * lanes);
      }
      const Parts<DoubleVector> all = (p0 * p1) * (p2 * p3);
      HWY_ALIGN double re[hn::MaxLanes(Doubles())], im[hn::MaxLanes(Doubles())];
      hn::Store(all.re, d, re);
      hn::Store(all.im, d, im);
      for (int64_t k = 0; k < lanes; ++k) a = product(a, complex128(re[k], im[k]));
    }
    for (; i < n; ++i) a = product(a, complex128(x[i]));
  }
};

void prod_kernel(const TensorView& out, const TensorView& self, uint64_t dims) {
  const TensorView* outputs[] = {&out};
  visit_loaded(self.dtype, [&]<class T>(Tag<T>) {
    visit_stored<T>("prod_out_cpu", out.dtype, [&]<class Out>(Tag<Out>) {
      constexpr Reduction reduction = reduction_of<Prod<T>>(finish_all<Prod<T>, Out>);
      run_reduction(reduction, load_number("prod_out_cpu", self.dtype), outputs, self, dims);
    });
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(prod_kernel);
MICA_REGISTER_SIMD(reduce_prod, prod_kernel);
}  // namespace mica::cpu
#endif
