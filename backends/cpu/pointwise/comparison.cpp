// eq, ne, lt, le, gt, ge.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/comparison.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/float8.h"
#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/pointwise/visit_words.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// a > b is b < a, so two of the six comparisons have no loops of their own.
template <class T, class F>
HWY_ATTR void exchanged_loop(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides,
                             int64_t rows, const void* context) {
  char* const exchanged[] = {data[0], data[2], data[1]};
  const int64_t steps[] = {strides[0], strides[2], strides[1]};
  const int64_t row_steps[] = {row_strides[0], row_strides[2], row_strides[1]};
  binary_loop<bool, T, F>(exchanged, steps, n, row_steps, rows, context);
}

// float16 numbers by their bits: a float of each would take longer to make than to compare. Where one is a NaN, the
// answer is that of F for no number.
template <template <class> class F, bool kOfNan>
struct OfHalves {
  bool operator()(uint16_t a, uint16_t b) const {
    const bool ordered = (size(a) <= 0x7c00) & (size(b) <= 0x7c00);
    const bool holds = F<int16_t>{}(place(a), place(b));
    return kOfNan ? holds | !ordered : holds & ordered;
  }
  static uint16_t size(uint16_t bits) { return bits & 0x7fff; }
  // Numbers are in the order of their places, and both zeros have the same.
  static int16_t place(uint16_t bits) { return static_cast<int16_t>(bits & 0x8000 ? -size(bits) : size(bits)); }
};

// Comparisons of any element type give bool.
template <template <class> class F, bool kExchanged>
void compare_order(const char* name, const PointwiseLoop& loop) {
  if (loop.dtype == DType::Float16) {
    using C = OfHalves<F, false>;
    const C f;
    return run_dense(loop, kExchanged ? exchanged_loop<uint16_t, C> : binary_loop<bool, uint16_t, C>, &f);
  }
  visit_real_bool(name, loop.dtype, [&]<class T>(Tag<T>) {
    using C = F<compute_t<T>>;
    const C f;
    run_dense(loop, kExchanged ? exchanged_loop<T, C> : binary_loop<bool, T, C>, &f);
  });
}

template <template <class> class F, bool kOfNan>
void compare_equality(const char* name, const PointwiseLoop& loop) {
  if (loop.dtype == DType::Float16) {
    const OfHalves<F, kOfNan> f;
    return run_dense(loop, binary_loop<bool, uint16_t, OfHalves<F, kOfNan>>, &f);
  }
  const auto run = [&]<class T>(Tag<T>) {
    const F<compute_t<T>> f;
    run_dense(loop, binary_loop<bool, T, F<compute_t<T>>>, &f);
  };
  // Pairs are compared by their bytes, as in torch.
  if (loop.dtype == DType::Float4_e2m1fn_x2) return run(Tag<uint8_t>{});
  if (is_float8(loop.dtype)) return visit_float8(name, loop.dtype, run);
  if (is_floating(loop.dtype)) return visit_floating(name, loop.dtype, run);
  if (is_complex(loop.dtype)) return visit_any_complex(name, loop.dtype, run);
  visit_words_bool(name, loop.dtype, run);
}

#define MICA_COMPARISON(Name, symbol)                      \
  template <class T>                                       \
  struct Name {                                            \
    bool operator()(T a, T b) const { return a symbol b; } \
  };
MICA_COMPARISON(Eq, ==)
MICA_COMPARISON(Ne, !=)
MICA_COMPARISON(Lt, <)
MICA_COMPARISON(Le, <=)
#undef MICA_COMPARISON

void eq_kernel(const PointwiseLoop& loop) { compare_equality<Eq, false>("eq_cpu", loop); }
void ne_kernel(const PointwiseLoop& loop) { compare_equality<Ne, true>("ne_cpu", loop); }
void lt_kernel(const PointwiseLoop& loop) { compare_order<Lt, false>("lt_cpu", loop); }
void le_kernel(const PointwiseLoop& loop) { compare_order<Le, false>("le_cpu", loop); }
void gt_kernel(const PointwiseLoop& loop) { compare_order<Lt, true>("gt_cpu", loop); }
void ge_kernel(const PointwiseLoop& loop) { compare_order<Le, true>("ge_cpu", loop); }

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(eq)
MICA_POINTWISE_SLOT(ne)
MICA_POINTWISE_SLOT(lt)
MICA_POINTWISE_SLOT(le)
MICA_POINTWISE_SLOT(gt)
MICA_POINTWISE_SLOT(ge)
}  // namespace mica::cpu
#endif
