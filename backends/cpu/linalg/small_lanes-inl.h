// A matrix per lane: element (i, j) of all of them is one vector.
#if defined(MICA_SMALL_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_SMALL_LANES_INL_H_
#undef MICA_SMALL_LANES_INL_H_
#else
#define MICA_SMALL_LANES_INL_H_
#endif

#include <hwy/aligned_allocator.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
class LaneMatrices {
 public:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  explicit LaneMatrices(int64_t n)
      : n_(n),
        lanes_(static_cast<int64_t>(hn::Lanes(D()))),
        data_(hwy::AllocateAligned<T>(static_cast<size_t>((n + 1) * n * lanes_))) {}

  int64_t lanes() const { return lanes_; }
  HWY_INLINE V get(int64_t i, int64_t j) const { return hn::Load(D(), data_.get() + (j * n_ + i) * lanes_); }
  HWY_INLINE void set(int64_t i, int64_t j, V v) { hn::Store(v, D(), data_.get() + (j * n_ + i) * lanes_); }
  T& at(int64_t i, int64_t j, int64_t lane) { return data_[static_cast<size_t>((j * n_ + i) * lanes_ + lane)]; }
  // A column more, for what an algorithm keeps of each: vectors cannot be elements of an array.
  HWY_INLINE V kept(int64_t i) const { return get(i, n_); }
  HWY_INLINE void keep(int64_t i, V v) { set(i, n_, v); }

  // Lanes without a matrix hold the identity, which no algorithm stumbles over.
  void load(const T* from, int64_t count, bool transposed = false) {
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      const T* const matrix = from + lane * n_ * n_;
      for (int64_t j = 0; j < n_; ++j)
        for (int64_t i = 0; i < n_; ++i)
          at(i, j, lane) = lane >= count ? T(i == j) : transposed ? matrix[i * n_ + j] : matrix[j * n_ + i];
    }
  }
  void store(T* to, int64_t count, bool transposed = false) {
    for (int64_t lane = 0; lane < count; ++lane) {
      T* const matrix = to + lane * n_ * n_;
      for (int64_t j = 0; j < n_; ++j)
        for (int64_t i = 0; i < n_; ++i) (transposed ? matrix[i * n_ + j] : matrix[j * n_ + i]) = at(i, j, lane);
    }
  }
  void set_identity() {
    for (int64_t j = 0; j < n_; ++j)
      for (int64_t i = 0; i < n_; ++i) set(i, j, hn::Set(D(), T(i == j)));
  }

 private:
  int64_t n_, lanes_;
  hwy::AlignedFreeUniquePtr<T[]> data_;
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
