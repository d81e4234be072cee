// The tallest tile of floats with AVX-512, 14 rows by two vectors, in assembly. A depth takes 28
// multiply-adds, 14 cycles of two units, and so leaves room for 56 instructions. Compilers spend 54 or more, or keep
// sums in memory once they see several depths; here four depths share the steps of A's pointers, and a depth takes 50.

#if defined(MICA_CPU_GEMM_TALL_TILE_AVX512_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_GEMM_TALL_TILE_AVX512_INL_H_
#undef MICA_CPU_GEMM_TALL_TILE_AVX512_INL_H_
#else
#define MICA_CPU_GEMM_TALL_TILE_AVX512_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "backends/cpu/gemm/tile_parts-inl.h"
#include "hwy/highway.h"

#define MICA_GEMM_TALL_TILE (HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3)

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::gemm_impl {
namespace HWY_NAMESPACE {
namespace {

#if MICA_GEMM_TALL_TILE

constexpr int kTallRows = 14;
static_assert(kTileRows == kTallRows && kTileVectors == 2);

// Where a run of depths is read and what is fetched beside it. Steps and distances in bytes; A's depths are adjacent.
struct TallRun {
  const void* a;
  int64_t a_row_step;
  const void* b;
  int64_t b_step;
  int64_t fours, ahead;            // of this many four depths, B is fetched so far ahead of its use
  int64_t last_fours, last_ahead;  // then of these
  int64_t ones;                    // depths after them
  const void* soon;                // fetched into the second cache, a step further with every depth
  int64_t soon_step;
};
static_assert(offsetof(TallRun, soon_step) == 80);

// clang-format off
#define MICA_TALL_ROW(BROADCAST, MULTIPLY, at, even, odd, temporary)        \
  BROADCAST " " at ", %%zmm" temporary "\n"                                 \
  MULTIPLY " %%zmm28, %%zmm" temporary ", %[s" even "]\n"                   \
  MULTIPLY " %%zmm29, %%zmm" temporary ", %[s" odd "]\n"
#define MICA_TALL_ROWS(B, M, depth, base, e0, o0, e1, o1)                   \
  MICA_TALL_ROW(B, M, depth "(%%" base ")", e0, o0, "30")                   \
  MICA_TALL_ROW(B, M, depth "(%%" base ", %%r12)", e1, o1, "31")
#define MICA_TALL_MORE_ROWS(B, M, depth, base, e2, o2, e3, o3)              \
  MICA_TALL_ROW(B, M, depth "(%%" base ", %%r12, 2)", e2, o2, "30")         \
  MICA_TALL_ROW(B, M, depth "(%%" base ", %%r13)", e3, o3, "31")
// A's rows from 0, 4, 8 and 12 at r8 to r11, the steps of one and three rows in r12 and r13; B in rsi, its step in rdi,
// what is fetched of it at rsi + rdx; `soon` in rax, its step in rcx.
#define MICA_TALL_DEPTH(B, M, depth)                                        \
  "vmovups (%%rsi), %%zmm28\n"                                              \
  "vmovups 64(%%rsi), %%zmm29\n"                                            \
  "prefetcht0 (%%rsi, %%rdx)\n"                                             \
  MICA_TALL_ROWS(B, M, depth, "r8", "0", "1", "2", "3")                     \
  "prefetcht0 64(%%rsi, %%rdx)\n"                                           \
  MICA_TALL_MORE_ROWS(B, M, depth, "r8", "4", "5", "6", "7")                \
  "add %%rdi, %%rsi\n"                                                      \
  MICA_TALL_ROWS(B, M, depth, "r9", "8", "9", "10", "11")                   \
  MICA_TALL_MORE_ROWS(B, M, depth, "r9", "12", "13", "14", "15")            \
  "prefetcht1 (%%rax)\n"                                                    \
  MICA_TALL_ROWS(B, M, depth, "r10", "16", "17", "18", "19")                \
  MICA_TALL_MORE_ROWS(B, M, depth, "r10", "20", "21", "22", "23")           \
  "add %%rcx, %%rax\n"                                                      \
  MICA_TALL_ROWS(B, M, depth, "r11", "24", "25", "26", "27")
#define MICA_TALL_STEP(by)                                                  \
  "add $" by ", %%r8\n" "add $" by ", %%r9\n" "add $" by ", %%r10\n" "add $" by ", %%r11\n"
#define MICA_TALL_ZERO(i) "vpxord %[s" i "], %[s" i "], %[s" i "]\n"
#define MICA_TALL_ZEROS(a, b, c, d) MICA_TALL_ZERO(a) MICA_TALL_ZERO(b) MICA_TALL_ZERO(c) MICA_TALL_ZERO(d)
#define MICA_TALL_SUM(i) [s##i] "=&v"(sums[i / 2][i % 2].raw)
#define MICA_TALL_RUN(B, M, d0, d1, d2, d3, by)                                                                      \
  asm volatile(                                                                                                      \
      "mov (%[run]), %%r8\n"                                                                                         \
      "mov 8(%[run]), %%r12\n"                                                                                       \
      "mov 16(%[run]), %%rsi\n"                                                                                      \
      "mov 24(%[run]), %%rdi\n"                                                                                      \
      "mov 32(%[run]), %%r14\n"                                                                                      \
      "mov 40(%[run]), %%rdx\n"                                                                                      \
      "mov 72(%[run]), %%rax\n"                                                                                      \
      "mov 80(%[run]), %%rcx\n"                                                                                      \
      "lea (%%r12, %%r12, 2), %%r13\n"                                                                               \
      "lea (%%r8, %%r12, 4), %%r9\n"                                                                                 \
      "lea (%%r9, %%r12, 4), %%r10\n"                                                                                \
      "lea (%%r10, %%r12, 4), %%r11\n"                                                                               \
      "xor %%r15d, %%r15d\n" /* whether these are the last fours */                                                  \
      MICA_TALL_ZEROS("0", "1", "2", "3") MICA_TALL_ZEROS("4", "5", "6", "7")                                        \
      MICA_TALL_ZEROS("8", "9", "10", "11") MICA_TALL_ZEROS("12", "13", "14", "15")                                  \
      MICA_TALL_ZEROS("16", "17", "18", "19") MICA_TALL_ZEROS("20", "21", "22", "23")                                \
      MICA_TALL_ZEROS("24", "25", "26", "27")                                                                        \
      "test %%r14, %%r14\n"                                                                                          \
      "jz 2f\n"                                                                                                      \
      ".p2align 5\n"                                                                                                 \
      "1:\n"                                                                                                         \
      MICA_TALL_DEPTH(B, M, d0) MICA_TALL_DEPTH(B, M, d1) MICA_TALL_DEPTH(B, M, d2) MICA_TALL_DEPTH(B, M, d3)        \
      MICA_TALL_STEP(by)                                                                                             \
      "sub $1, %%r14\n"                                                                                              \
      "jnz 1b\n"                                                                                                     \
      "2:\n"                                                                                                         \
      "test %%r15d, %%r15d\n"                                                                                        \
      "jnz 3f\n"                                                                                                     \
      "mov $1, %%r15d\n"                                                                                             \
      "mov 48(%[run]), %%r14\n"                                                                                      \
      "mov 56(%[run]), %%rdx\n"                                                                                      \
      "test %%r14, %%r14\n"                                                                                          \
      "jnz 1b\n"                                                                                                     \
      "3:\n"                                                                                                         \
      "mov 64(%[run]), %%r14\n"                                                                                      \
      "test %%r14, %%r14\n"                                                                                          \
      "jz 5f\n"                                                                                                      \
      "4:\n"                                                                                                         \
      MICA_TALL_DEPTH(B, M, d0)                                                                                      \
      MICA_TALL_STEP(d1)                                                                                             \
      "sub $1, %%r14\n"                                                                                              \
      "jnz 4b\n"                                                                                                     \
      "5:\n"                                                                                                         \
      : MICA_TALL_SUM(0), MICA_TALL_SUM(1), MICA_TALL_SUM(2), MICA_TALL_SUM(3), MICA_TALL_SUM(4), MICA_TALL_SUM(5),  \
        MICA_TALL_SUM(6), MICA_TALL_SUM(7), MICA_TALL_SUM(8), MICA_TALL_SUM(9), MICA_TALL_SUM(10),                   \
        MICA_TALL_SUM(11), MICA_TALL_SUM(12), MICA_TALL_SUM(13), MICA_TALL_SUM(14), MICA_TALL_SUM(15),               \
        MICA_TALL_SUM(16), MICA_TALL_SUM(17), MICA_TALL_SUM(18), MICA_TALL_SUM(19), MICA_TALL_SUM(20),               \
        MICA_TALL_SUM(21), MICA_TALL_SUM(22), MICA_TALL_SUM(23), MICA_TALL_SUM(24), MICA_TALL_SUM(25),               \
        MICA_TALL_SUM(26), MICA_TALL_SUM(27)                                                                         \
      : [run] "r"(&run)                                                                                              \
      : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "zmm28", "zmm29",   \
        "zmm30", "zmm31", "memory", "cc")
// clang-format on

// sums[i][v] = the products of row i of A with vector v of B, over all depths of the run.
template <class Vec>
HWY_INLINE void add_tall_run(const TallRun& run, Vec (&sums)[kTallRows][2]) {
  if constexpr (sizeof(hn::TFromV<Vec>) == 8) {
    MICA_TALL_RUN("vbroadcastsd", "vfmadd231pd", "0", "8", "16", "24", "32");
  } else {
    MICA_TALL_RUN("vbroadcastss", "vfmadd231ps", "0", "4", "8", "12", "16");
  }
}

#undef MICA_TALL_ROW
#undef MICA_TALL_ROWS
#undef MICA_TALL_MORE_ROWS
#undef MICA_TALL_DEPTH
#undef MICA_TALL_STEP
#undef MICA_TALL_ZERO
#undef MICA_TALL_ZEROS
#undef MICA_TALL_SUM
#undef MICA_TALL_RUN

// The tallest tile of whole vectors, where depths of A are adjacent; `before` are sums of earlier depths, or null.
template <class T>
HWY_NOINLINE void tall_tile(const MicroTile& t, const T* before) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kSize = sizeof(T), kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  fetch_c<T, kTallRows, 2>(t);
  const int64_t depths = depths_ahead<T>(t);
  TallRun run;
  run.a = t.a;
  run.a_row_step = t.a_row_stride * kSize;
  run.b = t.b;
  run.b_step = t.b_k_stride * kSize;
  run.fours = (t.k - depths) / 4;
  run.last_fours = t.k / 4 - run.fours;
  run.ones = t.k % 4;
  run.ahead = depths * run.b_step;
  // The first of the last depths fetches the first row of the next tile.
  run.last_ahead = (next_rows<T, 2>(t) - static_cast<const T*>(t.b)) * kSize - 4 * run.fours * run.b_step;
  run.soon = t.soon ? t.soon : t.a;
  run.soon_step = t.soon_step;
  hn::Vec<decltype(d)> sums[kTallRows][2];
  add_tall_run(run, sums);
  if (before) {
#pragma GCC unroll 28
    for (int i = 0; i < 2 * kTallRows; ++i)
      sums[i / 2][i % 2] = hn::Add(sums[i / 2][i % 2], hn::Load(d, before + i * kLanes));
  }
  store_tile<T, kTallRows, 2, false>(t, sums);
}

// Long sums are made of shorter ones, whose errors are smaller.
template <class T>
HWY_NOINLINE void deep_tall_tile(const MicroTile& t) {
  constexpr int64_t kWidth = 2 * static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  HWY_ALIGN T sums[kTallRows * kWidth];
  MicroTile part = t;
  part.k = kSumDepth;
  part.c = sums;
  part.c_row_stride = kWidth;
  part.c_near = true;
  part.store = Store::Overwrite;
  int64_t left = t.k;
  for (; left > kSumDepth; left -= kSumDepth) {
    const T* b = static_cast<const T*>(part.b) + kSumDepth * t.b_k_stride;
    part.next_b = b;
    tall_tile<T>(part, part.b == t.b ? nullptr : sums);
    part.a = static_cast<const T*>(part.a) + kSumDepth;
    part.b = b;
    if (t.soon) part.soon += kSumDepth * t.soon_step;
  }
  MicroTile last = t;
  last.k = left;
  last.a = part.a;
  last.b = part.b;
  last.soon = part.soon;
  last.next_b = next_rows<T, 2>(t);
  tall_tile<T>(last, sums);
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::gemm_impl
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_GEMM_TALL_TILE_AVX512_INL_H_
