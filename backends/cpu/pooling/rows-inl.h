// Windows over planes whose rows are contiguous. A row of outputs is computed lane by lane from the input rows that its
// windows cover. These are read in place, or from padded copies where windows reach over an edge or elements have a
// type that is not computed in.

#if defined(MICA_CPU_POOLING_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_POOLING_ROWS_INL_H_
#undef MICA_CPU_POOLING_ROWS_INL_H_
#else
#define MICA_CPU_POOLING_ROWS_INL_H_
#endif

#include <vector>

#include "backends/cpu/pooling/lanes-inl.h"
#include "backends/cpu/pooling/windows.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The input rows under one row of outputs.
template <class C>
struct CoveredRows {
  const C* const* rows;    // element 0 is where the first window begins
  const int64_t* offsets;  // where each row begins in the plane, relative to the first
  int64_t count;
};

template <class T>
class RowReader {
 public:
  using C = Computed<T>;
  RowReader(const Windows& w, const T* in, C padding)
      : w_(w),
        in_(in),
        span_((w.kernel[1] - 1) * w.dilation[1] + 1),
        pointers_(w.kernel[0] * w.kernel[1]),
        offsets_(pointers_.size()),
        tags_(w.kernel[0] * span_, -1) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<C>()));
    // Every lane that is read, those of whole vectors and one more for strided loads, must exist.
    const int64_t outputs = (w.out[2] + lanes - 1) / lanes * lanes;
    width_ = std::max((outputs - 1) * w.stride[2] + (w.kernel[2] - 1) * w.dilation[2] + 2, w.in[2] + w.padding[2]);
    const int64_t reach = (w.out[2] - 1) * w.stride[2] + (w.kernel[2] - 1) * w.dilation[2] + 1;
    in_place_ = std::is_same_v<T, C> && w.padding[2] == 0 && reach <= w.in[2] && w.out[2] >= lanes;
    last_row_ = w.batch * w.channels * w.in[0] * w.in[1] - 1;
    copies_.assign(static_cast<size_t>(width_ * w.kernel[0] * span_), padding);
  }

  // Whether rows are read in place: then whole vectors may be read only up to the row's last output.
  bool in_place() const { return in_place_; }

  CoveredRows<C> covered(const Position& p, const Taps& d, const Taps& h) {
    const int64_t first = (p.plane * w_.in[0] + d.first) * w_.in[1] + h.first;
    int64_t count = 0;
    for (int64_t i = 0; i < d.count; ++i) {
      for (int64_t k = 0; k < h.count; ++k) {
        const int64_t ih = h.first + k * w_.dilation[1];
        const int64_t row = (p.plane * w_.in[0] + d.first + i * w_.dilation[0]) * w_.in[1] + ih;
        offsets_[count] = (row - first) * w_.in[2];
        pointers_[count++] = row_at(row, i * span_ + ih % span_);
      }
    }
    return {pointers_.data(), offsets_.data(), count};
  }

 private:
  const C* row_at(int64_t row, int64_t slot) {
    if constexpr (std::is_same_v<T, C>) {
      // A strided load reads one element more than it needs, which the tensor's last row does not have.
      if (in_place_ && row != last_row_) return in_ + row * w_.in[2];
    }
    C* copy = copies_.data() + slot * width_;
    if (tags_[slot] != row) {
      load_run(in_ + row * w_.in[2], w_.in[2], copy + w_.padding[2]);
      tags_[slot] = row;
    }
    return copy;
  }

  const Windows& w_;
  const T* in_;
  int64_t span_;  // rows that a window covers in height, dilation included
  int64_t width_ = 0, last_row_ = 0;
  bool in_place_ = false;
  std::vector<const C*> pointers_;
  std::vector<int64_t> offsets_, tags_;  // which row each copy holds
  std::vector<C> copies_;
};

// Calls body(first output, how many of its lanes count) for the vectors of a row of n outputs. Where rows are read in
// place the last vector overlaps the one before instead of reaching over the end.
template <class F>
HWY_INLINE void for_each_vector(int64_t n, int64_t lanes, bool overlap, const F& body) {
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i == n) return;
  if (overlap) {
    body(n - lanes, lanes);
  } else {
    body(i, n - i);
  }
}

// Calls f with the stride as a constant where a load is cheaper for it: 1, 2, or 0 for any other.
template <class F>
HWY_INLINE void with_stride(int64_t stride, const F& f) {
  if (stride == 1) return f(std::integral_constant<int, 1>());
  if (stride == 2) return f(std::integral_constant<int, 2>());
  f(std::integral_constant<int, 0>());
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_POOLING_ROWS_INL_H_
