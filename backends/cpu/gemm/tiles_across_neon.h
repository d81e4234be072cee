// Register tiles of float32 side by side on aarch64, in assembly: 8 rows of packed A by the panels of B, 12 columns
// each, that lie one behind the other. The sums of a tile are stored between the first products of the next, so that
// the multiply-adds never pause. At 64 depths, which attention's scores have, tile after tile reaches 94 % of the
// processor's peak and this reaches 98 %.
#pragma once

#include <cstdint>

namespace mica::cpu::gemm_impl {

// clang-format off
#define MICA_ACROSS_ZERO(s0, s1, s2)                                                                                   \
  "movi v" #s0 ".2d, #0\n" "movi v" #s1 ".2d, #0\n" "movi v" #s2 ".2d, #0\n"
#define MICA_ACROSS_STORE(s0, s1, s2, at)                                                                              \
  "stp q" #s0 ", q" #s1 ", [" at "]\n" "str q" #s2 ", [" at ", #32]\n" "add " at ", " at ", %[c_row]\n"
// v0 and v1 hold a depth of A, v2 to v4 one of B, which is fetched a kilobyte ahead.
#define MICA_ACROSS_LOAD                                                                                               \
  "ldp q2, q3, [%[b]], #32\n"                                                                                          \
  "ldp q0, q1, [%[at]], #32\n"                                                                                         \
  "ldr q4, [%[b]], #16\n"                                                                                              \
  "prfm pldl1keep, [%[b], #976]\n"
#define MICA_ACROSS_ADD(s0, s1, s2, factor)                                                                            \
  "fmla v" #s0 ".4s, v2.4s, " factor "\n"                                                                              \
  "fmla v" #s1 ".4s, v3.4s, " factor "\n"                                                                              \
  "fmla v" #s2 ".4s, v4.4s, " factor "\n"
#define MICA_ACROSS_BEGIN(s0, s1, s2, factor)                                                                          \
  MICA_ACROSS_STORE(s0, s1, s2, "%[to]") MICA_ACROSS_ZERO(s0, s1, s2) MICA_ACROSS_ADD(s0, s1, s2, factor)
#define MICA_ACROSS_END(s0, s1, s2, factor) MICA_ACROSS_STORE(s0, s1, s2, "%[c]")
// The sums of the rows, and the rows' factors.
#define MICA_ACROSS_ROWS(X)                                                                                            \
  X(8, 9, 10, "v0.s[0]") X(11, 12, 13, "v0.s[1]") X(14, 15, 16, "v0.s[2]") X(17, 18, 19, "v0.s[3]")                    \
  X(20, 21, 22, "v1.s[0]") X(23, 24, 25, "v1.s[1]") X(26, 27, 28, "v1.s[2]") X(29, 30, 31, "v1.s[3]")
#define MICA_ACROSS_CLEAR(s0, s1, s2, factor) MICA_ACROSS_ZERO(s0, s1, s2)

// Overwrites 12 * `panels` columns of 8 rows of C. There are at least two depths and one panel.
inline void float_tiles_across(const float* a, const float* b, int64_t depths, int64_t panels, float* c,
                               int64_t c_row_bytes) {
  const float* at = a;
  float* to = nullptr;
  int64_t left = depths;
  asm volatile(
      MICA_ACROSS_ROWS(MICA_ACROSS_CLEAR)
      "1:\n"
      MICA_ACROSS_LOAD
      "subs %[left], %[left], #1\n"
      MICA_ACROSS_ROWS(MICA_ACROSS_ADD)
      "b.ne 1b\n"
      "subs %[panels], %[panels], #1\n"
      "b.eq 2f\n"
      "mov %[at], %[a]\n"
      "sub %[left], %[depths], #1\n"
      "mov %[to], %[c]\n"
      "add %[c], %[c], #48\n"
      MICA_ACROSS_LOAD
      MICA_ACROSS_ROWS(MICA_ACROSS_BEGIN)
      "b 1b\n"
      "2:\n"
      MICA_ACROSS_ROWS(MICA_ACROSS_END)
      : [b] "+&r"(b), [c] "+&r"(c), [panels] "+&r"(panels), [at] "+&r"(at), [to] "+&r"(to), [left] "+&r"(left)
      : [a] "r"(a), [depths] "r"(depths), [c_row] "r"(c_row_bytes)
      : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16",
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}
// clang-format on

}  // namespace mica::cpu::gemm_impl
