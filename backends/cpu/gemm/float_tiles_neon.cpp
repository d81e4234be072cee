// Register tiles of float32 and float64 for aarch64: 8 rows by 3 vectors. On these processors a multiply-add can take
// its factor from a lane of a register, while a broadcasting load takes a vector slot beside its load slot. So A is
// read by whole vectors. Such a vector holds a column of the tile where rows of A are adjacent, as in packed panels,
// else adjacent depths of a row. The sums are variables with names, because g++ 12 spills sums that are kept in arrays.
#if defined(__aarch64__)
#include <arm_neon.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "backends/cpu/gemm/across.h"
#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/gemm/tiles_across_neon.h"

namespace mica::cpu::gemm_impl {
namespace {

constexpr int kRows = 8, kVectors = 3;
constexpr int kRowsByDepth = 7;           // the most rows with which registers are left for each row's depths and for B
constexpr int kInPlaceRows = 6;           // the fastest number of such rows
constexpr int64_t kSumDepth = 256;        // the products that are summed one after the other
constexpr int64_t kPrefetchBytes = 1024;  // how far ahead of its use B is fetched
constexpr int64_t kPanelDepthBytes = 2048, kBlockBytes = 1 << 19, kNearRowBytes = 512;
// A panel of B is whole lines, one after the other. The copy is worth its time where B is larger than the first cache
// or A has many rows.
constexpr int64_t kNearRows = 255, kNearBytes = 1 << 17;

template <class T>
struct Lanes;

template <>
struct Lanes<float> {
  using Vec = float32x4_t;
  static constexpr int kCount = 4;
  static Vec load(const float* from) { return vld1q_f32(from); }
  static void store(float* to, Vec v) { vst1q_f32(to, v); }
  static Vec set(float value) { return vdupq_n_f32(value); }
  static Vec set_from(const float* from) { return vld1q_dup_f32(from); }
  static Vec add(Vec a, Vec b) { return vaddq_f32(a, b); }
  static Vec mul(Vec a, Vec b) { return vmulq_f32(a, b); }
  static Vec multiply_add(Vec sum, Vec a, Vec b) { return vfmaq_f32(sum, a, b); }
  template <int kLane>
  static Vec multiply_add_lane(Vec sum, Vec b, Vec a) {
    return vfmaq_laneq_f32(sum, b, a, kLane);
  }
};

template <>
struct Lanes<double> {
  using Vec = float64x2_t;
  static constexpr int kCount = 2;
  static Vec load(const double* from) { return vld1q_f64(from); }
  static void store(double* to, Vec v) { vst1q_f64(to, v); }
  static Vec set(double value) { return vdupq_n_f64(value); }
  static Vec set_from(const double* from) { return vld1q_dup_f64(from); }
  static Vec add(Vec a, Vec b) { return vaddq_f64(a, b); }
  static Vec mul(Vec a, Vec b) { return vmulq_f64(a, b); }
  static Vec multiply_add(Vec sum, Vec a, Vec b) { return vfmaq_f64(sum, a, b); }
  template <int kLane>
  static Vec multiply_add_lane(Vec sum, Vec b, Vec a) {
    return vfmaq_laneq_f64(sum, b, a, kLane);
  }
};

// How the factors of A lie in memory.
enum class FactorOrder : uint8_t { Rows, Depths, Apart };

template <int kIndex, class V>
V pick(V v0, V v1, V v2, V v3) {
  return kIndex == 0 ? v0 : kIndex == 1 ? v1 : kIndex == 2 ? v2 : v3;
}

// M rows by V whole vectors of the tile. With FactorOrder::Rows it reads whole vectors of rows.
template <class T, int M, int V, FactorOrder kOrder>
void tile(const MicroTile& t) {
  using L = Lanes<T>;
  using Vec = typename L::Vec;
  constexpr int kCount = L::kCount;
  const int64_t a_row = t.a_row_stride, a_step = t.a_k_stride, b_step = t.b_k_stride;
  const T* a = static_cast<const T*>(t.a);
  const T* b = static_cast<const T*>(t.b);
  T* c = static_cast<T*>(t.c);
  const int64_t c_row = t.c_row_stride;
  const char* soon = t.soon ? t.soon : static_cast<const char*>(t.a);
  const int64_t soon_step = t.soon_step;

#define MICA_EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define MICA_ZERO(i) Vec s##i##0 = L::set(0), s##i##1 = L::set(0), s##i##2 = L::set(0);
#define MICA_ADD_PRODUCTS(i, kLane, factor)                                                   \
  if constexpr (M > i) {                                                                      \
    s##i##0 = L::template multiply_add_lane<kLane>(s##i##0, b0, factor);                      \
    if constexpr (V > 1) s##i##1 = L::template multiply_add_lane<kLane>(s##i##1, b1, factor); \
    if constexpr (V > 2) s##i##2 = L::template multiply_add_lane<kLane>(s##i##2, b2, factor); \
  }
#define MICA_LOAD_B                                            \
  const Vec b0 = L::load(b);                                   \
  const Vec b1 = V > 1 ? L::load(b + kCount) : b0;             \
  const Vec b2 = V > 2 ? L::load(b + 2 * kCount) : b0;         \
  __builtin_prefetch(b + kPrefetchBytes / int64_t{sizeof(T)}); \
  b += b_step;                                                 \
  asm volatile("" : "+r"(b) : : "memory"); /* later rows of B are not loaded yet: no register is free for them */

  MICA_EACH_ROW(MICA_ZERO)
// Fetches C. Operands are packed in large products, whose C is not in a cache: there it fetches both lines that a row
// of the tile may lie in.
#define MICA_FETCH_C(i)                                                                               \
  if constexpr (M > i) {                                                                              \
    __builtin_prefetch(c + i * c_row, 1);                                                             \
    if constexpr (kOrder == FactorOrder::Rows) __builtin_prefetch(c + i * c_row + V * kCount - 1, 1); \
  }
  if (!t.c_near) {
    MICA_EACH_ROW(MICA_FETCH_C)
  }

  // A long sum is made of shorter ones, so that its error is smaller.
  T done[M * V * kCount];
  // The first of them is stored as it is. With FactorOrder::Depths, g++ 12 would move sums between registers for that.
  constexpr bool kStoresFirst = kOrder == FactorOrder::Rows;
  if constexpr (kStoresFirst) {
    asm("" : "=m"(done));  // it is written before it is read, but the compiler does not see that
  } else if (t.k > kSumDepth) {
    std::memset(done, 0, sizeof(done));
  }
  for (int64_t left = t.k; left > 0; left -= kSumDepth) {
    int64_t k = std::min(left, kSumDepth);
    if constexpr (kOrder == FactorOrder::Rows) {
      for (; k > 0; --k) {
        constexpr int kUsed = (M + kCount - 1) / kCount;
        const Vec f0 = L::load(a);
        const Vec f1 = kUsed > 1 ? L::load(a + kCount) : f0;
        const Vec f2 = kUsed > 2 ? L::load(a + 2 * kCount) : f0;
        const Vec f3 = kUsed > 3 ? L::load(a + 3 * kCount) : f0;
        MICA_LOAD_B
#define MICA_BY_ROWS(i) MICA_ADD_PRODUCTS(i, i % kCount, pick<i / kCount>(f0, f1, f2, f3))
        MICA_EACH_ROW(MICA_BY_ROWS)
        a += a_step;
        __builtin_prefetch(soon, 0, 2);  // into the second cache
        soon += soon_step;
      }
    } else {
      if constexpr (kOrder == FactorOrder::Depths) {
        for (; k >= kCount; k -= kCount) {
#define MICA_LOAD_DEPTHS(i) const Vec f##i = L::load(M > i ? a + i * a_row : a);
          MICA_EACH_ROW(MICA_LOAD_DEPTHS)
          a += kCount;
          {MICA_LOAD_B
#define MICA_BY_DEPTH_0(i) MICA_ADD_PRODUCTS(i, 0, f##i)
               MICA_EACH_ROW(MICA_BY_DEPTH_0)} {
            MICA_LOAD_B
#define MICA_BY_DEPTH_1(i) MICA_ADD_PRODUCTS(i, 1, f##i)
            MICA_EACH_ROW(MICA_BY_DEPTH_1)
          }
          if constexpr (kCount > 2) {
            {MICA_LOAD_B
#define MICA_BY_DEPTH_2(i) MICA_ADD_PRODUCTS(i, 2 % kCount, f##i)
                 MICA_EACH_ROW(MICA_BY_DEPTH_2)} {
              MICA_LOAD_B
#define MICA_BY_DEPTH_3(i) MICA_ADD_PRODUCTS(i, 3 % kCount, f##i)
              MICA_EACH_ROW(MICA_BY_DEPTH_3)
            }
          }
        }
      }
      for (; k > 0; --k) {
        MICA_LOAD_B
#define MICA_BY_ELEMENT(i)                                               \
  if constexpr (M > i) {                                                 \
    const Vec factor = L::set_from(a + i * a_row);                       \
    s##i##0 = L::multiply_add(s##i##0, b0, factor);                      \
    if constexpr (V > 1) s##i##1 = L::multiply_add(s##i##1, b1, factor); \
    if constexpr (V > 2) s##i##2 = L::multiply_add(s##i##2, b2, factor); \
  }
        MICA_EACH_ROW(MICA_BY_ELEMENT)
        a += a_step;
      }
    }
    if (t.k <= kSumDepth) break;
    const bool adds = !kStoresFirst || left < t.k, closes = left <= kSumDepth;
#define MICA_SET_ASIDE(i, v)                                 \
  if constexpr (M > i && V > v) {                            \
    T* at = done + (i * V + v) * kCount;                     \
    if (adds) s##i##v = L::add(s##i##v, L::load(at));        \
    if (!closes) L::store(at, s##i##v), s##i##v = L::set(0); \
  }
#define MICA_SET_ROW_ASIDE(i) MICA_SET_ASIDE(i, 0) MICA_SET_ASIDE(i, 1) MICA_SET_ASIDE(i, 2)
    MICA_EACH_ROW(MICA_SET_ROW_ASIDE)
  }

#define MICA_STORE(i, v, value) \
  if constexpr (M > i && V > v) L::store(c + i * c_row + v * kCount, value);
  if (t.store == Store::Overwrite) {
#define MICA_OVERWRITE(i) MICA_STORE(i, 0, s##i##0) MICA_STORE(i, 1, s##i##1) MICA_STORE(i, 2, s##i##2)
    MICA_EACH_ROW(MICA_OVERWRITE)
  } else if (t.store == Store::Accumulate) {
#define MICA_SUM(i, v) MICA_STORE(i, v, L::add(s##i##v, L::load(c + i * c_row + v * kCount)))
#define MICA_ACCUMULATE(i) MICA_SUM(i, 0) MICA_SUM(i, 1) MICA_SUM(i, 2)
    MICA_EACH_ROW(MICA_ACCUMULATE)
  } else {
    const Epilogue& e = *t.epilogue;
    const Vec alpha = L::set_from(reinterpret_cast<const T*>(e.alpha)),
              beta = L::set_from(reinterpret_cast<const T*>(e.beta));
    const T* bias = static_cast<const T*>(e.bias);
    const Vec bias0 = bias ? L::load(bias) : L::set(0), bias1 = bias && V > 1 ? L::load(bias + kCount) : L::set(0),
              bias2 = bias && V > 2 ? L::load(bias + 2 * kCount) : L::set(0);
    const bool reads_c = e.reads_c;
    const auto finish = [&](Vec sum, const T* at, Vec column) {
      sum = L::mul(sum, alpha);
      if (reads_c) sum = L::multiply_add(sum, L::load(at), beta);
      return bias ? L::add(sum, column) : sum;
    };
#define MICA_FINISH(i, v) MICA_STORE(i, v, finish(s##i##v, c + i * c_row + v * kCount, bias##v))
#define MICA_FINISH_ROW(i) MICA_FINISH(i, 0) MICA_FINISH(i, 1) MICA_FINISH(i, 2)
    MICA_EACH_ROW(MICA_FINISH_ROW)
  }
}

using TileFn = void (*)(const MicroTile&);

// The rows that one tile takes out of those that are left.
constexpr int tile_rows(FactorOrder order, int rows) {
  if (order == FactorOrder::Rows) return rows;
  if (order == FactorOrder::Depths) return rows > kRowsByDepth ? kRows / 2 : rows;
  return rows >= 4 ? 4 : 1;  // these are rare, so that there is code for few sizes
}

template <class T, int V, FactorOrder kOrder, int... kIndex>
constexpr std::array<TileFn, kRows> tiles_of(std::integer_sequence<int, kIndex...>) {
  return {tile<T, tile_rows(kOrder, kIndex + 1), V, kOrder>...};
}

template <class T, FactorOrder kOrder>
constexpr std::array<TileFn, kRows> kTiles[kVectors] = {
    tiles_of<T, 1, kOrder>(std::make_integer_sequence<int, kRows>{}),
    tiles_of<T, 2, kOrder>(std::make_integer_sequence<int, kRows>{}),
    tiles_of<T, 3, kOrder>(std::make_integer_sequence<int, kRows>{})};

// The columns of a tile that make whole vectors.
template <class T>
void run_vectors(const MicroTile& t) {
  const int lanes = Lanes<T>::kCount, vectors = t.cols / lanes;
  if (t.a_row_stride == 1 && (t.a_padded || t.rows % lanes == 0)) {
    return kTiles<T, FactorOrder::Rows>[vectors - 1][static_cast<size_t>(t.rows - 1)](t);
  }
  const FactorOrder order = t.a_k_stride == 1 ? FactorOrder::Depths : FactorOrder::Apart;
  const auto& tiles =
      (order == FactorOrder::Depths ? kTiles<T, FactorOrder::Depths> : kTiles<T, FactorOrder::Apart>)[vectors - 1];
  if (tile_rows(order, t.rows) == t.rows) return tiles[static_cast<size_t>(t.rows - 1)](t);
  MicroTile part = t;
  for (int row = 0; row < t.rows;) {
    part.rows = tile_rows(order, t.rows - row);
    part.a = static_cast<const T*>(t.a) + row * t.a_row_stride;
    part.c = static_cast<T*>(t.c) + row * t.c_row_stride;
    tiles[static_cast<size_t>(part.rows - 1)](part);
    row += part.rows;
  }
}

// Brings the columns from `first` on of a block of plain sums into C.
template <class T>
void finish_columns(const MicroTile& t, const T* block, int64_t block_row, int first) {
  T alpha = 1, beta = t.store == Store::Accumulate ? 1 : 0;
  const T* bias = nullptr;
  bool reads_c = t.store == Store::Accumulate;
  if (t.store == Store::General) {
    std::memcpy(&alpha, t.epilogue->alpha, sizeof(T));
    std::memcpy(&beta, t.epilogue->beta, sizeof(T));
    reads_c = t.epilogue->reads_c;
    bias = static_cast<const T*>(t.epilogue->bias);
  }
  for (int i = 0; i < t.rows; ++i) {
    T* c = static_cast<T*>(t.c) + i * t.c_row_stride;
    for (int j = first; j < t.cols; ++j) {
      T sum = alpha * block[i * block_row + j];
      if (reads_c) sum += beta * c[j];
      c[j] = bias ? sum + bias[j] : sum;
    }
  }
}

// Computes the last columns of C, which are fewer than a vector, through a block of sums. Whole vectors of B are read:
// behind its columns where it is padded, otherwise from before them, or else from a copy.
template <class T>
void run_last_columns(const MicroTile& t) {
  constexpr int kCount = Lanes<T>::kCount;
  constexpr int64_t kDepth = 128;
  const int first = t.cols / kCount * kCount;
  T block[kRows * kVectors * kCount];
  MicroTile part = t;
  part.c = block;
  part.c_row_stride = kVectors * kCount;
  part.store = Store::Overwrite;
  part.cols = kCount;
  part.soon = nullptr;
  part.soon_step = 0;
  const T* b = static_cast<const T*>(t.b);
  if (t.b_padded) {
    part.cols = first + kCount;
    run_vectors<T>(part);
    return finish_columns(t, block, part.c_row_stride, 0);
  }
  if (first > 0) {
    MicroTile whole = t;
    whole.cols = first;
    run_vectors<T>(whole);
    part.b = b + t.cols - kCount;
    part.c = block + t.cols - kCount;
    run_vectors<T>(part);
    return finish_columns(t, block, part.c_row_stride, first);
  }
  T columns[kDepth * kCount] = {};
  part.b = columns;
  part.b_k_stride = kCount;
  for (int64_t k = 0; k < t.k; k += kDepth) {
    part.k = std::min(kDepth, t.k - k);
    for (int64_t p = 0; p < part.k; ++p) {
      for (int j = 0; j < t.cols; ++j) columns[p * kCount + j] = b[(k + p) * t.b_k_stride + j];
    }
    part.a = static_cast<const T*>(t.a) + k * t.a_k_stride;
    run_vectors<T>(part);
    part.store = Store::Accumulate;
  }
  finish_columns(t, block, part.c_row_stride, 0);
}

template <class T>
void run(const MicroTile& t) {
  // Nearly all tiles of a product take this way.
  if (t.rows == kRows && t.cols == kVectors * Lanes<T>::kCount && t.a_row_stride == 1)
    return tile<T, kRows, kVectors, FactorOrder::Rows>(t);
  t.cols % Lanes<T>::kCount == 0 ? run_vectors<T>(t) : run_last_columns<T>(t);
}

void run_across(const MicroTile& t, int64_t tiles) {
  constexpr int kCols = kVectors * Lanes<float>::kCount;
  const auto* b = static_cast<const float*>(t.b);
  auto* c = static_cast<float*>(t.c);
  if (t.k > 1 && t.k <= kSumDepth) {
    return float_tiles_across(static_cast<const float*>(t.a), b, t.k, tiles, c,
                              t.c_row_stride * int64_t{sizeof(float)});
  }
  MicroTile one = t;
  one.cols = kCols;
  for (int64_t i = 0; i < tiles; ++i) {
    one.b = b + i * t.k * kCols;
    one.c = c + i * kCols;
    tile<float, kRows, kVectors, FactorOrder::Rows>(one);
  }
}

template <class T>
constexpr MicroKernel kKernel = {.rows = kRows,
                                 .cols = kVectors* Lanes<T>::kCount,
                                 .run = run<T>,
                                 .in_place_rows = kInPlaceRows,
                                 .packs_rows_adjacent = true,
                                 .panel_depth_bytes = kPanelDepthBytes,
                                 .block_bytes = kBlockBytes,
                                 .near_row_bytes = kNearRowBytes,
                                 .near_rows = kNearRows,
                                 .near_bytes = kNearBytes,
                                 .packs_blocks = true};

}  // namespace

const MicroKernel& micro_kernel_f32() { return kKernel<float>; }
const MicroKernel& micro_kernel_f64() { return kKernel<double>; }
AcrossFn float_across() { return run_across; }

}  // namespace mica::cpu::gemm_impl
#endif
