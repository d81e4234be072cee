// The tallest tile of floats with AVX-512, 14 rows by two vectors, in assembly. A depth takes 28 multiply-adds, which
// are 14 cycles of two units. That leaves room for 56 instructions where a thread has its core alone, for half of that
// where another thread shares it. Compilers need 54 or more, or keep sums in memory once they see several depths. Here
// a depth takes 45: the multiply-adds themselves broadcast four rows, which reads these twice (with more such rows
// there would be too many loads), and four depths share the steps of A's pointers and what is fetched for later tiles.
// Beside a busy thread on the same core that is 5 to 10 % faster than 50 instructions.

#if defined(MICA_CPU_GEMM_TALL_TILE_AVX512_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_GEMM_TALL_TILE_AVX512_INL_H_
#undef MICA_CPU_GEMM_TALL_TILE_AVX512_INL_H_
#else
#define MICA_CPU_GEMM_TALL_TILE_AVX512_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "backends/cpu/gemm/tile_parts-inl.h"
#include "backends/cpu/transpose_words_x86.h"
#include "hwy/highway.h"

#define MICA_GEMM_TALL_TILE (HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3)

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::gemm_impl {
namespace HWY_NAMESPACE {
namespace {

#if MICA_GEMM_TALL_TILE

constexpr int kTallRows = 14;
static_assert(kTileRows == kTallRows && kTileVectors == 2 && kFetchDepths == 4);

// Where a run of depths is read, and what is fetched meanwhile. Steps and distances are in bytes.
struct TallRun {
  const void* a;
  int64_t a_step;  // of a row where depths are adjacent, of a depth in planes
  const void* b;
  int64_t b_step;
  int64_t fours, ahead;            // groups of four depths, for which B is fetched `ahead` bytes before its use
  int64_t last_fours, last_ahead;  // further groups of four depths, with another distance
  int64_t ones;                    // single depths after them
  const void* soon;                // two lines are fetched from here, a step further with every four depths
  int64_t soon_step;
  const void* c;  // a row of it is fetched with each of the first `c_fours` groups: all at once would hold up B
  int64_t c_step;
  int64_t c_fours;
};
static_assert(offsetof(TallRun, c_fours) == 104);

// clang-format off
#define MICA_TALL_BROADCAST_PS "vbroadcastss"
#define MICA_TALL_MULTIPLY_PS "vfmadd231ps"
#define MICA_TALL_LANES_PS "16"
#define MICA_TALL_SIZE_PS "4"
#define MICA_TALL_BROADCAST_PD "vbroadcastsd"
#define MICA_TALL_MULTIPLY_PD "vfmadd231pd"
#define MICA_TALL_LANES_PD "8"
#define MICA_TALL_SIZE_PD "8"
// Where A is. If depths are adjacent, r8 to r11 point to rows 0, 4, 8 and 12, and r12 and r13 are the steps of one and
// of three rows. If rows are adjacent, r8 alone points to A; in planes, whose depths lie apart, r12 is the step from one
// depth to the next.
#define MICA_TALL_AT_DEPTHS(size, row, depth) size "*" depth MICA_TALL_PLACE_##row
#define MICA_TALL_AT_ROWS(size, row, depth) size "*(14*" depth "+" #row ")(%%r8)"
#define MICA_TALL_AT_PLANES(size, row, depth) size "*" #row "(%%r8)"
#define MICA_TALL_PLACE_0 "(%%r8)"
#define MICA_TALL_PLACE_1 "(%%r8, %%r12)"
#define MICA_TALL_PLACE_2 "(%%r8, %%r12, 2)"
#define MICA_TALL_PLACE_3 "(%%r8, %%r13)"
#define MICA_TALL_PLACE_4 "(%%r9)"
#define MICA_TALL_PLACE_5 "(%%r9, %%r12)"
#define MICA_TALL_PLACE_6 "(%%r9, %%r12, 2)"
#define MICA_TALL_PLACE_7 "(%%r9, %%r13)"
#define MICA_TALL_PLACE_8 "(%%r10)"
#define MICA_TALL_PLACE_9 "(%%r10, %%r12)"
#define MICA_TALL_PLACE_10 "(%%r10, %%r12, 2)"
#define MICA_TALL_PLACE_11 "(%%r10, %%r13)"
#define MICA_TALL_PLACE_12 "(%%r11)"
#define MICA_TALL_PLACE_13 "(%%r11, %%r12)"
#define MICA_TALL_STEP_DEPTHS(size, depths)                                 \
  "add $" size "*" depths ", %%r8\n" "add $" size "*" depths ", %%r9\n"     \
  "add $" size "*" depths ", %%r10\n" "add $" size "*" depths ", %%r11\n"
#define MICA_TALL_STEP_ROWS(size, depths) "add $14*" size "*" depths ", %%r8\n"
#define MICA_TALL_STEP_PLANES(size, depths)
#define MICA_TALL_NEXT_DEPTHS
#define MICA_TALL_NEXT_ROWS
#define MICA_TALL_NEXT_PLANES "add %%r12, %%r8\n"
// A row of the tile. `odd` is the sum of its second vector.
#define MICA_TALL_ROW(T, A, row, depth, even, odd, temporary)                                       \
  MICA_TALL_BROADCAST_##T " " MICA_TALL_AT_##A(MICA_TALL_SIZE_##T, row, depth) ", %%zmm" temporary "\n" \
  MICA_TALL_MULTIPLY_##T " %%zmm28, %%zmm" temporary ", %[s" even "]\n"                             \
  MICA_TALL_MULTIPLY_##T " %%zmm29, %%zmm" temporary ", %[s" odd "]\n"
#define MICA_TALL_TWICE_READ_ROW(T, A, row, depth, even, odd)                                       \
  MICA_TALL_TIMES(T, A, row, depth) ", %%zmm28, %[s" even "]\n"                                     \
  MICA_TALL_TIMES(T, A, row, depth) ", %%zmm29, %[s" odd "]\n"
#define MICA_TALL_TIMES(T, A, row, depth)                                                           \
  MICA_TALL_MULTIPLY_##T " " MICA_TALL_AT_##A(MICA_TALL_SIZE_##T, row, depth) "%{1to" MICA_TALL_LANES_##T "%}"
// rsi points to B, rdi is its step, and rsi + rdx is what is fetched of it.
#define MICA_TALL_DEPTH(T, A, depth)                                                                \
  "vmovups (%%rsi), %%zmm28\n"                                                                      \
  "vmovups 64(%%rsi), %%zmm29\n"                                                                    \
  MICA_TALL_ROW(T, A, 1, depth, "2", "3", "31")                                                     \
  MICA_TALL_TWICE_READ_ROW(T, A, 0, depth, "0", "1")                                                \
  MICA_TALL_ROW(T, A, 2, depth, "4", "5", "30")                                                     \
  "prefetcht0 (%%rsi, %%rdx)\n"                                                                     \
  MICA_TALL_ROW(T, A, 3, depth, "6", "7", "31")                                                     \
  MICA_TALL_TWICE_READ_ROW(T, A, 4, depth, "8", "9")                                                \
  MICA_TALL_ROW(T, A, 5, depth, "10", "11", "31")                                                   \
  MICA_TALL_ROW(T, A, 6, depth, "12", "13", "30")                                                   \
  MICA_TALL_ROW(T, A, 7, depth, "14", "15", "31")                                                   \
  "prefetcht0 64(%%rsi, %%rdx)\n"                                                                   \
  MICA_TALL_TWICE_READ_ROW(T, A, 8, depth, "16", "17")                                              \
  MICA_TALL_ROW(T, A, 9, depth, "18", "19", "31")                                                   \
  MICA_TALL_ROW(T, A, 10, depth, "20", "21", "30")                                                  \
  MICA_TALL_ROW(T, A, 11, depth, "22", "23", "31")                                                  \
  MICA_TALL_TWICE_READ_ROW(T, A, 12, depth, "24", "25")                                             \
  MICA_TALL_ROW(T, A, 13, depth, "26", "27", "31")                                                  \
  MICA_TALL_NEXT_##A                                                                                \
  "add %%rdi, %%rsi\n"
// rax is `soon`, rcx its step.
#define MICA_TALL_FOUR(T, A, FETCH_C)                                                               \
  MICA_TALL_DEPTH(T, A, "0")                                                                        \
  "prefetcht1 (%%rax)\n" "prefetcht1 64(%%rax)\n"                                                   \
  MICA_TALL_DEPTH(T, A, "1")                                                                        \
  "add %%rcx, %%rax\n"                                                                              \
  MICA_TALL_DEPTH(T, A, "2")                                                                        \
  FETCH_C                                                                                           \
  MICA_TALL_DEPTH(T, A, "3")                                                                        \
  MICA_TALL_STEP_##A(MICA_TALL_SIZE_##T, "4")                                                       \
  "sub $1, %%r14\n"
// r15 points to the rows of C.
#define MICA_TALL_FETCH_C "prefetcht0 (%%r15)\n" "prefetcht0 64(%%r15)\n" "add 96(%[run]), %%r15\n"
#define MICA_TALL_ZERO(i) "vpxord %[s" i "], %[s" i "], %[s" i "]\n"
#define MICA_TALL_ZEROS(a, b, c, d) MICA_TALL_ZERO(a) MICA_TALL_ZERO(b) MICA_TALL_ZERO(c) MICA_TALL_ZERO(d)
#define MICA_TALL_SUM(i) [s##i] "=&v"(sums[i / 2][i % 2].raw)
#define MICA_TALL_RUN(T, A)                                                                                          \
  asm volatile(                                                                                                      \
      "mov (%[run]), %%r8\n"                                                                                         \
      "mov 8(%[run]), %%r12\n"                                                                                       \
      "mov 16(%[run]), %%rsi\n"                                                                                      \
      "mov 24(%[run]), %%rdi\n"                                                                                      \
      "mov 88(%[run]), %%r15\n"                                                                                      \
      "mov 104(%[run]), %%r14\n"                                                                                     \
      "mov 40(%[run]), %%rdx\n"                                                                                      \
      "mov 72(%[run]), %%rax\n"                                                                                      \
      "mov 80(%[run]), %%rcx\n"                                                                                      \
      "lea (%%r12, %%r12, 2), %%r13\n"                                                                               \
      "lea (%%r8, %%r12, 4), %%r9\n"                                                                                 \
      "lea (%%r9, %%r12, 4), %%r10\n"                                                                                \
      "lea (%%r10, %%r12, 4), %%r11\n"                                                                               \
      MICA_TALL_ZEROS("0", "1", "2", "3") MICA_TALL_ZEROS("4", "5", "6", "7")                                        \
      MICA_TALL_ZEROS("8", "9", "10", "11") MICA_TALL_ZEROS("12", "13", "14", "15")                                  \
      MICA_TALL_ZEROS("16", "17", "18", "19") MICA_TALL_ZEROS("20", "21", "22", "23")                                \
      MICA_TALL_ZEROS("24", "25", "26", "27")                                                                        \
      "test %%r14, %%r14\n"                                                                                          \
      "jz 6f\n"                                                                                                      \
      ".p2align 5\n"                                                                                                 \
      "0:\n"                                                                                                         \
      MICA_TALL_FOUR(T, A, MICA_TALL_FETCH_C)                                                                        \
      "jnz 0b\n"                                                                                                     \
      "6:\n"                                                                                                         \
      "xor %%r15d, %%r15d\n" /* whether these are the last fours */                                                  \
      "mov 32(%[run]), %%r14\n"                                                                                      \
      "test %%r14, %%r14\n"                                                                                          \
      "jz 2f\n"                                                                                                      \
      ".p2align 5\n"                                                                                                 \
      "1:\n"                                                                                                         \
      MICA_TALL_FOUR(T, A, "")                                                                                       \
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
      MICA_TALL_DEPTH(T, A, "0")                                                                                     \
      MICA_TALL_STEP_##A(MICA_TALL_SIZE_##T, "1")                                                                    \
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

enum class TallA : uint8_t { Depths, Rows, Planes };

// sums[i][v] = the products of row i of A with vector v of B, over all depths of the run.
template <class Vec>
HWY_INLINE void add_tall_run(const TallRun& run, TallA order, Vec (&sums)[kTallRows][2]) {
  if constexpr (sizeof(hn::TFromV<Vec>) == 8) {
    if (order == TallA::Rows) {
      MICA_TALL_RUN(PD, ROWS);
    } else {
      MICA_TALL_RUN(PD, DEPTHS);
    }
  } else if (order == TallA::Planes) {
    MICA_TALL_RUN(PS, PLANES);
  } else if (order == TallA::Rows) {
    MICA_TALL_RUN(PS, ROWS);
  } else {
    MICA_TALL_RUN(PS, DEPTHS);
  }
}

#undef MICA_TALL_BROADCAST_PS
#undef MICA_TALL_MULTIPLY_PS
#undef MICA_TALL_LANES_PS
#undef MICA_TALL_SIZE_PS
#undef MICA_TALL_BROADCAST_PD
#undef MICA_TALL_MULTIPLY_PD
#undef MICA_TALL_LANES_PD
#undef MICA_TALL_SIZE_PD
#undef MICA_TALL_AT_DEPTHS
#undef MICA_TALL_AT_ROWS
#undef MICA_TALL_AT_PLANES
#undef MICA_TALL_PLACE_0
#undef MICA_TALL_PLACE_1
#undef MICA_TALL_PLACE_2
#undef MICA_TALL_PLACE_3
#undef MICA_TALL_PLACE_4
#undef MICA_TALL_PLACE_5
#undef MICA_TALL_PLACE_6
#undef MICA_TALL_PLACE_7
#undef MICA_TALL_PLACE_8
#undef MICA_TALL_PLACE_9
#undef MICA_TALL_PLACE_10
#undef MICA_TALL_PLACE_11
#undef MICA_TALL_PLACE_12
#undef MICA_TALL_PLACE_13
#undef MICA_TALL_STEP_DEPTHS
#undef MICA_TALL_STEP_ROWS
#undef MICA_TALL_STEP_PLANES
#undef MICA_TALL_NEXT_DEPTHS
#undef MICA_TALL_NEXT_ROWS
#undef MICA_TALL_NEXT_PLANES
#undef MICA_TALL_ROW
#undef MICA_TALL_TWICE_READ_ROW
#undef MICA_TALL_TIMES
#undef MICA_TALL_DEPTH
#undef MICA_TALL_FOUR
#undef MICA_TALL_FETCH_C
#undef MICA_TALL_ZERO
#undef MICA_TALL_ZEROS
#undef MICA_TALL_SUM
#undef MICA_TALL_RUN

// Writes the columns of 16 rows, of which the first `rows` are kept, to a C whose rows are adjacent.
HWY_INLINE void store_columns(__m512i (&words)[16], int rows, int columns, void* c, int64_t stride) {
  transpose_words(words);
  const auto mask = static_cast<__mmask16>((1 << rows) - 1);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if (i < columns) _mm512_mask_storeu_epi32(static_cast<int32_t*>(c) + i * stride, mask, words[i]);
  }
}

// Brings the sums of a tile to such a C.
template <class Vec>
HWY_INLINE void store_turned(const MicroTile& t, const Vec (&sums)[kTallRows][2]) {
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    __m512i words[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      words[i] = i < kTallRows ? _mm512_castps_si512(sums[i][v].raw) : _mm512_setzero_si512();
    store_columns(words, kTallRows, 16, static_cast<float*>(t.c) + v * 16 * t.c_row_stride, t.c_row_stride);
  }
}

// Brings a block of t.rows x t.cols numbers, whose rows are 32 words apart, to such a C.
inline HWY_ATTR void turn_block(const MicroTile& t, const void* block) {
  for (int column = 0; column < t.cols; column += 16) {
    __m512i words[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const auto* row = static_cast<const int32_t*>(block) + i * 32 + column;
      words[i] = i < kTallRows && i < t.rows ? _mm512_loadu_si512(row) : _mm512_setzero_si512();
    }
    store_columns(words, t.rows, HWY_MIN(16, t.cols - column), static_cast<float*>(t.c) + column * t.c_row_stride,
                  t.c_row_stride);
  }
}

// Whether a tile is the tallest, of whole vectors, with an A whose depths or whose rows are adjacent.
template <class T>
HWY_INLINE bool is_tall(const MicroTile& t) {
  const bool suits = t.a_k_stride == 1 || (t.a_row_stride == 1 && (sizeof(T) == 4 || t.a_k_stride == kTallRows));
  return t.rows == kTallRows && t.cols == 2 * static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>())) && suits;
}

// `before` has the sums of earlier depths, or is null.
template <class T>
HWY_NOINLINE void tall_tile(const MicroTile& t, const T* before) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kSize = sizeof(T), kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  const int64_t depths = depths_ahead<T>(t);
  TallRun run;
  run.a = t.a;
  const TallA order = t.a_k_stride == 1 ? TallA::Depths : t.a_k_stride == kTallRows ? TallA::Rows : TallA::Planes;
  run.a_step = (order == TallA::Planes ? t.a_k_stride : t.a_row_stride) * kSize;
  run.b = t.b;
  run.b_step = t.b_k_stride * kSize;
  const int64_t fours = (t.k - depths) / 4;
  run.c = t.c;
  run.c_step = t.c_row_stride * kSize;
  run.c_fours = t.c_near ? 0 : HWY_MIN(fours, t.turned ? 2 * kLanes : kTallRows);
  run.fours = fours - run.c_fours;
  run.last_fours = t.k / 4 - fours;
  run.ones = t.k % 4;
  run.ahead = depths * run.b_step;
  // The first of the last depths fetches the first row of the next tile.
  run.last_ahead = (next_rows<T, 2>(t) - static_cast<const T*>(t.b)) * kSize - 4 * fours * run.b_step;
  run.soon = t.soon ? t.soon : t.a;
  run.soon_step = kFetchDepths * t.soon_step;
  hn::Vec<decltype(d)> sums[kTallRows][2];
  add_tall_run(run, order, sums);
  if (before) {
#pragma GCC unroll 28
    for (int i = 0; i < 2 * kTallRows; ++i)
      sums[i / 2][i % 2] = hn::Add(sums[i / 2][i % 2], hn::Load(d, before + i * kLanes));
  }
  if constexpr (sizeof(T) == sizeof(float)) {
    if (t.turned) return store_turned(t, sums);
  }
  store_tile<T, kTallRows, 2, false>(t, sums);
}

// A long sum is made of shorter ones, so that its error is smaller.
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
  part.turned = false;
  int64_t left = t.k;
  for (; left > kSumDepth; left -= kSumDepth) {
    const T* b = static_cast<const T*>(part.b) + kSumDepth * t.b_k_stride;
    part.next_b = b;
    tall_tile<T>(part, part.b == t.b ? nullptr : sums);
    part.a = static_cast<const T*>(part.a) + kSumDepth * t.a_k_stride;
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
