#include "backends/cpu/convolution/direct_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/convolution/direct_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <utility>

#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::convolution {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using cpu::HWY_NAMESPACE::kTileRows;
using cpu::HWY_NAMESPACE::kTileVectors;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Computes M positions by N vectors of filters. The last vector may be partial in memory, but not in the panel.
template <int M, int N, bool kFetch>
void tile(const DirectTile& t) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[M][N];
#pragma GCC unroll 4
  for (int v = 0; v < N; ++v) {
    const V start = t.bias ? hn::LoadU(d, t.bias + v * lanes) : hn::Zero(d);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) sums[i][v] = start;
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {  // the target is fetched while the sums are made
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) __builtin_prefetch(t.target + i * t.target_stride + v * lanes, 1);
  }
  const int64_t stride = t.position_stride;
  int64_t stride3 = 3 * stride;
  asm("" : "+r"(stride3));  // keeps it in a register of its own, instead of computing it anew
  const float* panel = t.panel;
  [[maybe_unused]] const char* soon = t.soon;
  for (int64_t r = 0; r < t.run_count; ++r) {
    // Four positions share a base pointer, so that fourteen need four pointers and two indices.
    const float* a0 = t.source + t.runs[r];
    const float* a4 = M > 4 ? a0 + 4 * stride : a0;
    const float* a8 = M > 8 ? a0 + 8 * stride : a0;
    const float* a12 = M > 12 ? a0 + 12 * stride : a0;
    for (int64_t k = t.run_length; k > 0; --k) {
      V row[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) row[v] = hn::LoadU(d, panel + v * lanes);
      if constexpr (kFetch) {
        __builtin_prefetch(soon, 0, 2);
        soon += t.soon_step;
      }
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
        const float* base = i < 4 ? a0 : i < 8 ? a4 : i < 12 ? a8 : a12;
        const V a = hn::Set(d, i % 4 == 0   ? base[0]
                               : i % 4 == 1 ? base[stride]
                               : i % 4 == 2 ? base[2 * stride]
                                            : base[stride3]);
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) sums[i][v] = hn::MulAdd(a, row[v], sums[i][v]);
      }
      ++a0;
      panel += kTileVectors * lanes;
      if (M > 4) ++a4;
      if (M > 8) ++a8;
      if (M > 12) ++a12;
      asm("" : "+r"(a0), "+r"(a4), "+r"(a8), "+r"(a12), "+r"(panel));  // keeps one pointer per four positions
    }
  }
  const int64_t last = t.cols - (N - 1) * lanes;
  const auto mask = hn::FirstN(d, static_cast<size_t>(last));
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    float* to = t.target + i * t.target_stride;
#pragma GCC unroll 4
    for (int v = 0; v < N - 1; ++v) hn::StoreU(sums[i][v], d, to + v * lanes);
    if (last == lanes) {
      hn::StoreU(sums[i][N - 1], d, to + (N - 1) * lanes);
    } else {
      hn::BlendedStore(sums[i][N - 1], mask, d, to + (N - 1) * lanes);
    }
  }
}

using Fn = void (*)(const DirectTile&);
template <int N>
struct Tiles {
  Fn fn[kTileRows], fetching[kTileRows];
  template <int... I>
  constexpr explicit Tiles(std::integer_sequence<int, I...>)
      : fn{tile<I + 1, N, false>...}, fetching{tile<I + 1, N, true>...} {}
  void run(const DirectTile& t) const { (t.soon ? fetching : fn)[t.rows - 1](t); }
};
template <int N>
constexpr Tiles<N> kTiles{std::make_integer_sequence<int, kTileRows>{}};

#if HWY_ARCH_ARM_A64
// On these processors a broadcasting load takes a vector slot beside its load slot. The tiles of products take factors
// from lanes instead, and add up one run after the other.
constexpr int kLongRunRows = 7;
void add_up_runs(const DirectTile& t) {
  static const gemm_impl::MicroKernel& kernel = gemm_impl::micro_kernel_f32();
  gemm_impl::Epilogue with_bias{};
  const float one = 1;
  __builtin_memcpy(with_bias.alpha, &one, sizeof one);
  with_bias.bias = t.bias;
  gemm_impl::MicroTile part{};
  part.a_row_stride = t.position_stride;
  part.a_k_stride = 1;
  part.b = t.panel;
  part.b_k_stride = kernel.cols;
  part.b_padded = true;
  part.c = t.target;
  part.c_row_stride = t.target_stride;
  part.c_near = true;
  part.k = t.run_length;
  part.rows = t.rows;
  part.cols = t.cols;
  part.store = t.bias ? gemm_impl::Store::General : gemm_impl::Store::Overwrite;
  part.epilogue = &with_bias;
  for (int64_t r = 0; r < t.run_count; ++r) {
    part.a = t.source + t.runs[r];
    kernel.run(part);
    part.b = static_cast<const float*>(part.b) + t.run_length * kernel.cols;
    part.store = gemm_impl::Store::Accumulate;
  }
}
#else
constexpr int kLongRunRows = kTileRows;
#endif

void run(const DirectTile& t) {
#if HWY_ARCH_ARM_A64
  if (t.run_count > 0 && t.run_length >= DirectKernel::kLongRun) return add_up_runs(t);
#endif
  const int lanes = static_cast<int>(hn::Lanes(D()));
  const int vectors = (t.cols + lanes - 1) / lanes;
#if HWY_MEM_OPS_MIGHT_FAULT
  if (t.cols % lanes != 0) {  // masked stores touch the whole vector, so that the sums go through a block
    float block[kTileRows * kTileVectors * hn::MaxLanes(D())];
    DirectTile whole = t;
    whole.target = block;
    whole.target_stride = kTileVectors * lanes;
    whole.cols = vectors * lanes;
    run(whole);
    for (int i = 0; i < t.rows; ++i)
      for (int j = 0; j < t.cols; ++j) t.target[i * t.target_stride + j] = block[i * kTileVectors * lanes + j];
    return;
  }
#endif
  switch (vectors) {
    case 1:
      return kTiles<1>.run(t);
    case 2:
      return kTiles<2>.run(t);
#if HWY_ARCH_ARM_A64
    default:
      return kTiles<3>.run(t);
#endif
  }
}

DirectKernel describe_tiles() {
  return {kTileRows, kTileVectors * static_cast<int>(hn::Lanes(D())), run, kLongRunRows};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::convolution
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu::convolution {
HWY_EXPORT(describe_tiles);
const DirectKernel& direct_kernel() {
  static const DirectKernel kernel = HWY_DYNAMIC_DISPATCH(describe_tiles)();
  return kernel;
}
}  // namespace mica::cpu::convolution
#endif
