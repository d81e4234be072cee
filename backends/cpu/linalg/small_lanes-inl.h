// A matrix per lane: element (i, j) of all of them is one vector.
#if defined(MICA_SMALL_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_SMALL_LANES_INL_H_
#undef MICA_SMALL_LANES_INL_H_
#else
#define MICA_SMALL_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "backends/cpu/scratch.h"
#include "backends/cpu/transpose_tile-inl.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// kSize is the number of rows and columns where the compiler is to know it, or 0.
template <class T, int kSize = 0>
class LaneMatrices {
 public:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  explicit LaneMatrices(int64_t n)
      : given_(n), lanes_(static_cast<int64_t>(hn::Lanes(D()))), data_((n + 1) * n * lanes_) {}

  int64_t n() const { return kSize ? kSize : given_; }
  int64_t lanes() const { return lanes_; }
  HWY_INLINE V get(int64_t i, int64_t j) const { return hn::Load(D(), data_.data() + (j * n() + i) * lanes_); }
  HWY_INLINE void set(int64_t i, int64_t j, V v) { hn::Store(v, D(), data_.data() + (j * n() + i) * lanes_); }
  T& at(int64_t i, int64_t j, int64_t lane) { return data_[(j * n() + i) * lanes_ + lane]; }
  // One more column, for what an algorithm keeps of each matrix: vectors cannot be elements of an array.
  HWY_INLINE V kept(int64_t i) const { return get(i, n()); }
  HWY_INLINE void keep(int64_t i, V v) { set(i, n(), v); }

  // Lanes without a matrix hold the identity, which every algorithm takes.
  void load(const T* from, int64_t count, bool transposed = false) {
    const int64_t size = n() * n();
    int64_t done = 0;
    if (count >= lanes_) {
      // A matrix per row, as many elements as there are lanes at a time: the transpose has an element of all per row.
      for (; done + kLanes <= size; done += kLanes) {
        V tile[kLanes];
#pragma GCC unroll 16
        for (int64_t lane = 0; lane < kLanes; ++lane) tile[lane] = hn::LoadU(D(), from + lane * size + done);
        transpose_tile(D(), tile);
#pragma GCC unroll 16
        for (int64_t e = 0; e < kLanes; ++e) hn::Store(tile[e], D(), place(done + e, transposed));
      }
    }
    for (int64_t e = done; e < size; ++e) {
      T* const to = place(e, transposed);
      for (int64_t lane = 0; lane < lanes_; ++lane)
        to[lane] = lane < count ? from[lane * size + e] : T(e % (n() + 1) == 0);
    }
  }
  void store(T* to, int64_t count, bool transposed = false) {
    const int64_t size = n() * n();
    int64_t done = 0;
    if (count >= lanes_) {
      for (; done + kLanes <= size; done += kLanes) {
        V tile[kLanes];
#pragma GCC unroll 16
        for (int64_t e = 0; e < kLanes; ++e) tile[e] = hn::Load(D(), place(done + e, transposed));
        transpose_tile(D(), tile);
#pragma GCC unroll 16
        for (int64_t lane = 0; lane < kLanes; ++lane) hn::StoreU(tile[lane], D(), to + lane * size + done);
      }
    }
    for (int64_t e = done; e < size; ++e) {
      const T* const from = place(e, transposed);
      for (int64_t lane = 0; lane < std::min(count, lanes_); ++lane) to[lane * size + e] = from[lane];
    }
  }
  void set_identity() {
    for (int64_t j = 0; j < n(); ++j)
      for (int64_t i = 0; i < n(); ++i) set(i, j, hn::Set(D(), T(i == j)));
  }

 private:
  static constexpr int64_t kLanes = hn::MaxLanes(D());

  // Where element e of the matrices in memory is, in all lanes.
  T* place(int64_t e, bool transposed) const {
    return data_.data() + (transposed ? e % n() * n() + e / n() : e) * lanes_;
  }

  int64_t given_, lanes_;
  Scratch<T> data_;
};

// f(first matrix, how many) for groups of as many matrices as there are lanes; `scratch` is made once per thread.
template <class T, class MakeScratch, class F>
void over_lane_groups(int64_t n, int64_t count, const MakeScratch& make_scratch, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const int64_t groups = (count + lanes - 1) / lanes;
  const int64_t grain = std::max<int64_t>(1, 4096 / (n * n * n + 64));
  parallel_for(0, groups, grain, [&](int64_t begin, int64_t end) {
    auto scratch = make_scratch();
    for (int64_t g = begin; g < end; ++g) f(scratch, g * lanes, std::min(lanes, count - g * lanes));
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
