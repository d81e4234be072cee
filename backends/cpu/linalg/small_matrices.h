// Many small matrices at once, one per lane of a vector: a call of LAPACK costs more than its arithmetic there.
// Matrices are real, square, column-major, one after the other.
#pragma once

#include <cstdint>

namespace mica::cpu::small {

constexpr int64_t kLargest = 32;           // for larger matrices LAPACK's blocks pay
constexpr int64_t kLargestIterative = 10;  // for larger matrices Jacobi's sweeps cost more than LAPACK's reduction

inline bool takes(int64_t n, int64_t count) { return n >= 1 && n <= kLargest && count >= 8; }
inline bool takes_iterative(int64_t n, int64_t count) { return n >= 1 && n <= kLargestIterative && count >= 8; }

// Each is for float and double. Returns, and leaves in `info`, what the LAPACK routine of the same purpose does.
#define MICA_SMALL(T)                                                                            \
  void cholesky(T* a, int64_t n, int64_t count, int32_t* info, bool upper);                      \
  void lu(T* a, int64_t n, int64_t count, int32_t* pivots, int32_t* info);                       \
  void inverse(T* a, int64_t n, int64_t count, int32_t* info);                                   \
  void qr(T* a, T* r, int64_t n, int64_t count);                                                 \
  void eigh(T* a, T* values, int64_t n, int64_t count, int32_t* info, bool upper, bool vectors); \
  void svd(const T* a, T* u, T* s, T* vh, int64_t n, int64_t count, int32_t* info); /* u, vh: both or none */
MICA_SMALL(float)
MICA_SMALL(double)
#undef MICA_SMALL

}  // namespace mica::cpu::small
