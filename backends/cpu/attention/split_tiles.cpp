#include "backends/cpu/attention/split_tiles.h"

#if defined(__x86_64__) && defined(__linux__)

#include <immintrin.h>

#define MICA_AMX __attribute__((target("amx-tile,amx-bf16")))

namespace mica::cpu {

bool has_split_tiles() {
  const gemm_impl::BFloat16Kernel* kernel = gemm_impl::bfloat16_kernel();
  return kernel && kernel->format.enter;
}

// Tiles 0 to 3 are accumulators, A is in 4 and 5, B in 6 and 7.
#define MICA_MULTIPLY_PARTS(b_part)                               \
  _tile_loadd(6, b + (b_part)*kSplitPart, 128);                   \
  _tile_dpbf16ps(0, 4, 6);                                        \
  _tile_loadd(7, b + (b_part)*kSplitPart + kSplitPart / 32, 128); \
  _tile_dpbf16ps(2, 5, 6);                                        \
  _tile_dpbf16ps(1, 4, 7);                                        \
  _tile_dpbf16ps(3, 5, 7)
#define MICA_LOAD_PART(a_part)                 \
  _tile_loadd(4, a + (a_part)*kSplitPart, 64); \
  _tile_loadd(5, a + (a_part)*kSplitPart + kSplitPart / 2, 64)

namespace {

constexpr int64_t kFloatUnit = 3 * kSplitPart, kPairUnit = 2 * kSplitPart;

MICA_AMX inline void open_sums(const float* c, int64_t c_stride, bool accumulate) {
  const int64_t stride = c_stride * static_cast<int64_t>(sizeof(float));
  if (accumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    _tile_loadd(2, c + 16 * c_stride, stride);
    _tile_loadd(3, c + 16 * c_stride + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
}

MICA_AMX inline void close_sums(float* c, int64_t c_stride) {
  const int64_t stride = c_stride * static_cast<int64_t>(sizeof(float));
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  _tile_stored(2, c + 16 * c_stride, stride);
  _tile_stored(3, c + 16 * c_stride + 16, stride);
}

}  // namespace

MICA_AMX void multiply_split_tiles(const uint16_t* a, const uint16_t* b, int64_t units, float* c, int64_t c_stride,
                                   bool accumulate) {
  open_sums(c, c_stride, accumulate);
  for (int64_t u = 0; u < units; ++u, a += kFloatUnit, b += kFloatUnit) {
    MICA_LOAD_PART(2);
    MICA_MULTIPLY_PARTS(0);
    MICA_LOAD_PART(1);
    MICA_MULTIPLY_PARTS(1);
    MICA_MULTIPLY_PARTS(0);
    MICA_LOAD_PART(0);
    MICA_MULTIPLY_PARTS(2);
    MICA_MULTIPLY_PARTS(1);
    MICA_MULTIPLY_PARTS(0);
  }
  close_sums(c, c_stride);
}

MICA_AMX void multiply_two_by_one(const uint16_t* a, const uint16_t* b, int64_t units, float* c, int64_t c_stride,
                                  bool accumulate) {
  open_sums(c, c_stride, accumulate);
  for (int64_t u = 0; u < units; ++u, a += kPairUnit, b += kSplitPart) {
    MICA_LOAD_PART(1);
    MICA_MULTIPLY_PARTS(0);
    MICA_LOAD_PART(0);
    MICA_MULTIPLY_PARTS(0);
  }
  close_sums(c, c_stride);
}

#undef MICA_MULTIPLY_PARTS
#undef MICA_LOAD_PART
#undef MICA_AMX

}  // namespace mica::cpu

#else

namespace mica::cpu {

bool has_split_tiles() { return false; }
void multiply_split_tiles(const uint16_t*, const uint16_t*, int64_t, float*, int64_t, bool) {}
void multiply_two_by_one(const uint16_t*, const uint16_t*, int64_t, float*, int64_t, bool) {}

}  // namespace mica::cpu

#endif
