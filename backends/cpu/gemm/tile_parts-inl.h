// What tiles have in common whatever makes their sums: their shape, what they fetch, how sums reach C.

#if defined(MICA_CPU_GEMM_TILE_PARTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_GEMM_TILE_PARTS_INL_H_
#undef MICA_CPU_GEMM_TILE_PARTS_INL_H_
#else
#define MICA_CPU_GEMM_TILE_PARTS_INL_H_
#endif

#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/simd/register_tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::gemm_impl {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using cpu::HWY_NAMESPACE::kTileRows;
using cpu::HWY_NAMESPACE::kTileVectors;

constexpr int64_t kSumDepth = 256;      // the products that are summed one after the other
constexpr int64_t kPrefetchAhead = 32;  // how many depths ahead of its use B is fetched
constexpr int64_t kFetchDepths = 4;     // after so many depths two lines for later tiles are fetched
constexpr int64_t kSpreadRows = 1024;   // rows of B that are more bytes apart fall into few sets of the cache
constexpr int64_t kPrefetchDepth = 32;  // in a tile of so many depths the sums hide the time to fetch C

template <class D, class V>
HWY_INLINE V multiply_add(D, V a, V b, V sum) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    return hn::MulAdd(a, b, sum);
  } else {
    return hn::Add(hn::Mul(a, b), sum);
  }
}

// Brings the sums of a tile to C.
template <class T, int M, int V, bool kEdge, class Vec>
HWY_INLINE void store_tile(const MicroTile& t, Vec (&sums)[M][V]) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), c_stride = t.c_row_stride;
  const auto mask = hn::FirstN(d, kEdge ? static_cast<size_t>(t.cols) : hn::Lanes(d));
  T* const c = static_cast<T*>(t.c);
  // All of C is read before any of it is written: where its row stride is a power
  // of two, a load would otherwise wait for the store before it.
  const auto load = [&](const T* from) HWY_ATTR { return kEdge ? hn::MaskedLoad(mask, d, from) : hn::LoadU(d, from); };
  const auto update = [&](const auto& change) HWY_ATTR {
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[i][v] = change(sums[i][v], c + i * c_stride + v * lanes, v * lanes);
    }
  };
  if (t.store == Store::Accumulate) {
    update([&](Vec sum, const T* at, int64_t) HWY_ATTR { return hn::Add(sum, load(at)); });
  } else if (t.store == Store::General) {
    const Epilogue& e = *t.epilogue;
    const Vec alpha = hn::Set(d, *reinterpret_cast<const T*>(e.alpha)),
              beta = hn::Set(d, *reinterpret_cast<const T*>(e.beta));
    update([&](Vec sum, const T*, int64_t) HWY_ATTR { return hn::Mul(sum, alpha); });
    if (e.reads_c) {
      update([&](Vec sum, const T* at, int64_t) HWY_ATTR { return multiply_add(d, load(at), beta, sum); });
    }
    if (e.bias) {
      const T* bias = static_cast<const T*>(e.bias);
      update([&](Vec sum, const T*, int64_t column) HWY_ATTR { return hn::Add(sum, load(bias + column)); });
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      if constexpr (kEdge) {
        hn::BlendedStore(sums[i][v], mask, d, c + i * c_stride);
      } else {
        hn::StoreU(sums[i][v], d, c + i * c_stride + v * lanes);
      }
    }
  }
}

// Fetches C while its sums are made, where they take long enough.
template <class T, int M, int V>
HWY_INLINE void fetch_c(const MicroTile& t) {
  if (t.k < kPrefetchDepth || t.c_near) return;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) __builtin_prefetch(static_cast<T*>(t.c) + i * t.c_row_stride + v * lanes, 1);
  }
}

// Rows of B are fetched this many depths ahead. Behind the last row come those that the next tile begins with, never
// what lies beyond B in memory: a fetch from a page that nothing has touched takes as long as a miss, every time.
template <class T>
HWY_INLINE int64_t depths_ahead(const MicroTile& t) {
  const bool spread = t.b_k_stride * static_cast<int64_t>(sizeof(T)) > kSpreadRows;
  return HWY_MIN(spread ? kPrefetchAhead / 2 : kPrefetchAhead, t.k);
}
template <class T, int V>
HWY_INLINE const T* next_rows(const MicroTile& t) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const T* b = static_cast<const T*>(t.b);
  if (t.next_b) return static_cast<const T*>(t.next_b);
  return t.b_k_stride <= 2 * V * lanes ? b + t.k * t.b_k_stride : b;  // panels follow each other
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::gemm_impl
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_GEMM_TILE_PARTS_INL_H_
