// The products of attention's forward pass for a few queries.

#if defined(MICA_CPU_ATTENTION_IN_PLACE_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_ATTENTION_IN_PLACE_TILES_INL_H_
#undef MICA_CPU_ATTENTION_IN_PLACE_TILES_INL_H_
#else
#define MICA_CPU_ATTENTION_IN_PLACE_TILES_INL_H_
#endif

#include "backends/cpu/attention/operands.h"
#include "backends/cpu/attention/scores-inl.h"
#include "backends/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace {

// For a few queries: keys and values are read once, where they lie.
template <class T>
class InPlaceTiles {
 public:
  using Element = T;
  static constexpr int64_t kKeys = 256, kMostQueries = 8;

  InPlaceTiles(DType dtype, int64_t depth, int64_t width, int64_t queries)
      : multiply_(gemm_impl::gemv_kernel(dtype)),
        packer_(dtype),
        depth_(depth),
        width_(width),
        query_(queries * depth),
        sums_(queries * width),
        scores_(kMostQueries * kStride),
        added_(kMostQueries * width) {}

  bool fits() const { return true; }
  static int64_t rows() { return kMostQueries; }
  T* scores(int64_t i) const { return scores_.data() + i * kStride; }
  T* sums(int64_t r) const { return sums_.data() + r * width_; }

  void read_queries(const Head& query, int64_t first, int64_t count, T factor) {
    packer_.rows(query, first, count, depth_, query_.data(), depth_);
    scale_run(query_.data(), count * depth_, factor);
  }
  void read_keys(const Head& key, const Head& value, int64_t begin, int64_t) {
    keys_ = key.row(begin);
    key_stride_ = key.row_stride;
    values_ = value.row(begin);
    value_stride_ = value.row_stride;
  }
  void score(int64_t r, int64_t rows, int64_t seen) const {
    multiply_(keys_, query_.data() + r * depth_, scores_.data(), {seen, depth_, rows, key_stride_, 1, depth_, kStride});
  }
  hn::VFromD<hn::ScalableTag<T>> weigh(int64_t i, int64_t n, int64_t seen, T shift) const {
    return powers_and_sums(scores(i), n, seen, shift);
  }
  void add_values(int64_t r, int64_t rows, int64_t seen, bool first) const {
    T* to = first ? sums(r) : added_.data();
    multiply_(values_, scores_.data(), to, {width_, seen, rows, 1, value_stride_, kStride, width_});
    if (first) return;
    for (int64_t i = 0; i < rows * width_; ++i) sums(r)[i] += to[i];
  }

 private:
  static constexpr int64_t kStride = kKeys + 16;

  gemm_impl::GemvFn multiply_;
  Packer<T> packer_;
  int64_t depth_, width_;
  const char *keys_ = nullptr, *values_ = nullptr;
  int64_t key_stride_ = 0, value_stride_ = 0;
  Scratch<T> query_, sums_, scores_, added_;
};

}  // namespace
}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_ATTENTION_IN_PLACE_TILES_INL_H_
