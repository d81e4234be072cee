// Conversions between 64-bit integers and floats. The baseline of x86-64 has no vector instruction for them, AVX-512
// has.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/wide_integers.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/convert.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Dense operands; the compiler takes the target's vectors.
template <class To, class From>
HWY_ATTR void convert_dense(char* const* data, const int64_t* strides, int64_t n, const void*) {
  To* out = reinterpret_cast<To*>(data[0]);
  const From* in = reinterpret_cast<const From*>(data[1]);
  if (strides[1] == 0) {
    const To value = static_cast<To>(*in);
    for (int64_t i = 0; i < n; ++i) out[i] = value;
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<To>(in[i]);
}

InnerLoop wide_integer_loop(DType to, DType from) {
  if (from == DType::Int64 && to == DType::Float32) return convert_dense<float, int64_t>;
  if (from == DType::Int64 && to == DType::Float64) return convert_dense<double, int64_t>;
  if (from == DType::Float32 && to == DType::Int64) return convert_dense<int64_t, float>;
  if (from == DType::Float64 && to == DType::Int64) return convert_dense<int64_t, double>;
  return nullptr;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(wide_integer_loop);

InnerLoop wide_integer_conversion(DType to, DType from) { return HWY_DYNAMIC_DISPATCH(wide_integer_loop)(to, from); }

}  // namespace mica::cpu
#endif
