#include "backends/cpu/tile_unit_x86.h"

#include "backends/cpu/target.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#define MICA_TILES __attribute__((target("amx-tile")))

namespace mica::cpu {

namespace {

// Linux grants the tile registers to a process on request.
bool has_tiles(unsigned product_bit) {
  constexpr unsigned kTileBit = 1u << 24;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!may_use_avx512() || !__builtin_cpu_supports("avx512bw") || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
    return false;
  if (!(d & kTileBit) || !(d & product_bit)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// The layout that LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace

bool has_bfloat16_tiles() {
  static const bool there = has_tiles(1u << 22);
  return there;
}

bool has_int8_tiles() {
  static const bool there = has_tiles(1u << 25);
  return there;
}

MICA_TILES void enter_tiles() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}

MICA_TILES void leave_tiles() { _tile_release(); }

}  // namespace mica::cpu

#else

namespace mica::cpu {
bool has_bfloat16_tiles() { return false; }
bool has_int8_tiles() { return false; }
void enter_tiles() {}
void leave_tiles() {}
}  // namespace mica::cpu

#endif
