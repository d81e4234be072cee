// The tile of sums that products and convolutions keep in registers.

#if defined(MICA_CPU_SIMD_REGISTER_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_REGISTER_TILE_INL_H_
#undef MICA_CPU_SIMD_REGISTER_TILE_INL_H_
#else
#define MICA_CPU_SIMD_REGISTER_TILE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The rows of the tile, and the vectors of a row. Together with one row of the other factor and a broadcast they must
// fit the registers.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kTileRows = 14, kTileVectors = 2;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kTileRows = 6, kTileVectors = 2;
#elif HWY_ARCH_ARM_A64
inline constexpr int kTileRows = 8, kTileVectors = 3;
#else
inline constexpr int kTileRows = 4, kTileVectors = 2;
#endif

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_REGISTER_TILE_INL_H_
