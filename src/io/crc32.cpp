#include "io/crc32.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mica::io {

namespace {

constexpr uint32_t kPolynomial = 0xEDB88320;

// tables[k][b]: the checksum of byte b followed by k zero bytes.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t c = b;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (c & 1 ? kPolynomial : 0);
    tables[0][b] = c;
  }
  for (uint32_t b = 0; b < 256; ++b)
    for (size_t k = 1; k < 8; ++k) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}();

// The register of the shift circuit, neither inverted before nor after.
uint32_t advance(uint32_t c, const uint8_t* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= c;
    c = kTables[7][low & 0xff] ^ kTables[6][(low >> 8) & 0xff] ^ kTables[5][(low >> 16) & 0xff] ^
        kTables[4][low >> 24] ^ kTables[3][high & 0xff] ^ kTables[2][(high >> 8) & 0xff] ^
        kTables[1][(high >> 16) & 0xff] ^ kTables[0][high >> 24];
  }
  for (; n; ++p, --n) c = (c >> 8) ^ kTables[0][(c ^ *p) & 0xff];
  return c;
}

#if defined(__x86_64__)

// Carries a 128-bit remainder over a distance, by products with powers of x modulo the polynomial.
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i remainder, __m128i powers, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(remainder, powers, 0x00);
  const __m128i high = _mm_clmulepi64_si128(remainder, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// Four remainders run side by side over 64-byte blocks, then merge; the last 16 bytes stand for all before them.
__attribute__((target("pclmul,sse4.1"))) uint32_t advance_folding(uint32_t c, const uint8_t* p, size_t n) {
  const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  auto block = [](const uint8_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
  __m128i lane[4] = {block(p), block(p + 16), block(p + 32), block(p + 48)};
  lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128(static_cast<int>(c)));
  for (p += 64, n -= 64; n >= 64; p += 64, n -= 64)
    for (int i = 0; i < 4; ++i) lane[i] = fold(lane[i], by_64, block(p + 16 * i));
  for (int i = 1; i < 4; ++i) lane[i] = fold(lane[i - 1], by_16, lane[i]);
  for (; n >= 16; p += 16, n -= 16) lane[3] = fold(lane[3], by_16, block(p));
  uint8_t rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), lane[3]);
  return advance(advance(0, rest, 16), p, n);
}

bool can_fold() {
  static const bool can = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  return can;
}

#endif

}  // namespace

uint32_t crc32(uint32_t crc, const void* data, size_t nbytes) {
  const auto* p = static_cast<const uint8_t*>(data);
#if defined(__x86_64__)
  if (nbytes >= 128 && can_fold()) return ~advance_folding(~crc, p, nbytes);
#endif
  return ~advance(~crc, p, nbytes);
}

}  // namespace mica::io
