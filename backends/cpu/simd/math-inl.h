// The whole vector math. Include the parts instead where only a few functions are needed.

#if defined(MICA_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_MATH_INL_H_
#undef MICA_CPU_SIMD_MATH_INL_H_
#else
#define MICA_CPU_SIMD_MATH_INL_H_
#endif

#include "backends/cpu/simd/activation-inl.h"
#include "backends/cpu/simd/arithmetic-inl.h"
#include "backends/cpu/simd/exp-inl.h"
#include "backends/cpu/simd/gaussian-inl.h"
#include "backends/cpu/simd/hyperbolic-inl.h"
#include "backends/cpu/simd/inverse_trig-inl.h"
#include "backends/cpu/simd/log-inl.h"
#include "backends/cpu/simd/pow-inl.h"
#include "backends/cpu/simd/special-inl.h"
#include "backends/cpu/simd/trig-inl.h"

#endif  // MICA_CPU_SIMD_MATH_INL_H_
