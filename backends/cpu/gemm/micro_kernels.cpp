// Register tiles for float32, float64, int32 and int64. A is broadcast element by
// element through two strides, so that packed and unpacked operands run through the
// same code. B is read by whole vectors. On aarch64 float_tiles_neon.cpp has the
// tiles of float32 and float64.
#include "backends/cpu/gemm/across.h"
#include "backends/cpu/gemm/kernels.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/micro_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/gemm/tall_tile_avx512-inl.h"
#include "backends/cpu/gemm/tile_parts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::gemm_impl {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kPanelDepthBytes = 4096;
constexpr int64_t kLine = 64;
constexpr int kIntegerRows = 4;  // more rows gain nothing: the multiplier is the bound, not loads

// Computes M rows by V whole vectors. With kEdge (and V == 1) only the first t.cols
// columns exist in memory.
template <class T, int M, int V, bool kEdge>
void tile(const MicroTile& t) {
  const hn::ScalableTag<T> d;
  using Vec = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto mask = hn::FirstN(d, kEdge ? static_cast<size_t>(t.cols) : hn::Lanes(d));

  Vec sums[M][V];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[i][v] = hn::Zero(d);
  }

  // Four rows share a base pointer, so that fourteen rows need four pointers
  // and two indices.
  int64_t stride3 = 3 * t.a_row_stride;
  const int64_t stride = t.a_row_stride, a_step = t.a_k_stride, b_step = t.b_k_stride;
  const T* a0 = static_cast<const T*>(t.a);
  const T* a4 = M > 4 ? a0 + 4 * stride : a0;
  const T* a8 = M > 8 ? a0 + 8 * stride : a0;
  const T* a12 = M > 12 ? a0 + 12 * stride : a0;
  const T* b = static_cast<const T*>(t.b);
  fetch_c<T, M, V>(t);
  const int64_t depths = depths_ahead<T>(t);
  const T* next = next_rows<T, V>(t);
  const char* soon = t.soon ? t.soon : static_cast<const char*>(t.a);
  const int64_t soon_step = t.soon_step;
  asm("" : "+r"(stride3));  // keeps it in a register of its own, instead of computing it anew
  // A long sum is made of shorter ones, so that its error is smaller.
  HWY_ALIGN T parts[M * V * hn::MaxLanes(d)];
  T* done = parts;
  asm("" : "+r"(done));  // without this, the compiler copies sums between registers where they are short
  if (t.k > kSumDepth) std::memset(done, 0, sizeof(parts));
  int64_t left = t.k, sum_left = kSumDepth;
  while (left > 0) {
    const bool ends = left <= depths;  // then what is fetched belongs to the next tile
    const int64_t run = HWY_MIN(ends ? left : left - depths, sum_left);
    const int64_t ahead = ends ? next + (depths - left) * b_step - b : depths * b_step;
    left -= run;
    sum_left -= run;
    for (int64_t k = run; k > 0; --k) {
      Vec row[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        row[v] = kEdge ? hn::MaskedLoad(mask, d, b) : hn::LoadU(d, b + v * lanes);
        __builtin_prefetch(b + ahead + v * lanes);
      }
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
        const T* base = i < 4 ? a0 : i < 8 ? a4 : i < 12 ? a8 : a12;
        const Vec a = hn::Set(d, i % 4 == 0   ? base[0]
                                 : i % 4 == 1 ? base[stride]
                                 : i % 4 == 2 ? base[2 * stride]
                                              : base[stride3]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sums[i][v] = multiply_add(d, a, row[v], sums[i][v]);
      }
      if ((!kEdge || t.soon) && k % kFetchDepths == 0) {  // into the second cache
        __builtin_prefetch(soon, 0, 2);
        __builtin_prefetch(soon + kLine, 0, 2);
        soon += kFetchDepths * soon_step;
      }
      a0 += a_step;
      b += b_step;
      if (M > 4) a4 += a_step;
      if (M > 8) a8 += a_step;
      if (M > 12) a12 += a_step;
      asm("" : "+r"(a0), "+r"(a4), "+r"(a8), "+r"(a12),
               "+r"(b));  // keeps one pointer per four rows
    }
    if (t.k <= kSumDepth || (sum_left > 0 && left > 0)) continue;
    sum_left = kSumDepth;
    const bool closes = left == 0;
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        T* at = done + (i * V + v) * lanes;
        sums[i][v] = hn::Add(sums[i][v], hn::Load(d, at));
        if (closes) continue;
        hn::Store(sums[i][v], d, at);
        sums[i][v] = hn::Zero(d);
      }
    }
  }

  store_tile<T, M, V, kEdge>(t, sums);
}

template <class T>
struct Tiles {
  static constexpr int kRows = hwy::IsFloat<T>() ? kTileRows : kIntegerRows;
  using Fn = void (*)(const MicroTile&);
  Fn whole[kRows];
  Fn edge[kRows];

  template <int... I>
  constexpr explicit Tiles(std::integer_sequence<int, I...>)
      : whole{tile<T, I + 1, kTileVectors, false>...}, edge{tile<T, I + 1, 1, true>...} {}
};

template <class T>
constexpr Tiles<T> kTiles{std::make_integer_sequence<int, Tiles<T>::kRows>{}};

#if HWY_MEM_OPS_MIGHT_FAULT
// On processors whose masked accesses touch the whole vector, an edge runs on copies
// of its columns.
template <class T>
void run_edge(const MicroTile& t) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kDepth = 128;
  T columns[kDepth * hn::MaxLanes(d)] = {};
  T block[Tiles<T>::kRows * hn::MaxLanes(d)];
  T bias[hn::MaxLanes(d)] = {};
  T* c = static_cast<T*>(t.c);
  Epilogue epilogue;
  MicroTile part = t;
  part.b = columns;
  part.b_k_stride = lanes;
  part.c = block;
  part.c_row_stride = lanes;
  part.cols = static_cast<int>(lanes);
  const auto exchange = [&](bool to_block) {
    for (int i = 0; i < t.rows; ++i) {
      for (int j = 0; j < t.cols; ++j) {
        T& outside = c[i * t.c_row_stride + j];
        T& inside = block[i * lanes + j];
        to_block ? (inside = outside) : (outside = inside);
      }
    }
  };
  for (T& value : block) value = T{0};
  if (t.store == Store::Accumulate || (t.store == Store::General && t.epilogue->reads_c)) exchange(true);
  if (t.store == Store::General) {
    epilogue = *t.epilogue;
    if (epilogue.bias) {
      for (int j = 0; j < t.cols; ++j) bias[j] = static_cast<const T*>(epilogue.bias)[j];
      epilogue.bias = bias;
    }
    part.epilogue = &epilogue;
  }
  for (int64_t k = 0; k < t.k; k += kDepth) {
    part.k = HWY_MIN(kDepth, t.k - k);
    for (int64_t p = 0; p < part.k; ++p) {
      for (int j = 0; j < t.cols; ++j) columns[p * lanes + j] = static_cast<const T*>(t.b)[(k + p) * t.b_k_stride + j];
    }
    part.a = static_cast<const T*>(t.a) + k * t.a_k_stride;
    kTiles<T>.edge[t.rows - 1](part);
    if (t.store == Store::General) {  // beta and bias are applied once
      const T one = 1;
      __builtin_memcpy(epilogue.beta, &one, sizeof(T));
      epilogue.reads_c = true;
      epilogue.bias = nullptr;
    } else {
      part.store = Store::Accumulate;
    }
  }
  exchange(false);
}
#else
constexpr int64_t kLeastColumnDepth = 64;
constexpr int64_t kColumnPart = 512;  // the depths of a column that are brought together at a time
// How many sums are made side by side: enough that none waits for another, if tiles have as many rows.
template <class T>
constexpr int kColumnRows = HWY_MIN(7, Tiles<T>::kRows);

// The sum of a vector's lanes: the halves are added until one lane is left.
template <class D, class V>
HWY_INLINE hn::TFromD<D> sum_by_halves(D d, V v) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return sum_by_halves(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// A single column fills no vector. Where the depths of A are adjacent, vectors run along them instead. Adds to sums[i]
// the product of row i of A, of M rows, with the column.
template <class T, int M>
HWY_INLINE void add_column(const T* a, int64_t stride, const T* column, int64_t depth, T* sums) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> parts[M];
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) parts[i] = hn::Zero(d);
  int64_t k = 0;
  for (; k + lanes <= depth; k += lanes) {
    const auto b = hn::Load(d, column + k);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) parts[i] = hn::MulAdd(hn::LoadU(d, a + i * stride + k), b, parts[i]);
  }
  if (k < depth) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(depth - k));
    const auto b = hn::MaskedLoad(mask, d, column + k);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) parts[i] = hn::MulAdd(hn::MaskedLoad(mask, d, a + i * stride + k), b, parts[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) sums[i] += sum_by_halves(d, parts[i]);
}

template <class T>
HWY_NOINLINE void run_column(const MicroTile& t) {
  HWY_ALIGN T column[kColumnPart];
  T sums[Tiles<T>::kRows] = {};
  for (int64_t first = 0; first < t.k; first += kColumnPart) {
    const int64_t depth = HWY_MIN(kColumnPart, t.k - first);
    const T* b = static_cast<const T*>(t.b) + first * t.b_k_stride;
    for (int64_t k = 0; k < depth; ++k) column[k] = b[k * t.b_k_stride];
    const T* a = static_cast<const T*>(t.a) + first;
    int i = 0;
    for (; i + kColumnRows<T> <= t.rows; i += kColumnRows<T>)
      add_column<T, kColumnRows<T> >(a + i * t.a_row_stride, t.a_row_stride, column, depth, sums + i);
    for (; i < t.rows; ++i) add_column<T, 1>(a + i * t.a_row_stride, t.a_row_stride, column, depth, sums + i);
  }
  T* c = static_cast<T*>(t.c);
  for (int i = 0; i < t.rows; ++i, c += t.c_row_stride) {
    if (t.store == Store::General) {
      const Epilogue& e = *t.epilogue;
      T value = sums[i] * *reinterpret_cast<const T*>(e.alpha);
      if (e.reads_c) value += *c * *reinterpret_cast<const T*>(e.beta);
      *c = e.bias ? value + *static_cast<const T*>(e.bias) : value;
    } else {
      *c = t.store == Store::Accumulate ? *c + sums[i] : sums[i];
    }
  }
}

// A row by itself of a turned tile, of at most a vector of columns. What is a vector's lane in run_column is a vector
// of columns here, so that each element has the same bits.
template <class T>
HWY_NOINLINE void run_row_as_column(const MicroTile& t) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  const auto mask = hn::FirstN(d, static_cast<size_t>(t.cols));
  auto sum = hn::Zero(d);
  for (int64_t first = 0; first < t.k; first += kColumnPart) {
    const int64_t depth = HWY_MIN(kColumnPart, t.k - first);
    const T* a = static_cast<const T*>(t.a) + first * t.a_k_stride;
    const T* b = static_cast<const T*>(t.b) + first * t.b_k_stride;
    hn::Vec<decltype(d)> parts[kLanes];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) parts[i] = hn::Zero(d);
    const auto add = [&](int64_t i) HWY_ATTR {
      parts[i] = hn::MulAdd(hn::Set(d, a[i * t.a_k_stride]), hn::MaskedLoad(mask, d, b + i * t.b_k_stride), parts[i]);
    };
    int64_t k = 0;
    for (; k + kLanes <= depth; k += kLanes, a += kLanes * t.a_k_stride, b += kLanes * t.b_k_stride) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) add(i);
    }
    for (int64_t i = 0; i < depth - k; ++i) add(i);
#pragma GCC unroll 4
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
      for (int64_t i = 0; i < half; ++i) parts[i] = hn::Add(parts[i], parts[i + half]);
    }
    sum = hn::Add(sum, parts[0]);
  }
  HWY_ALIGN T sums[kLanes];
  hn::Store(sum, d, sums);
  for (int j = 0; j < t.cols; ++j) static_cast<T*>(t.c)[j * t.c_row_stride] = sums[j];
}

template <class T>
void run_edge(const MicroTile& t) {
  if constexpr (hwy::IsFloat<T>()) {
    if (t.cols == 1 && t.a_k_stride == 1 && t.k >= kLeastColumnDepth) return run_column<T>(t);
  }
  kTiles<T>.edge[t.rows - 1](t);
}
#endif

template <class T>
void run(const MicroTile& t);

// A tile whose rows are adjacent in C, by way of a block.
template <class T>
HWY_NOINLINE void run_turned(const MicroTile& t) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>())), kCols = kTileVectors * kLanes;
  MicroTile part = t;
#if !HWY_MEM_OPS_MIGHT_FAULT
  if constexpr (hwy::IsFloat<T>()) {
    if (t.as_column && t.rows == 1 && t.k >= kLeastColumnDepth) {
      for (int column = 0; column < t.cols; column += kLanes) {
        part.b = static_cast<const T*>(t.b) + column;
        part.c = static_cast<T*>(t.c) + column * t.c_row_stride;
        part.cols = HWY_MIN(kLanes, t.cols - column);
        run_row_as_column<T>(part);
      }
      return;
    }
  }
#endif
  HWY_ALIGN T block[Tiles<T>::kRows * kCols];
  part.c = block;
  part.c_row_stride = kCols;
  part.c_near = true;
  part.turned = false;
  run<T>(part);
#if MICA_GEMM_TALL_TILE
  if constexpr (hwy::IsFloat<T>() && sizeof(T) == sizeof(float)) return turn_block(t, block);
#endif
  T* c = static_cast<T*>(t.c);
  for (int j = 0; j < t.cols; ++j) {
    for (int i = 0; i < t.rows; ++i) c[j * t.c_row_stride + i] = block[i * kCols + j];
  }
}

template <class T>
void run(const MicroTile& t) {
  const hn::ScalableTag<T> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
#if MICA_GEMM_TALL_TILE
  if constexpr (hwy::IsFloat<T>()) {
    if (is_tall<T>(t)) return t.k > kSumDepth ? deep_tall_tile<T>(t) : tall_tile<T>(t, nullptr);
  }
#endif
  if (t.turned) return run_turned<T>(t);
  if (t.cols == kTileVectors * lanes) return kTiles<T>.whole[t.rows - 1](t);
  if (t.cols <= lanes) return run_edge<T>(t);
  MicroTile part = t;
  Epilogue epilogue;
  if (t.store == Store::General) {
    epilogue = *t.epilogue;
    part.epilogue = &epilogue;
  }
  for (int column = 0; column < t.cols; column += lanes) {
    part.cols = HWY_MIN(lanes, t.cols - column);
    part.b = static_cast<const T*>(t.b) + column;
    part.c = static_cast<T*>(t.c) + column;
    if (t.store == Store::General && epilogue.bias) epilogue.bias = static_cast<const T*>(t.epilogue->bias) + column;
    run_edge<T>(part);
  }
}

// What the system says about a cache, or `otherwise` where it says nothing.
int64_t cache_fact(int name, int64_t otherwise) {
  const long value = sysconf(name);
  return value > 0 ? value : otherwise;
}

// Half of the second cache: the other half is for A, C and a thread on the same core.
int64_t block_bytes() { return std::clamp<int64_t>(cache_fact(_SC_LEVEL2_CACHE_SIZE, 1 << 20) / 2, 1 << 18, 1 << 20); }

// Rows of B that are half a page apart share four sets of the first cache. With eight ways these sets hold the rows
// that are fetched ahead and nothing else. With twelve ways there is room for A.
int64_t near_row_bytes() { return cache_fact(_SC_LEVEL1_DCACHE_ASSOC, 8) >= 12 ? 2048 : 1024; }

template <class T>
MicroKernel describe() {
  return {.rows = Tiles<T>::kRows,
          .cols = kTileVectors * static_cast<int>(hn::Lanes(hn::ScalableTag<T>())),
          .run = run<T>,
          .in_place_rows = Tiles<T>::kRows,
          .packs_rows_adjacent = false,
          .panel_depth_bytes = kPanelDepthBytes,
          .block_bytes = block_bytes(),
          .near_row_bytes = near_row_bytes(),
          .fetch_depths = kFetchDepths,
          .packs_blocks = HWY_ARCH_X86 != 0,
          .turns = MICA_GEMM_TALL_TILE && sizeof(T) == sizeof(float) && hwy::IsFloat<T>()};
}

#if !HWY_ARCH_ARM_A64
MicroKernel describe_f32() { return describe<float>(); }
MicroKernel describe_f64() { return describe<double>(); }
#endif
// Sums of integers wrap around, which the language allows for unsigned types only. The bits are the same.
MicroKernel describe_i32() { return describe<uint32_t>(); }
MicroKernel describe_i64() { return describe<uint64_t>(); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::gemm_impl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu::gemm_impl {

HWY_EXPORT(describe_i32);
HWY_EXPORT(describe_i64);

#define MICA_MICRO_KERNEL(type)                                                \
  const MicroKernel& micro_kernel_##type() {                                   \
    static const MicroKernel kernel = HWY_DYNAMIC_DISPATCH(describe_##type)(); \
    return kernel;                                                             \
  }
MICA_MICRO_KERNEL(i32)
MICA_MICRO_KERNEL(i64)
#if !HWY_ARCH_ARM_A64
HWY_EXPORT(describe_f32);
HWY_EXPORT(describe_f64);
MICA_MICRO_KERNEL(f32)
MICA_MICRO_KERNEL(f64)
AcrossFn float_across() { return nullptr; }
#endif

}  // namespace mica::cpu::gemm_impl
#endif
